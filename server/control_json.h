/* What several answers of the control socket say alike. Every function returns NULL when out of memory, which
 * control_job_send and json_object_set_new take for that. */
#ifndef GRANARY_SERVER_CONTROL_JSON_H
#define GRANARY_SERVER_CONTROL_JSON_H

#include <jansson.h>

#include "stack.h"

json_t *control_json_integer(uint64_t n);
/* "sha256:<hex>" */
json_t *control_json_digest(const struct digest *digest);

/* The beginning of what is said of an export: {export, digest of its image}. */
json_t *control_json_export(const struct stack_export *export);

struct control_sum {
    const char *key;
    uint64_t value;
};
void control_json_add(json_t *object, const struct control_sum *sums, size_t n);

#endif
