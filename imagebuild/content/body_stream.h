/* Bodies that come with the listing (source_entry.body): each is written into the image when it comes, at the next
 * address (alloc.h), or shares an equal one's. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_BODY_STREAM_H
#define GRANARY_IMAGEBUILD_CONTENT_BODY_STREAM_H

#include "imagebuild/fs/fs.h"
#include "imagebuild/tree/listing.h"

struct body_stream_config {
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    const struct live *live; /* what may be kept of a parent; NULL: nothing. The caller's */
    /* Called between any two pieces of work with the bytes done since the last call; not 0 ends it. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct body_stream_counts {
    uint64_t bytes, dedupe_files, dedupe_bytes; /* taken; of them those that shared another's blocks */
};

struct body_stream;

GR_MUST_CHECK int body_stream_new(const struct body_stream_config *config, struct body_stream **out);
void body_stream_free(struct body_stream *s); /* NULL is allowed */
/* Take the body of e. *out: address 0 when it is empty. -EBADMSG: it has not as many bytes as e says. */
GR_MUST_CHECK int body_stream_take(struct body_stream *s, const struct source_entry *e, struct listing_body *out);
/* Behind all bodies written, and all that may be kept; 0: none was written. */
uint64_t body_stream_end(const struct body_stream *s);
struct body_stream_counts body_stream_counts(const struct body_stream *s);

#endif
