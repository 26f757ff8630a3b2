/* Files of a source, one behind the other, read ahead in blocks by several threads and handed on in order: what a
 * stream of bytes from far away needs to fill a link. Memory: SHARD_BLOCK bytes, twice for each thread.
 *
 * One thread reads; it alone calls everything here.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_SHARD_READER_H
#define GRANARY_IMAGEBUILD_TAR_SHARD_READER_H

#include "imagebuild/source/source.h"

enum { SHARD_BLOCK = 4 << 20 };

/* A file to be read, as it was listed; strings are the caller's. */
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

GR_MUST_CHECK int shard_reader_start(const struct shard_reader_config *config, struct shard_reader **out);
/* Begin the next file, the first one at first; what is left of the one before is passed over. 1: *out is it, 0: there
 * is none, or -errno. */
GR_MUST_CHECK int shard_reader_begin(struct shard_reader *r, const struct shard **out);
/* The next bytes of the file, valid until the next call; len 0: its end. -ESTALE: it changed. */
GR_MUST_CHECK int shard_reader_next(struct shard_reader *r, const void **data, size_t *len);
/* When not all was read, cancels what the source has running. NULL is allowed. */
void shard_reader_stop(struct shard_reader *r);

#endif
