/* Decode index pages of web servers: nginx's autoindex (JSON or HTML), Apache's mod_autoindex, and others titled "Index
 * of" or "Directory listing". No I/O; any thread. Pages are not trusted: whatever they contain, the visitor gets only
 * names of children of the directory. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_H
#define GRANARY_IMAGEBUILD_SOURCE_HTTP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct http_index_entry {
    const char *name; /* decoded bytes of one component, not "", "." or ".."; no slash, no NUL; valid in the callback */
    size_t name_len;
    bool directory;
    bool exact;    /* mtime and, for files, size are exact; HTML pages round them, so they are 0 there */
    uint64_t size; /* bytes */
    int64_t mtime; /* seconds since 1970 */
};

/* Non-zero ends the decoding with that value. */
typedef int http_index_visit(void *arg, const struct http_index_entry *e);

/* Visit the children that a page names. A child may be visited twice if its links are not adjacent. `directory` is the
 * page's address, with a slash at its end. Links to other places, with a query, or malformed ones are ignored.
 *
 * Returns 0; -EBADMSG with a sentence: this is not an index page; -ENOMEM; or what visit returned. */
GR_MUST_CHECK int http_index_decode(const void *page, size_t len, const char *directory, http_index_visit *visit,
                                    void *arg);

#endif
