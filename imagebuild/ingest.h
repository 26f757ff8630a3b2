/* What a source lists on its way to nodes in path order: paths into the listing, bodies that come with them into the
 * image, hard links of archives to the files they name. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_INGEST_H
#define GRANARY_IMAGEBUILD_INGEST_H

#include "imagebuild/content/content_stream.h"
#include "imagebuild/tar/known_shards.h"
#include "imagebuild/tree/listing.h"

struct ingest_config {
    struct source *source;
    struct listing_options listing;
    struct known_shards *known; /* of the parent, which the source was told of; NULL: there is none */
    uint64_t parent_size;       /* of the image that known knows */
    /* Where bodies that come with the listing are written; NULL: they are not. */
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    int (*listed)(void *arg); /* behind every entry; not 0 ends it */
    /* Between any two pieces of work on bodies, with the bytes done since the last call; not 0 ends it. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *arg;
};

struct ingest_result {
    struct nodes *nodes; /* as listed, the caller's; files whose bodies were written are NODE_KEEP */
    struct listing_stats stats;
    uint64_t written_end; /* content_stream_end */
    struct content_stream_counts written;
};

/* List all of the source. Memory: that of the listing, of archive_index.h and content_stream.h, and upon a parent
 * live_map.h. */
GR_MUST_CHECK int ingest_run(const struct ingest_config *config, struct ingest_result *out);

#endif
