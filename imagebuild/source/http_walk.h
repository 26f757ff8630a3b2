/* All that lies below an address of a web server, found by its index pages, which are asked for by several threads at
 * once, and told by the calling one. What pages do not say of a file (all but nginx's JSON) is asked of the source.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_HTTP_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_HTTP_WALK_H

#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"
#include "net/http.h"

struct http_walk {
    struct source *source; /* its look is asked for files */
    unsigned threads;
    const struct rules *rules; /* what these leave out is not asked for; may be NULL */
    /* The page of the directory at path, and its address; any thread. resp->body.max is set. -EMSGSIZE: it is larger;
     * -ENOENT: it is not there. */
    int (*get)(struct source *s, const char *path, size_t len, struct bytes *out_url, struct http_response *resp);
    source_visit *visit;
    void *arg;
    struct source_counts *counts; /* of what is gone when it is asked for */
};

/* Memory: page_budget.h, and about 100 bytes for each name that waits to be asked for. */
GR_MUST_CHECK int http_walk_run(const struct http_walk *walk);

/* The version of a file of which only time and size are known; its length. */
size_t http_walk_validator(int64_t mtime, uint64_t size, char out[SOURCE_VALIDATOR_MAX + 1]);

#endif
