/* JSON that several answers of the control socket share. Each function that returns an object returns NULL when memory
 * is short; control_job_send and json_object_set_new accept that NULL. */
#ifndef GRANARY_SERVER_CONTROL_JSON_H
#define GRANARY_SERVER_CONTROL_JSON_H

#include <jansson.h>

#include "stack.h"

/* A number; the counters fit into a signed 64-bit integer. */
json_t *control_json_integer(uint64_t n);
/* "sha256:<hex>" */
json_t *control_json_digest(const struct digest *digest);

/* Return the start of what is reported about an export: {export, digest of its image}. */
json_t *control_json_export(const struct stack_export *export);

/* One named number of an answer. */
struct control_sum {
    const char *key;
    uint64_t value;
};
/* Add the n sums to object, in order. */
void control_json_add(json_t *object, const struct control_sum *sums, size_t n);

#endif
