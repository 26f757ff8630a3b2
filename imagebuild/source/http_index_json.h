/* nginx's autoindex_format json: an array of flat objects. Read by a scanner of its own, since names are bytes there
 * and need not be UTF-8, which JSON libraries refuse. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_JSON_H
#define GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct http_index_object {
    const char *name;
    size_t name_len;
    bool directory, file, have_size;
    uint64_t size;
    char mtime[64]; /* as it stands there; empty when it is none */
};

typedef int http_index_object_visit(void *arg, const struct http_index_object *o);

/* -EBADMSG, without a sentence: not that; or what visit returned. Objects before the fault were visited. */
GR_MUST_CHECK int http_index_json_decode(const char *text, size_t len, http_index_object_visit *visit, void *arg);

#endif
