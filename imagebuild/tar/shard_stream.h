/* The bytes of the tar in a shard: the file as it is, or decompressed. Compressed data is verified by the format's
 * checksums only when the end is reached, so a shard must be read to its end even if less is needed. One thread. */
#ifndef GRANARY_IMAGEBUILD_TAR_SHARD_STREAM_H
#define GRANARY_IMAGEBUILD_TAR_SHARD_STREAM_H

#include "base/cleanup.h"
#include "imagebuild/tar/tar_internal.h"

struct shard_stream;

/* -ENOMEM. The reader is the caller's and outlives the stream. */
GR_MUST_CHECK int shard_stream_new(struct shard_reader *reader, struct shard_stream **out);
void shard_stream_free(struct shard_stream *s); /* NULL is allowed; the reader is the caller's */
DEFINE_CLEANUP(shard_stream, struct shard_stream *, shard_stream_free)

/* The reader has begun a file of this kind. -ENOMEM. */
GR_MUST_CHECK int shard_stream_begin(struct shard_stream *s, enum shard_kind kind);
/* Deliver the next bytes, valid until the next call; len 0: the end. -EBADMSG: damaged; the sentence says only why.
 * Others as from shard_reader_next. */
GR_MUST_CHECK int shard_stream_next(struct shard_stream *s, const void **data, size_t *len);

#endif
