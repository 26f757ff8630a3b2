/* Find the tar shards that an address means: one ("s3://b/x.tar"), a numbered set ("/d/x-{0000..0099}.tar.gz"), or
 * all below a directory or prefix whose names end in .tar, .tar.gz, .tgz or .tar.zst. One thread. */
#ifndef GRANARY_IMAGEBUILD_TAR_TAR_INTERNAL_H
#define GRANARY_IMAGEBUILD_TAR_TAR_INTERNAL_H

#include "base/vec.h"
#include "imagebuild/source/source_internal.h"
#include "imagebuild/tar/shard_reader.h"

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

#endif
