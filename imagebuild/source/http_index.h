/* Index pages of web servers: what a directory holds, by nginx's autoindex (JSON or HTML) or Apache's mod_autoindex. No
 * I/O. The pages are not trusted: whatever they say, only names of the directory itself come out.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_H
#define GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct http_index_entry {
    const char *name; /* bytes, decoded: one component, neither empty nor "." nor ".."; no slash, no NUL */
    size_t name_len;
    bool directory;
    bool exact; /* the size (of a file) and the mtime are known, to the byte and the second */
    uint64_t size;
    int64_t mtime;
};

/* Non-zero ends the decoding with that value. */
typedef int http_index_visit(void *arg, const struct http_index_entry *e);

/* directory: the page's address, with a slash at its end. Links to anything but its own children, with a query or not
 * well formed are passed over. -EBADMSG with a sentence: this is no index page. */
GR_MUST_CHECK int http_index_decode(const void *page, size_t len, const char *directory, http_index_visit *visit,
                                    void *arg);

/* nginx's autoindex_format json: an array of flat objects. Read by a scanner of its own, since names are bytes there
 * and need not be UTF-8, which JSON libraries refuse. */
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
