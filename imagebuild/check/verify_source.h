/* Comparing an image with the source it was built from: are the bytes that the catalog vouches for still those of the
 * source?
 */
#ifndef GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H
#define GRANARY_IMAGEBUILD_CHECK_VERIFY_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

enum { VERIFY_SOURCE_SAMPLE = 300, VERIFY_SOURCE_PIECE = 1 << 20 };

struct verify_source_options {
    uint64_t sample;  /* about so many files, spread by a hash of image and path, always the same; 0: all */
    unsigned threads; /* files read at the same time; 0: 8 */
    /* Called for each file whose bytes are not what the image has, though its version is; may be NULL. */
    void (*problem)(void *arg, const char *sentence);
    /* Now and then, from the calling thread. May be NULL. */
    void (*progress)(void *arg, uint64_t files, uint64_t files_total, uint64_t bytes);
    void *arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

struct verify_source_result {
    uint64_t files, bytes; /* read and compared */
    uint64_t changed;      /* of another version now; not compared */
    uint64_t removed;      /* not there any more */
    uint64_t damaged;      /* the version of the image, other bytes */
};

/* A file whose version the source cannot name (no validator) and whose bytes differ counts as changed. 0 whatever was
 * found; -errno when the source or the catalog cannot be read. Memory: two paths and a piece a thread, and a catalog
 * page a level. */
GR_MUST_CHECK int verify_source(struct store *s, const struct manifest *m, struct source *source,
                                const struct verify_source_options *options, struct verify_source_result *out);

#endif
