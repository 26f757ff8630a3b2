/* The addresses that ask a node, and what each of them holds of what all share: requests under way, and memory of
 * answers. So none of them can take so much that the others are refused (base/share.h). */
#ifndef GRANARY_SERVER_PEER_CLIENTS_H
#define GRANARY_SERVER_PEER_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/compiler.h"

struct peer_clients;
struct peer_client;

/* What can be held: of all clients together, at most. */
enum peer_holding { PEER_REQUESTS, PEER_BODY_BYTES, PEER_HOLDINGS };

/* -ENOMEM. */
GR_MUST_CHECK int peer_clients_new(const size_t most[PEER_HOLDINGS], struct peer_clients **out);
/* No client may be left. NULL is allowed. */
void peer_clients_free(struct peer_clients *c);

/* Return the client of an address, whatever its port, with a reference; NULL: out of memory. get, ref and unref: one
 * thread at a time. */
struct peer_client *peer_client_get(struct peer_clients *c, const struct sockaddr *address);
struct peer_client *peer_client_ref(struct peer_client *client);
void peer_client_unref(struct peer_client *client); /* NULL is allowed; it must hold nothing at the last */

/* Let the client hold n more. false: it has its share already, or there is no more. Any thread. */
GR_MUST_CHECK bool peer_client_take(struct peer_client *client, enum peer_holding what, size_t n);
void peer_client_give(struct peer_client *client, enum peer_holding what, size_t n);

/* How many connections of nodes a process with this many descriptors (RLIMIT_NOFILE) may have: a quarter, and at
 * most PEER_CONNECTIONS_MAX, since strangers may open them, and readers and the store need the others. */
enum { PEER_CONNECTIONS_MAX = 4096 /* 1,024 nodes with four each */ };
unsigned peer_connections_max(uint64_t descriptors);

#endif
