/* Packs that are damaged or missing, put together again from what is left of them and from the source.
 *
 * A pack is named by the SHA-256 of its bytes, so either the very same bytes come out or nothing is put. Chunks that
 * are whole in what is left are taken from there; the others are put together from the files of the image that lie in
 * them, compared with the chunk's digest, and compressed as they were.
 */
#ifndef GRANARY_IMAGEBUILD_CHECK_REPAIR_H
#define GRANARY_IMAGEBUILD_CHECK_REPAIR_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

enum {
    REPAIR_PACKS_MAX = 1024,       /* at a time; more are left for the next run */
    REPAIR_PACK_BYTES = 256 << 20, /* a longer pack is not rebuilt: builds close one at 32 MiB */
};

struct repair_options {
    unsigned threads; /* chunks put together at the same time; 0: 8 */
    /* Called for each pack that cannot be rebuilt, with a sentence that says why and what remains; may be NULL. */
    void (*problem)(void *arg, const char *sentence);
    /* Now and then, from the calling thread: packs done of all. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

struct repair_result {
    uint64_t packs, repaired;
    uint64_t chunks; /* that came from the source */
};

/* The packs of these names, of those that the image refers to. 0 whatever could be repaired; -errno when the store, the
 * index, the catalog or the source cannot be read. Memory: 110 bytes for each chunk of these packs, one pack at a time,
 * and three chunks a thread. */
GR_MUST_CHECK int repair_packs(struct store *s, const struct manifest *m, struct source *source,
                               const struct digest *packs, size_t count, const struct repair_options *options,
                               struct repair_result *out);

#endif
