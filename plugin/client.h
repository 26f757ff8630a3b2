/* The clients of nbdkit's connections, and whether they are still there. nbdkit tells a plugin of a connection's end
 * when the last of its requests is answered, and of a request that waits for a store that is minutes away: so the
 * plugin finds the connection's socket among the descriptors of the process, and watches it by itself. When a client
 * has closed his end, reads that wait on his behalf end at once (base/asker.h); what they wait for goes on.
 *
 * nbdkit before 1.34 ends the whole server when several replies meet a connection that is gone
 * (docs/internals/attachment.md), so the requests of a vanished client are given back to it one by one, each after the
 * thread of the one before has ended.
 */
#ifndef GRANARY_PLUGIN_CLIENT_H
#define GRANARY_PLUGIN_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/compiler.h"

struct clients;
struct client;

/* control: path of the control socket, whose connections are nobody's here; NULL: there is none. Makes no thread. */
GR_MUST_CHECK int clients_open(const char *control, struct clients **out);
/* Watch, after a fork. */
GR_MUST_CHECK int clients_start(struct clients *cs);
/* Every client was freed. */
void clients_close(struct clients *cs);

/* What nbdkit says of the other end of a connection. */
struct client_peer {
    struct sockaddr_storage address;
    socklen_t address_len; /* 0: it does not say */
    int64_t pid;           /* of a unix socket; the process that connected it */
};

/* The client of the connection that the calling thread has; one that is not watched where its socket is not certain:
 * where one process opens several at a time, or it is none. -ENOMEM. */
GR_MUST_CHECK int client_new(struct clients *cs, const struct client_peer *peer, struct client **out);
/* After the last request. */
void client_free(struct client *c);
bool client_is_watched(const struct client *c);

/* Around each request, in its thread. client_end may wait for requests of a vanished client that are ahead of this one.
 * False: he has gone, and nobody reads the answer. */
void client_begin(struct client *c);
bool client_end(struct client *c);

#endif
