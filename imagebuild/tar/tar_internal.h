/* The stages of a source of tar shards (source_tar.c): read, find, decompress, unpack. */
#ifndef GRANARY_IMAGEBUILD_TAR_TAR_INTERNAL_H
#define GRANARY_IMAGEBUILD_TAR_TAR_INTERNAL_H

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/vec.h"
#include "imagebuild/source/source.h"
#include "imagebuild/source/source_internal.h"

/* ---- reading shards ahead (shard_reader.c) ---- */

/* Read files of a source one after the other and deliver their bytes in order. Several threads read blocks ahead, since
 * one request at a time cannot fill a link over a long distance. Memory: 2 * SHARD_BLOCK bytes for each thread.
 *
 * One thread calls all functions here.
 */

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

/* ---- which shards (shard_set.c) ---- */

/* Find the tar shards that an address means: one ("s3://b/x.tar"), a numbered set ("/d/x-{0000..0099}.tar.gz"), or
 * all below a directory or prefix whose names end in .tar, .tar.gz, .tgz or .tar.zst. One thread. */

enum shard_kind { SHARD_NONE, SHARD_TAR, SHARD_GZIP, SHARD_ZSTD };

/* Return the kind of a shard by the end of its name; *out_stem: the length of the name without it. */
enum shard_kind shard_kind(const char *path, size_t len, size_t *out_stem);

/* Write the prefix that the validators of a shard's members share: SOURCE_SHARD_KEY, 32 hex digits, a colon. Empty: the
 * shard has no version. choice: a digest of all options that decide what members become. -ENOMEM. */
GR_MUST_CHECK int shard_key(const struct digest *choice, const struct shard *shard, char out[SOURCE_SHARD_KEY_LEN + 1]);

struct shard_set {
    struct source *source;    /* where the shards lie */
    VEC(struct shard) shards; /* ascending by path */
    char *pattern;            /* name below the source, with its braces; NULL: all shards below it */
};

/* Open the source, without looking for shards yet. -EINVAL: braces that are not a range of numbers; -ENOMEM; errors
 * of `open`. */
GR_MUST_CHECK int shard_set_open(const char *address, const struct source_options *options, source_opener *open,
                                 struct shard_set *out);
/* Find the shards and their versions. -ENOENT: a shard that the address names does not exist, or there are none at
 * all; -ENOMEM; others come from the source. */
GR_MUST_CHECK int shard_set_list(struct shard_set *set);
/* Release a set that was opened or is all zero. */
void shard_set_release(struct shard_set *set);

/* ---- the tar in a shard (shard_reader.c) ---- */

/* The bytes of the tar in a shard: the file as it is, or decompressed. Compressed data is verified by the format's
 * checksums only when the end is reached, so a shard must be read to its end even if less is needed. One thread. */

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

/* ---- unpacking (tar_unpack.c) ---- */

/* Unpack tar shards: list their members as entries of a source, with their data. Each shard is read once, from begin
 * to end, by libarchive. One thread calls it, while others read ahead (shard_reader.c). */

/* All pointers are the caller's. */
struct tar_unpack {
    struct source *source; /* where the shards lie */
    const struct shard *shards;
    size_t count;
    unsigned threads;            /* that read ahead; 0: the default */
    const char *url;             /* the address as given, for messages */
    bool directories;            /* put members below a directory named after their shard */
    const struct digest *choice; /* for shard_key() */
    source_visit *visit;
    void *arg;
    const volatile int *cancel; /* as in struct source_options */
};

/* Visit all members of all shards. -EBADMSG: a shard is damaged; -EINVAL: a member that no image can have;
 * -ECANCELED; the sentences name the shard. Others come from the source and from visit, which ends the run by a
 * non-zero result. */
GR_MUST_CHECK int tar_unpack_run(const struct tar_unpack *config);

#endif
