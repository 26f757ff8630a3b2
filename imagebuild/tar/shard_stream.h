/* The bytes of the tar in a shard: of the file as it is, or unpacked. What was packed is proved by the checksums of its
 * format once the end was reached; so a shard is to be read to its end, whatever of it is wanted. One thread. */
#ifndef GRANARY_IMAGEBUILD_TAR_SHARD_STREAM_H
#define GRANARY_IMAGEBUILD_TAR_SHARD_STREAM_H

#include "base/cleanup.h"
#include "imagebuild/tar/shard_set.h"

struct shard_stream;

GR_MUST_CHECK int shard_stream_new(struct shard_reader *reader, struct shard_stream **out);
void shard_stream_free(struct shard_stream *s); /* NULL is allowed; the reader is the caller's */
DEFINE_CLEANUP(shard_stream, struct shard_stream *, shard_stream_free)

/* The reader began a file of that kind. */
GR_MUST_CHECK int shard_stream_begin(struct shard_stream *s, enum shard_kind kind);
/* The next bytes, valid until the next call; len 0: the end. -EBADMSG, the sentence saying why alone: damaged. */
GR_MUST_CHECK int shard_stream_next(struct shard_stream *s, const void **data, size_t *len);

#endif
