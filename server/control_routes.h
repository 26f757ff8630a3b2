/* Which request the control socket answers how. Only the daemon's thread uses it. */
#ifndef GRANARY_SERVER_CONTROL_ROUTES_H
#define GRANARY_SERVER_CONTROL_ROUTES_H

#include <microhttpd.h>

#include "server/added_exports.h"
#include "server/control_job.h"
#include "server/history.h"
#include "stack.h"

/* What the routes work on; all of it belongs to control.c. */
struct control_routes {
    struct stack *stack;         /* not owned */
    struct added_exports *added; /* not owned; NULL: exports cannot be changed */
    struct history *history;
    struct control_jobs *jobs;
    struct control_jobs
        *changes;     /* jobs that add or remove exports: a mount need not wait for warming that takes hours */
    unsigned uploads; /* request bodies being received */
};

/* The daemon's access handler. libmicrohttpd calls it once with the header, once for each part of the body, and once
 * more when the request is complete and an answer is due. Sets *out_by_job when a job answers, which may take long;
 * otherwise leaves it alone. */
enum MHD_Result control_routes_take(struct control_routes *r, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *data, size_t *data_len, void **state,
                                    bool *out_by_job);
/* Drop a request's state, after it was answered or its client went away. state: as control_routes_take left it. */
void control_routes_done(struct control_routes *r, void *state);

#endif
