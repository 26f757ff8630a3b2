/* What plugin.c uses of the files that need no nbdkit. */
#ifndef GRANARY_PLUGIN_PLUGIN_INTERNAL_H
#define GRANARY_PLUGIN_PLUGIN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/compiler.h"

/* ---- clients: plugin_client.c ---- */

/* The clients behind nbdkit's connections, and whether they are still there. nbdkit tells a plugin that a connection
 * has ended only after its last request was answered, and a request may wait minutes for a store. So the plugin finds
 * the connection's socket among the process's descriptors and watches it. When the client has closed its end, reads
 * that wait for it end at once (base/client.h); the fetches they wait for go on.
 *
 * nbdkit before 1.34 ends the whole server when several replies meet a closed connection
 * (docs/internals/attachment.md). Therefore the requests of a vanished client return to nbdkit one by one, each after
 * the thread of the one before has ended. */
struct plugin_clients;
struct plugin_client;

/* control: path of the control socket, whose connections are never taken for clients; NULL: there is none. Makes no
 * thread. -ENOMEM, or the errno of epoll and eventfd. */
GR_MUST_CHECK int plugin_clients_open(const char *control, struct plugin_clients **out);
/* Start the thread that watches, in the process that serves (after nbdkit's fork). */
GR_MUST_CHECK int plugin_clients_start(struct plugin_clients *cs);
/* Stop watching; every client has been freed. NULL is allowed. */
void plugin_clients_close(struct plugin_clients *cs);

/* What nbdkit reports about the other end of a connection. */
struct plugin_client_peer {
    struct sockaddr_storage address;
    socklen_t address_len; /* 0: nbdkit does not know it */
    int64_t pid;           /* of a unix socket: the process that connected it */
};

/* Make the client of the calling thread's connection. It is not watched when its socket cannot be told for certain: one
 * process opens several connections at a time, or the connection is no socket. -ENOMEM. */
GR_MUST_CHECK int plugin_client_new(struct plugin_clients *cs, const struct plugin_client_peer *peer,
                                    struct plugin_client **out);
/* Call it after the client's last request. */
void plugin_client_free(struct plugin_client *c);

/* Call these around each request, in its thread. plugin_client_end may wait for earlier requests of a vanished client
 * to return. It returns false when the client is gone, so that no one reads the answer. */
void plugin_client_begin(struct plugin_client *c);
bool plugin_client_end(struct plugin_client *c);

/* ---- threads: server_threads.c ---- */

/* How many requests the nbdkit process around the plugin works on at once: nbdkit's default; fewer than FEW deserve a
 * warning. */
enum { SERVER_THREADS_DEFAULT = 16, SERVER_THREADS_FEW = 32 };

/* Return the value of -t or --threads in a command line as /proc/PID/cmdline holds it (arguments ended by NUL), or
 * nbdkit's default. */
unsigned server_threads_parse(const char *cmdline, size_t len);

/* The same for this process. */
unsigned server_threads(void);

#endif
