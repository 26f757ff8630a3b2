/* Ingest a source: list it, and turn its entries into nodes in path order. File data that comes with the entries (tar
 * shards) is written to the image at once. A hard link in an archive becomes another name of the file it refers to.
 * Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_INGEST_H
#define GRANARY_IMAGEBUILD_INGEST_H

#include "imagebuild/content/content.h"
#include "imagebuild/tar/tar.h"
#include "imagebuild/tree/listing.h"

/* All pointers are the caller's. */
struct ingest_config {
    struct source *source;
    struct listing_options listing;
    struct known_shards *known; /* the parent's shards, as the source knows them (source_set_known); NULL: none */
    uint64_t parent_size;       /* bytes of the image that `known` describes */
    /* Where file data that comes with the listing is written; NULL: it is not written. */
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    int (*listed)(void *arg); /* called after every entry; non-zero ends the run */
    /* Called between any two pieces of work, with the files and bytes done since the last call; non-zero ends the
     * run. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *arg;
};

struct ingest_result {
    struct nodes *nodes; /* as listed; owned by the caller. Files whose data was written are NODE_KEEP */
    struct listing_stats stats;
    uint64_t written_end; /* content_stream_end; 0: no data was written */
    struct content_stream_counts written;
};

/* List the whole source. Memory: that of the listing, archive_index.h and content.h, and upon a parent that of
 * live_map.h. Returns 0 or -errno with a sentence: -EINVAL for names that an image cannot have, -EBADMSG for damaged
 * archives, others from source, sink and callbacks. */
GR_MUST_CHECK int ingest_run(const struct ingest_config *config, struct ingest_result *out);

#endif
