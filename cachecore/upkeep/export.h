/* Writing an image out as one file, verified on the way. */
#ifndef GRANARY_UPKEEP_EXPORT_H
#define GRANARY_UPKEEP_EXPORT_H

#include "format/manifest.h"
#include "store/store.h"

struct export_options {
    unsigned threads; /* that read; 0: CHUNK_STREAM_THREADS */
    /* After every chunk, from the calling thread; may be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* may be NULL; -ECANCELED */
};

/* Write the image to path: a sparse file (holes stay holes) that appears under its name only when
 * it is whole and on disk. An existing regular file is replaced; anything else is -EINVAL. */
GR_MUST_CHECK int export_file(struct store *s, const struct manifest *m, const char *path,
                              const struct export_options *options);

/* Write it to a stream, holes as zeros. name: for messages. */
GR_MUST_CHECK int export_stream(struct store *s, const struct manifest *m, int fd, const char *name,
                                const struct export_options *options);

#endif
