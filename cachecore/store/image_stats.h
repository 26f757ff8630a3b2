/* What an image consists of, counted from its index. */
#ifndef GRANARY_STORE_IMAGE_STATS_H
#define GRANARY_STORE_IMAGE_STATS_H

#include "format/manifest.h"
#include "store/store.h"

struct image_stats {
    uint64_t chunks, holes; /* holes are among chunks */
    uint64_t zstd_chunks;   /* stored compressed */
    uint64_t plain_bytes;   /* of chunks that are not holes */
    uint64_t stored_bytes;
    uint64_t packs, pack_bytes; /* pack_bytes: the packs' least lengths */
    uint64_t index_nodes, index_bytes;
};

/* Walks the whole index. */
GR_MUST_CHECK int image_stats(struct store *s, const struct manifest *m, struct image_stats *out);

#endif
