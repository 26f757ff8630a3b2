/* Writes an image out as one file, verified on the way. */
#ifndef GRANARY_UPKEEP_EXPORT_H
#define GRANARY_UPKEEP_EXPORT_H

#include "format/manifest.h"
#include "store/store.h"

/* Options of an export; all zero is valid. */
struct export_options {
    unsigned threads; /* reading threads; 0: CHUNK_STREAM_THREADS */
    /* Called after every chunk from the calling thread, with bytes; may be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* Write the image to path: a sparse file (holes stay holes) that appears under its name only when it is complete and
 * on disk. An existing regular file is replaced. -EINVAL: path is something else; -EBADMSG: the image is damaged;
 * -ECANCELED; else the errors of the store and the filesystem. */
GR_MUST_CHECK int export_file(struct store *s, const struct manifest *m, const char *path,
                              const struct export_options *options);

/* Write the image to a stream, holes as zeros. name appears in messages. Fails like export_file. */
GR_MUST_CHECK int export_stream(struct store *s, const struct manifest *m, int fd, const char *name,
                                const struct export_options *options);

#endif
