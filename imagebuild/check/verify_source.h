/* Compare an image with the source that it was built from: does the source still have the bytes that the catalog has
 * digests of? */
#ifndef GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H
#define GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

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
