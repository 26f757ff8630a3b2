/* What a process that serves images consists of, whatever front end its clients come through: the stack, its control
 * socket, its metrics over TCP, the warming of metadata. A front end sets the parameters, opens, starts, and closes;
 * reads of an export are image_read. */
#ifndef GRANARY_SERVER_SERVING_H
#define GRANARY_SERVER_SERVING_H

#include "base/compiler.h"
#include "base/log_limit.h"
#include "base/vec.h"
#include "server/added_exports.h"
#include "server/control.h"
#include "server/metrics_server.h"
#include "server/start_warm.h"
#include "stack_options.h"

/* "granary content-root sha256:<64> image sha256:<64> metadata <offset>+<length> front <length>" */
enum { SERVING_DESCRIPTION_MAX = 288 };

/* A client's hold on an export. */
struct serving_export {
    struct stack_export *export;
    struct image *image; /* its */
};

struct serving {
    struct stack_options options;
    char *handed; /* the path of what a supervisor or mount has resolved (EXPORT_TABLE_HANDED) */
    struct stack *stack;
    struct added_exports *added;
    struct control *control;
    struct metrics_server *metrics;
    struct start_warm *start_warm;
    struct log_limit failures;
    volatile int ending; /* the stores' cancel */
};

/* Every default; stack_options_set is what comes next. */
void serving_init(struct serving *s);

/* After stack_options_complete: ends the process there, with 0, where that is all that is asked (GRANARY_CHECK).
 * Stores, cache directories, images, sockets. All that can be wrong with the parameters is said here. Makes no thread;
 * the control socket is the last, by which a supervisor knows that this has gone well. */
GR_MUST_CHECK int serving_open(struct serving *s);

/* Threads, in the process that is to serve. Under a supervisor (GRANARY_SUPERVISOR) this process is killed when that
 * ends, for it holds the caches' locks. */
GR_MUST_CHECK int serving_start(struct serving *s);

/* What is being fetched is not tried again, and reads that wait for it fail: for a front end that ends its clients. */
void serving_stop_fetching(struct serving *s);

/* All of it down again, the counters in debug lines; in any state after init. No client waits any more, so what is
 * still fetched for none is not tried again. */
void serving_close(struct serving *s);

/* The export of that name for one client, which keeps it from being removed; "" is the only one, where there is one.
 * -ENOENT, with a sentence that names them: none. *out: serving_disconnect. Any thread. */
GR_MUST_CHECK int serving_connect(struct serving *s, const char *name, struct serving_export **out);
void serving_disconnect(struct serving_export *e);

/* What clients are told of an export; returns out. */
char *serving_describe(const struct stack_export *e, char out[SERVING_DESCRIPTION_MAX]);

/* A client's request has failed with rc and a sentence: log it, unless failures are a storm. Returns what the client is
 * told, ENOMEM or EIO: only out of memory is worth telling from the rest. Any thread. */
int serving_request_failed(struct serving *s, int rc);

#endif
