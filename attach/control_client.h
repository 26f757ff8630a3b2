/* Requests to a server over its control socket (granary(1), CONTROL SOCKET). */
#ifndef GRANARY_ATTACH_CONTROL_CLIENT_H
#define GRANARY_ATTACH_CONTROL_CLIENT_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* GET path ("/status") over the unix socket, and append the document to *out. -ECONNREFUSED: no server listens there;
 * -EACCES: the socket is another user's; -ECONNRESET: the server ended before its answer did; -EPROTO: what answers
 * does not speak HTTP; -EIO: any other failure or HTTP status. */
GR_MUST_CHECK int control_get(const char *socket, const char *path, struct bytes *out);

/* GET /status. *out: the object, json_decref it. The errors of control_get; -EIO also: the answer is no object. */
GR_MUST_CHECK int control_status(const char *socket, json_t **out);

/* Takes one line of an answer, without its newline. A non-zero result ends the request and is returned. */
typedef int control_line(void *arg, const char *line, size_t len);
/* Send METHOD path?key=value... and pass on the answer's lines as they come. params: key, value, key, value, ..., NULL;
 * a pair whose value is NULL is left out. The errors of control_get; also -EINVAL: the server refuses the request, in
 * its words; -EBUSY: it is busy with as many such requests as it takes (control_turn). */
GR_MUST_CHECK int control_call(const char *socket, const char *method, const char *path, const char *const *params,
                               control_line *line, void *arg);
/* Like control_call, by POST and with a body. */
GR_MUST_CHECK int control_post(const char *socket, const char *path, const char *const *params,
                               const struct bytes *body, control_line *line, void *arg);
/* The same by PUT; body may be NULL. */
GR_MUST_CHECK int control_put(const char *socket, const char *path, const char *const *params, const struct bytes *body,
                              control_line *line, void *arg);

/* A request that the server answers at once, without a body and of no interest but for the errors, which are those of
 * control_call; -EIO also: there is no answer within 2 s. */
GR_MUST_CHECK int control_tell(const char *socket, const char *method, const char *path, const char *const *params);

/* Write the path of the control socket beside a server's socket; returns out. */
char *control_beside(const char *socket, char out[PATH_MAX]);

/* Repeat a request that met -EBUSY, after a short pause, for at most a minute and until *cancel:
 *
 *     do rc = control_call(...); while (control_turn(rc, &turn));
 */
struct control_turn {
    const volatile int *cancel; /* may be NULL */
    uint64_t deadline_ms;       /* clock_now_ms; 0: no -EBUSY yet */
};
/* Return true if the request should be sent again. */
bool control_turn(int rc, struct control_turn *turn);

/* Parse a line as JSON. *out: json_decref it; NULL when the line is no JSON. -EIO: the line is {"error": sentence}; the
 * sentence becomes the thread's error. */
GR_MUST_CHECK int control_object(const char *line, size_t len, json_t **out);
/* A control_line that takes a line for its error only; arg is not used. */
int control_check_line(void *arg, const char *line, size_t len);
/* Parse a line of the answer to POST /warm. *out: its final sums, json_decref it; NULL: it reports progress. Errors as
 * from control_object. */
GR_MUST_CHECK int control_warm_sums(const char *line, size_t len, json_t **out);
/* Return an object's number of that name; 0 when it has none. */
uint64_t control_number(const json_t *object, const char *name);

#endif
