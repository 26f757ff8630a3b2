/* Read files of a source one after the other and deliver their bytes in order. Several threads read blocks ahead, since
 * one request at a time cannot fill a link over a long distance. Memory: 2 * SHARD_BLOCK bytes for each thread.
 *
 * One thread calls all functions here.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_SHARD_READER_H
#define GRANARY_IMAGEBUILD_TAR_SHARD_READER_H

#include "imagebuild/source/source.h"

enum { SHARD_BLOCK = 4 << 20 }; /* bytes */

/* A file to be read, as listed; strings are the caller's. */
struct shard {
    char *path;
    size_t path_len;
    struct source_version version;
};

struct shard_reader_config {
    struct source *source; /* the caller's */
    const struct shard *shards;
    size_t count;
    unsigned threads; /* 0: 8; at most 16 */
};

struct shard_reader;

/* -ENOMEM; -EAGAIN with a sentence: threads cannot be started. */
GR_MUST_CHECK int shard_reader_start(const struct shard_reader_config *config, struct shard_reader **out);
/* Begin the next file, at first the first one; the rest of the current file is skipped. 1: *out is the file; 0: there
 * are no more; or -errno as from shard_reader_next. */
GR_MUST_CHECK int shard_reader_begin(struct shard_reader *r, const struct shard **out);
/* Deliver the next bytes of the file, valid until the next call; len 0: its end. -ESTALE: it changed; others come
 * from the source. */
GR_MUST_CHECK int shard_reader_next(struct shard_reader *r, const void **data, size_t *len);
/* Stop and free. If not everything was read, the source's reads are cancelled. NULL is allowed. */
void shard_reader_stop(struct shard_reader *r);

#endif
