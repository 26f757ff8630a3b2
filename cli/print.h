/* Standard output: names, which are bytes, digests, and JSON objects. */
#ifndef GRANARY_CLI_PRINT_H
#define GRANARY_CLI_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/digest.h"
#include "format/json_name.h"

enum { PRINT_DIGEST_MAX = DIGEST_HEX_SIZE + 7 };

/* Write "sha256:<hex>" into out; return out. */
const char *print_digest(const struct digest *d, char out[PRINT_DIGEST_MAX]);

/* Print a name. escape: print bytes that could control a terminal as \n, \t, \\ or \xHH. */
void print_name(FILE *to, const char *name, size_t len, bool escape);
/* Whether names printed to this stream need escaping: it is a terminal. */
bool print_escapes(FILE *to);

/* Make JSON values. They are NULL when memory is short, which json_object_set_new and print_json accept. */
json_t *print_json_digest(const struct digest *d);
json_t *print_json_time(int64_t seconds);
/* Print one object and a newline, and free it. -ENOMEM for NULL. */
GR_MUST_CHECK int print_json(json_t *object);

#endif
