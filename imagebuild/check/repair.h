/* Rebuild damaged or missing packs from what is left of them and from the source.
 *
 * A pack is named by the SHA-256 of its bytes, so either the very same bytes come out or nothing is put. Chunks that
 * are whole in what is left are taken from there. The others are assembled from the files of the image that lie in
 * them, proved by the chunk's digest, and compressed as they were.
 */
#ifndef GRANARY_IMAGEBUILD_CHECK_REPAIR_H
#define GRANARY_IMAGEBUILD_CHECK_REPAIR_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

enum {
    REPAIR_PACKS_MAX = 1024,       /* per call; the next run takes the rest */
    REPAIR_PACK_BYTES = 256 << 20, /* a longer pack is not rebuilt; builds close one at 32 MiB */
};

struct repair_options {
    unsigned threads; /* chunks assembled at a time; 0: 8 */
    /* Called for each pack that cannot be rebuilt, with a sentence that says why and what to do. NULL is allowed. */
    void (*problem)(void *arg, const char *sentence);
    /* Called now and then from the calling thread, with packs done and packs in all. NULL is allowed. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* set asynchronously to end with -ECANCELED; NULL is allowed */
};

struct repair_result {
    uint64_t packs, repaired; /* packs that the image uses; of these, repaired */
    uint64_t chunks;          /* assembled from the source */
};

/* Repair those of the named packs that the image refers to. 0, whether or not all could be repaired; -errno if store,
 * index, catalog or source cannot be read, or a put fails. Memory: 110 bytes for each chunk of these packs, one pack
 * at a time, and three chunks a thread. Blocks; store, manifest and source are the caller's. */
GR_MUST_CHECK int repair_packs(struct store *s, const struct manifest *m, struct source *source,
                               const struct digest *packs, size_t count, const struct repair_options *options,
                               struct repair_result *out);

#endif
