/* The running servers of this machine: finding them and their mounts, their status (server/control_status.c), and the
 * rates between two answers. */
#ifndef GRANARY_CLI_SERVERS_H
#define GRANARY_CLI_SERVERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/attach.h"
#include "base/compiler.h"
#include "base/vec.h"
#include "cli/output.h"

/* The usual place of `granary serve`. */
#define SERVE_RUN_DIR "/run/granary"
#define SERVE_SOCKET SERVE_RUN_DIR "/nbd.sock"
#define SERVE_CONTROL SERVE_SOCKET ".control"

/* ---- the server that a user means ---- */

/* target is a control socket, a server's socket or the directory of `granary serve --fuse` with the control socket
 * beside it, or a mount point. NULL: the socket of `granary serve` at its usual place, else the only server of mounts.
 * -ENOENT: there is no server; -EINVAL: mounts have several, and the sentence names them. */
GR_MUST_CHECK int control_target_find(const char *target, char *out, size_t size);

/* What a mount point means, whatever else its server serves: "sha256:<hex>" of its image, and the name of its export
 * where the mount chose that. Both are "" where target is no mount point. */
struct control_mounted {
    char digest[PRINT_DIGEST_MAX], export[STATE_REF_MAX];
};
void control_target_mounted(const char *target, struct control_mounted *out);

/* Return the name of the mount point's export, at most size bytes with its NUL. false: target is no mount point. */
bool control_target_export(const char *target, char *out, size_t size);

/* ---- all servers ---- */

struct node_server {
    char *control; /* path of its control socket */
    char *dir;     /* a mount point of one of its images; NULL: found by its socket */
};
struct node_servers {
    VEC(struct node_server) found;
};

/* Find the server on the default socket and those of all mounts, each once. node_servers_release it in any case.
 * -ENOMEM, or as mount_each. */
GR_MUST_CHECK int node_servers_find(struct node_servers *out);
void node_servers_release(struct node_servers *n);
/* Add the servers of the units granary-serve@NAME, each in /run/granary-NAME, that are not there yet. -ENOMEM. */
GR_MUST_CHECK int node_servers_add_units(struct node_servers *n);

/* Add to each export in a server's status "mounts", the directories where it is mounted, and "devices", the nbd devices
 * of these mounts, each with its reconnect daemon as "keeper": a process or null. Add to the status "followed", the
 * directories that show the newest version of a tag by this server, if there are any. */
void node_servers_add_mounts(const char *control, json_t *status);

/* If target is a mount point, reduce such a status to that mount: its export, with this directory and its device only.
 */
void node_servers_keep_mount(json_t *status, const char *target);

/* ---- the status of one ---- */

/* Return a counter; 0: none has that name. */
uint64_t server_status_counter(json_t *status, const char *name);
/* Return the export of that name, for comparing two answers: exports come and go. Borrowed; NULL: none. */
json_t *server_status_export(json_t *status, const char *name);
/* Return a text in an object; "?": there is none. */
const char *server_status_text(json_t *object, const char *name);

/* ---- rates: the difference between two answers to /status ---- */

/* The sums of an export of which rates are taken, by their names in /status; NULL ends the list. */
extern const char *const server_rate_names[];

/* Give each export of now, and now itself for all exports, an object "rates": the increase of each sum per second since
 * before. If the server was restarted in between, since its start. */
void server_rates_add(json_t *now, json_t *before);

/* Return one rate; 0: none has that name. */
double server_rate(json_t *object, const char *name);

/* Return the time within which this percentage of the reads since before (or since a restart) ended, as precisely as
 * the server's buckets allow. 0: there were no reads, or the server does not tell; UINT64_MAX: longer than the last
 * bucket's bound. */
uint64_t server_latency_us(json_t *now, json_t *before, unsigned percent);

/* Return, by its rates, the percentage of the bytes read from an export, or from all, that this machine's memory and
 * disk served. Negative: nothing was read. */
double server_hit_percent(json_t *rates_of);

#endif
