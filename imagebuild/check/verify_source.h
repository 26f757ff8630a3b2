/* Compare an image with the source that it was built from: does the source still have the bytes that the catalog has
 * digests of? */
#ifndef GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H
#define GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

/* SAMPLE: a usual number of files. PIECE: bytes read at a time. */
enum { VERIFY_SOURCE_SAMPLE = 300, VERIFY_SOURCE_PIECE = 1 << 20 };

struct verify_source_options {
    uint64_t sample;  /* files to compare, about: chosen by a hash of image and path, so always the same ones; 0: all */
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

/* Compare. 0, whatever was found; -errno if source or catalog cannot be read. A file whose source names no versions
 * (no validator), and whose bytes differ, counts as changed. Memory: two paths and a piece a thread, and a catalog
 * page a level. Blocks; store, manifest and source are the caller's. */
GR_MUST_CHECK int verify_source(struct store *s, const struct manifest *m, struct source *source,
                                const struct verify_source_options *options, struct verify_source_result *out);

#endif
