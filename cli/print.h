/* What goes to standard output: names as bytes, digests, JSON objects. */
#ifndef GRANARY_CLI_PRINT_H
#define GRANARY_CLI_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/digest.h"
#include "format/json_name.h"

enum { PRINT_DIGEST_MAX = DIGEST_HEX_SIZE + 7 };

/* "sha256:<hex>"; returns out. */
const char *print_digest(const struct digest *d, char out[PRINT_DIGEST_MAX]);

/* Write a name. escape: bytes that could upset a terminal as \n, \t, \\ or \xHH. */
void print_name(FILE *to, const char *name, size_t len, bool escape);
/* Whether names written to this stream are to be escaped: it is a terminal. */
bool print_escapes(FILE *to);

/* JSON values; NULL when out of memory, which json_object_set_new and print_json tolerate. */
json_t *print_json_digest(const struct digest *d);
json_t *print_json_time(int64_t seconds);
/* Print one object and a newline and free it. -ENOMEM for NULL. */
GR_MUST_CHECK int print_json(json_t *object);

#endif
