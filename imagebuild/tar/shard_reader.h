/* Read files of a source one after the other, ahead in blocks by several threads, and deliver the bytes in order: a
 * stream over a long distance needs that to fill a link. Memory: 2 * SHARD_BLOCK bytes for each thread.
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
/* Go on to the next file, or the first; what is left of the current one is passed over. 1: *out is the file; 0: there
 * are no more; or -errno as from shard_reader_next. */
GR_MUST_CHECK int shard_reader_begin(struct shard_reader *r, const struct shard **out);
/* Deliver the next bytes of the file, valid until the next call; len 0: its end. -ESTALE: it changed; others come
 * from the source. */
GR_MUST_CHECK int shard_reader_next(struct shard_reader *r, const void **data, size_t *len);
/* Stop and free. If not everything was read, the source's reads are cancelled. NULL is allowed. */
void shard_reader_stop(struct shard_reader *r);

#endif
