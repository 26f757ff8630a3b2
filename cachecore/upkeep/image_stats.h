/* Figures of an image: its files from the catalog, its chunks from the index, its packs from the store. */
#ifndef GRANARY_UPKEEP_IMAGE_STATS_H
#define GRANARY_UPKEEP_IMAGE_STATS_H

#include "format/manifest.h"
#include "store/store.h"

/* Size class 0: empty files; class n: files of 2^(n-1) to 2^n - 1 bytes. */
enum { IMAGE_SIZE_CLASSES = 65 };

/* The files of one size class. */
struct image_size_class {
    uint64_t files, bytes;
};

/* The figures. */
struct image_stats {
    /* from the catalog; hard links count once */
    uint64_t files, file_bytes;
    struct image_size_class sizes[IMAGE_SIZE_CLASSES];
    uint64_t contents, content_bytes; /* distinct contents; what several files share counts once */
    uint64_t padding;                 /* zeros after file data, up to the next 4096 */
    /* from the index */
    uint64_t chunks, holes; /* holes are among chunks */
    uint64_t zstd_chunks;   /* stored compressed */
    uint64_t plain_bytes;   /* uncompressed, of chunks that are not holes */
    uint64_t stored_bytes;
    /* Of plain_bytes: neither file data nor padding, and not in a chunk with metadata. Left over from removed files,
     * and in the last data chunk of each build. A build reports the same figure of its parent (build.h). */
    uint64_t dead_bytes;
    uint64_t index_nodes, index_bytes;
    /* the packs that the index refers to */
    uint64_t packs, pack_bytes;
    uint64_t packs_missing; /* missing in the store */
    uint64_t foreign_bytes; /* of pack_bytes: not used by this image, perhaps by others */
};

/* Options of image_stats; all zero is valid. */
struct image_stats_options {
    unsigned threads; /* threads that look up packs; 0: 8 */
    /* Called now and then from the calling thread: catalog entries read, and all. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* Read the whole catalog and the whole index, and look up every pack. -EBADMSG: the image is damaged; -ECANCELED; else
 * the store's errors. Memory: 100 MiB, and 48 bytes for each pack; above that, 24 bytes for each file in the directory
 * for temporary files. */
GR_MUST_CHECK int image_stats(struct store *s, const struct manifest *m, const struct image_stats_options *options,
                              struct image_stats *out);

#endif
