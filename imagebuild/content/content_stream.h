/* Bodies that come with the listing (source_entry.body): each is written into the image when it comes, at the next
 * address (alloc.h), or shares an equal one's. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_STREAM_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_STREAM_H

#include "imagebuild/fs/fs.h"
#include "imagebuild/tree/listing.h"

struct content_stream_config {
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    const struct live_map *live; /* what may be kept of a parent; NULL: nothing. The caller's */
    /* Called between any two pieces of work with the bytes done since the last call; not 0 ends it. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct content_stream_counts {
    uint64_t bytes, dedupe_files, dedupe_bytes; /* taken; of them those that shared another's blocks */
};

struct content_stream;

GR_MUST_CHECK int content_stream_new(const struct content_stream_config *config, struct content_stream **out);
void content_stream_free(struct content_stream *s); /* NULL is allowed */
/* Take the body of e. *out: address 0 when it is empty. -EBADMSG: it has not as many bytes as e says. */
GR_MUST_CHECK int content_stream_take(struct content_stream *s, const struct source_entry *e,
                                      struct listing_written *out);
/* Behind all bodies written, and all that may be kept; 0: none was written. */
uint64_t content_stream_end(const struct content_stream *s);
struct content_stream_counts content_stream_counts(const struct content_stream *s);

#endif
