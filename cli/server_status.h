/* A server's answer to GET /status (server/control_status.c). */
#ifndef GRANARY_CLI_SERVER_STATUS_H
#define GRANARY_CLI_SERVER_STATUS_H

#include <jansson.h>
#include <stdint.h>

#include "base/compiler.h"

/* Request the status over a control socket. *out: json_decref it. */
GR_MUST_CHECK int server_status_get(const char *control, json_t **out);

/* Return a counter; 0: none has that name. */
uint64_t server_status_counter(json_t *status, const char *name);
/* Return the export of that name, for comparing two answers: exports come and go. Borrowed; NULL: none. */
json_t *server_status_export(json_t *status, const char *name);
/* Return a text in an object; "?": there is none. */
const char *server_status_text(json_t *object, const char *name);

#endif
