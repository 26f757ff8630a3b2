/* What a server says of itself: its answer to GET /status (server/control.h). */
#ifndef GRANARY_CLI_SERVER_STATUS_H
#define GRANARY_CLI_SERVER_STATUS_H

#include <jansson.h>
#include <stdint.h>

#include "base/compiler.h"

/* Ask the server of a control socket. *out: json_decref. */
GR_MUST_CHECK int server_status_get(const char *control, json_t **out);

/* A counter of it; 0: there is none of that name. */
uint64_t server_status_counter(json_t *status, const char *name);
/* The export of that name among those of it, by which two answers are compared: exports come and go. Borrowed; NULL:
 * there is none. */
json_t *server_status_export(json_t *status, const char *name);
/* A text in an object of it; "?": there is none. */
const char *server_status_text(json_t *object, const char *name);

#endif
