/* What `granary verify` does with a source at hand: rebuild damaged packs from it, and compare an image with it. */
#ifndef GRANARY_IMAGEBUILD_CHECK_CHECK_H
#define GRANARY_IMAGEBUILD_CHECK_CHECK_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

/* ---- repair (repair.c) ---- */

/* Rebuild damaged or missing packs from their remaining bytes and from the source.
 *
 * A pack is named by the SHA-256 of its bytes. A rebuilt pack must have exactly the same bytes, or it is not put.
 * Intact chunks are copied from the damaged pack. The others are assembled from the files that lie in them, checked
 * against the chunk's digest, and compressed as they were.
 */

enum {
    REPAIR_PACKS_MAX = 1024,       /* per call; the next run takes the rest */
    REPAIR_PACK_BYTES = 256 << 20, /* a longer pack is not rebuilt; builds close one at 32 MiB */
};

struct repair_options {
    unsigned threads; /* chunks assembled at a time; 0: 8 */
    /* Called for each pack that cannot be rebuilt, with a sentence that says why and what to do. NULL is allowed. */
    void (*problem)(void *arg, const char *sentence);
    /* Called now and then from the calling thread, with numbers of packs. NULL is allowed. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* set asynchronously to end with -ECANCELED; NULL is allowed */
};

struct repair_result {
    uint64_t packs, repaired; /* packs that the image uses; of these, repaired */
    uint64_t chunks;          /* assembled from the source */
};

/* Repair those of the `count` named packs that the image refers to. Returns 0 even if some could not be repaired;
 * -errno if the store, the index, the catalog or the source cannot be read, or a put fails; the errors of lease_begin
 * too, since a lease keeps gc from sweeping meanwhile. Memory: 110 bytes for each chunk of these packs, one pack at a
 * time, and three chunks a thread. Blocks; store, manifest and source are the caller's. */
GR_MUST_CHECK int repair_packs(struct store *s, const struct manifest *m, struct source *source,
                               const struct digest *packs, size_t count, const struct repair_options *options,
                               struct repair_result *out);

/* ---- compare an image with its source (verify_source.c) ---- */

/* Compare an image with the source that it was built from: does the source still have the bytes that the catalog has
 * digests of? */

/* SAMPLE: files to compare by default. PIECE: bytes read at a time. */
enum { VERIFY_SOURCE_SAMPLE = 300, VERIFY_SOURCE_PIECE = 1 << 20 };

struct verify_source_options {
    uint64_t sample;  /* approximate number of files to compare, chosen by a hash of image and path; 0: all */
    unsigned threads; /* files read at a time; 0: 8, at most 256 */
    /* Called for each file that has the image's version but other bytes, by any thread, one at a time. NULL is
     * allowed. */
    void (*problem)(void *arg, const char *sentence);
    /* Called now and then from the calling thread. NULL is allowed. */
    void (*progress)(void *arg, uint64_t files, uint64_t files_total, uint64_t bytes);
    void *arg;
    const volatile int *cancel; /* set asynchronously to end with -ECANCELED; NULL is allowed */
};

struct verify_source_result {
    uint64_t files, bytes; /* read and compared */
    uint64_t changed;      /* now of another version; not compared */
    uint64_t removed;      /* no longer in the source */
    uint64_t damaged;      /* of the image's version, but with other bytes */
};

/* Compare the files. Returns 0 whatever the comparison finds; -errno if the source or the catalog cannot be read. A
 * file without a validator whose bytes differ counts as changed. Memory: two paths and a piece a thread, and a catalog
 * page a level. Blocks; store, manifest and source are the caller's. */
GR_MUST_CHECK int verify_source(struct store *s, const struct manifest *m, struct source *source,
                                const struct verify_source_options *options, struct verify_source_result *out);

#endif
