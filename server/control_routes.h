/* What the control socket answers to which request. The daemon's thread alone uses it. */
#ifndef GRANARY_SERVER_CONTROL_ROUTES_H
#define GRANARY_SERVER_CONTROL_ROUTES_H

#include <microhttpd.h>

#include "server/added_exports.h"
#include "server/control_job.h"
#include "server/history.h"
#include "stack.h"

struct control_routes {
    struct stack *stack;         /* none of these is owned */
    struct added_exports *added; /* NULL: exports do not change */
    struct history *history;
    struct control_jobs *jobs;
    struct control_jobs *changes; /* of exports: a mount does not wait for warming that takes hours */
    unsigned uploads;             /* bodies being collected */
};

/* A daemon's access handler: called with the header, then for each part of a body, then once more, when the request is
 * answered. *out_by_job: a job answers it, which may take long; else it is left alone. */
enum MHD_Result control_routes_take(struct control_routes *r, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *data, size_t *data_len, void **state,
                                    bool *out_by_job);
/* The request is answered, or its client gone. state: control_routes_take's. */
void control_routes_done(struct control_routes *r, void *state);

#endif
