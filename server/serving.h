/* The parts of a process that serves images, the same for every front end: the stack, its control socket, its metrics
 * over TCP, its console, the warming of metadata. The order of calls:
 *
 *     serving_init -> stack_options_set ... -> stack_options_complete -> serving_open -> (fork) -> serving_start
 *         -> serving_connect, image_read, serving_disconnect, in any number of threads
 *         -> serving_stop_fetching, clients end -> serving_close
 */
#ifndef GRANARY_SERVER_SERVING_H
#define GRANARY_SERVER_SERVING_H

#include "base/compiler.h"
#include "base/log.h"
#include "stack_options.h"

/* Room for "granary content-root sha256:<64> image sha256:<64> metadata <offset>+<length> front <length>" and its NUL.
 */
enum { SERVING_DESCRIPTION_MAX = 288 };

/* A client's connection to an export, which cannot be removed meanwhile. */
struct serving_export {
    struct stack_export *export;
    struct image *image; /* the export's; lives as long as the connection */
    bool followed;       /* by a name that may lead to another image for the next connection */
};

/* A serving process. Front ends use options, stack and failures; the rest is private to serving.c. */
struct serving {
    struct stack_options options;
    char *handed; /* path of the table of images that a supervisor or mount has resolved (EXPORT_TABLE_HANDED) */
    struct stack *stack;
    struct added_exports *added;
    struct reports *reports; /* what followers and reconnect daemons report */
    struct control *control; /* NULL: there is no control socket; so for the members below */
    struct metrics_server *metrics;
    struct peers *peers;
    struct takeover *takeover;
    struct console *console;
    struct start_warm *start_warm;
    struct followed_exports *follow; /* NULL: no image's tag is followed */
    struct log_limit failures;       /* of the errors that clients' requests log */
    volatile int ending;             /* the stores' cancel flag */
};

/* Set every default; continue with stack_options_set. */
void serving_init(struct serving *s);

/* Open stores, cache directories, images and sockets, after stack_options_complete. Reports everything that can be
 * wrong with the parameters. Makes no thread. The control socket is opened last: a supervisor takes it as the sign of
 * success. With GRANARY_CHECK in the environment the process exits here with 0, as only the parameters were to be
 * checked. After a failure: serving_close. */
GR_MUST_CHECK int serving_open(struct serving *s);

/* For a front end whose clients cannot keep a version, before serving_open: -EINVAL if a tag is to be followed. */
GR_MUST_CHECK int serving_refuse_follow(const struct serving *s);

/* Start the threads, in the process that serves. Under a supervisor (GRANARY_SUPERVISOR) this process dies when the
 * supervisor does, since it holds the caches' locks, which the next server needs. -ECANCELED: the supervisor is gone
 * already. After a failure: serving_close. */
GR_MUST_CHECK int serving_start(struct serving *s);

/* Retry no more fetches; reads that wait for one fail. For a front end that is about to end its clients. */
void serving_stop_fetching(struct serving *s);

/* Stop and free everything, and log the counters as debug lines. Allowed in any state after serving_init, when no
 * client waits any more. */
void serving_close(struct serving *s);

/* Connect one client to the export of that name; "" means the only export. *out: serving_disconnect it. -ENOENT: no
 * such export, with a sentence that lists those there are; -ENOMEM. Any thread. */
GR_MUST_CHECK int serving_connect(struct serving *s, const char *name, struct serving_export **out);
void serving_disconnect(struct serving_export *e);

/* Write the description of an export that NBD clients get (see SERVING_DESCRIPTION_MAX); return out. */
char *serving_describe(const struct stack_export *e, char out[SERVING_DESCRIPTION_MAX]);

/* Log a client's request that failed with rc and a sentence, unless too many failures were logged lately. Returns the
 * errno to tell the client, positive: ENOMEM for -ENOMEM, EIO for everything else. Any thread. */
int serving_request_failed(struct serving *s, int rc);

#endif
