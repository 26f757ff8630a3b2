/* A table by address, in which the one thread that has connections looks; and a lock for the sums, which are few
 * instructions. */
#include "server/peer_clients.h"

#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/share.h"
#include "net/listen.h"

struct peer_client {
    struct peer_clients *clients;
    unsigned refs;
    struct in6_addr address;     /* of IPv4: mapped; of anything else: zero, and all of those are one client */
    size_t holds[PEER_HOLDINGS]; /* guarded by clients->lock */
};

struct peer_clients {
    struct map by_address; /* of struct entry */
    size_t most[PEER_HOLDINGS];
    pthread_mutex_t lock;       /* guards the next member, and the clients' */
    size_t held[PEER_HOLDINGS]; /* of all clients */
};

/* hash: the last eight bytes of the address. */
struct entry {
    uint64_t hash;
    struct peer_client *client;
};

static bool entry_is(const void *entry, const void *address)
{
    return !memcmp(&((const struct entry *)entry)->client->address, address, sizeof(struct in6_addr));
}

static const struct map_type entries = {.size = sizeof(struct entry), .is = entry_is};

static uint64_t hash_of(const struct in6_addr *address)
{
    uint64_t hash;
    memcpy(&hash, &address->s6_addr[8], sizeof hash);
    return hash;
}

int peer_clients_new(const size_t most[PEER_HOLDINGS], struct peer_clients **out)
{
    struct peer_clients *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    memcpy(c->most, most, sizeof c->most);
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return 0;
}

void peer_clients_free(struct peer_clients *c)
{
    if (!c)
        return;
    assert(!c->by_address.count);
    map_release(&c->by_address);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct peer_client *peer_client_get(struct peer_clients *c, const struct sockaddr *address)
{
    struct in6_addr key = {0};
    (void)listen_ip(address, &key);
    const struct entry *there = map_find(&c->by_address, &entries, hash_of(&key), &key);
    if (there)
        return peer_client_ref(there->client);
    struct peer_client *client = map_reserve(&c->by_address, &entries, 1) ? NULL : calloc(1, sizeof *client);
    if (!client)
        return NULL;
    *client = (struct peer_client){.clients = c, .refs = 1, .address = key};
    map_put(&c->by_address, &entries, &(struct entry){hash_of(&key), client});
    return client;
}

struct peer_client *peer_client_ref(struct peer_client *client)
{
    client->refs++;
    return client;
}

void peer_client_unref(struct peer_client *client)
{
    if (!client || --client->refs)
        return;
    {
        SCOPED_LOCK(&client->clients->lock);
        for (size_t i = 0; i < PEER_HOLDINGS; i++)
            assert(!client->holds[i]);
    }
    struct map *m = &client->clients->by_address;
    map_remove(m, &entries, map_find(m, &entries, hash_of(&client->address), &client->address));
    free(client);
}

bool peer_client_take(struct peer_client *client, enum peer_holding what, size_t n)
{
    struct peer_clients *c = client->clients;
    SCOPED_LOCK(&c->lock);
    if (!share_allows_part(client->holds[what], n, c->held[what], c->most[what]))
        return false;
    client->holds[what] += n;
    c->held[what] += n;
    return true;
}

void peer_client_give(struct peer_client *client, enum peer_holding what, size_t n)
{
    SCOPED_LOCK(&client->clients->lock);
    client->holds[what] -= n;
    client->clients->held[what] -= n;
}

unsigned peer_connections_max(uint64_t descriptors)
{
    return (unsigned)GR_MAX(GR_MIN(descriptors / 4, (uint64_t)PEER_CONNECTIONS_MAX), (uint64_t)1);
}
