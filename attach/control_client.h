/* Asking a server over its control socket (docs: nbdkit-granary-plugin(1), control=). */
#ifndef GRANARY_ATTACH_CONTROL_CLIENT_H
#define GRANARY_ATTACH_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* GET path ("/status") over the unix socket; the answer is appended to *out. -ENOENT or
 * -ECONNREFUSED: no server there; -EACCES: it is not this user's; -EIO: not the answer of a server. */
GR_MUST_CHECK int control_get(const char *socket, const char *path, struct bytes *out);

/* METHOD path?key=value... and the lines of its answer, one by one as they come, without their ends.
 * params: key, value, key, value, ..., NULL; a value of NULL is left out. line's non-zero result ends
 * it and is returned. -ENOENT, -ECONNREFUSED: no server there; -EINVAL: the server refuses the
 * request, in its words; -EBUSY: it answers as many as it does at a time (control_turn);
 * -ECONNRESET: the server ended before its answer; -EIO: anything else. */
typedef int control_line(void *arg, const char *line, size_t len);
GR_MUST_CHECK int control_call(const char *socket, const char *method, const char *path, const char *const *params,
                               control_line *line, void *arg);
/* The same with a body, by POST. */
GR_MUST_CHECK int control_post(const char *socket, const char *path, const char *const *params,
                               const struct bytes *body, control_line *line, void *arg);

/* do rc = control_call(...); while (control_turn(rc, &turn)): after -EBUSY once more a moment later, for a minute at
 * most, and until *cancel. */
struct control_turn {
    const volatile int *cancel; /* may be NULL */
    uint64_t deadline_ms;       /* 0: not begun */
};
bool control_turn(int rc, struct control_turn *turn);

/* Such a line as its object. *out: json_decref; NULL, in which there is nothing, when it is no JSON. -EIO: it is
 * {"error": sentence}, with that sentence. */
GR_MUST_CHECK int control_object(const char *line, size_t len, json_t **out);
/* A number in an object of an answer; 0: there is none of that name. */
uint64_t control_number(const json_t *object, const char *name);

#endif
