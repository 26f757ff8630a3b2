/* Write file data that comes with the listing (source_entry.content). Each file is written when it comes, at the next
 * address (alloc.h), or shares the blocks of an equal one. One thread. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_STREAM_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_STREAM_H

#include "imagebuild/fs/fs.h"
#include "imagebuild/tree/listing.h"

/* All pointers are the caller's. */
struct content_stream_config {
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    const struct live_map *live; /* what may be kept of a parent; NULL: nothing */
    /* Called between any two pieces of work with the bytes done since the last call; non-zero ends it. files is 0. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *step_arg;
};

struct content_stream_counts {
    uint64_t bytes, dedupe_files, dedupe_bytes; /* taken; part of that: shared an equal file's blocks */
};

struct content_stream;

/* -ENOMEM. */
GR_MUST_CHECK int content_stream_new(const struct content_stream_config *config, struct content_stream **out);
void content_stream_free(struct content_stream *s); /* NULL is allowed */
/* Take the data of entry e into *out (address 0: it is empty). -EBADMSG: there are not as many bytes as e says;
 * -EFBIG: the filesystem's limit; others come from the source, the sink and step. */
GR_MUST_CHECK int content_stream_take(struct content_stream *s, const struct source_entry *e,
                                      struct listing_written *out);
/* Return the address behind all data written and all that may be kept; 0: nothing was written. */
uint64_t content_stream_end(const struct content_stream *s);
struct content_stream_counts content_stream_counts(const struct content_stream *s);

#endif
