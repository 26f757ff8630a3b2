/* What an image consists of: of its files by the catalog, of its chunks by the index, of its packs by the store. */
#ifndef GRANARY_UPKEEP_IMAGE_STATS_H
#define GRANARY_UPKEEP_IMAGE_STATS_H

#include "format/manifest.h"
#include "store/store.h"

/* Class 0: empty files; class n: files of 2^(n-1) to 2^n - 1 bytes. */
enum { IMAGE_SIZE_CLASSES = 65 };

struct image_size_class {
    uint64_t files, bytes;
};

struct image_stats {
    /* the catalog; hard links count once */
    uint64_t files, file_bytes;
    struct image_size_class sizes[IMAGE_SIZE_CLASSES];
    uint64_t contents, content_bytes; /* what several files share counts once */
    uint64_t padding;                 /* zeros behind bodies, up to the next 4096 */
    /* the index */
    uint64_t chunks, holes; /* holes are among chunks */
    uint64_t zstd_chunks;   /* stored compressed */
    uint64_t plain_bytes;   /* of chunks that are not holes */
    uint64_t stored_bytes;
    /* Of plain_bytes: neither body, padding nor in a chunk with metadata. What files that are gone left, and behind the
     * last body of each build the rest of its chunk. A build says the same of its parent (build.h). */
    uint64_t dead_bytes;
    uint64_t index_nodes, index_bytes;
    /* the packs that the index refers to */
    uint64_t packs, pack_bytes;
    uint64_t packs_missing; /* not there */
    uint64_t foreign_bytes; /* of pack_bytes: this image has no use for them, others may */
};

struct image_stats_options {
    unsigned threads; /* that ask for packs; 0: 8 */
    /* Now and then, from the calling thread: catalog entries read of all. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

/* Reads the whole catalog and the whole index, and asks for every pack. Memory: 100 MiB, and 48 bytes a pack; beyond
 * that, 24 bytes a file in the directory for temporary files. */
GR_MUST_CHECK int image_stats(struct store *s, const struct manifest *m, const struct image_stats_options *options,
                              struct image_stats *out);

#endif
