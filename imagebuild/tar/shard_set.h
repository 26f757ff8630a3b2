/* Which tar shards an address means: one ("s3://b/x.tar"), a numbered set ("/d/x-{0000..0099}.tar.gz"), or all whose
 * names end in .tar, .tar.gz, .tgz or .tar.zst below a directory or prefix. */
#ifndef GRANARY_IMAGEBUILD_TAR_SHARD_SET_H
#define GRANARY_IMAGEBUILD_TAR_SHARD_SET_H

#include "base/vec.h"
#include "imagebuild/source/source_kinds.h"
#include "imagebuild/tar/shard_reader.h"

enum shard_kind { SHARD_NONE, SHARD_TAR, SHARD_GZIP, SHARD_ZSTD };

/* By the name's end; *out_stem: the length without it. */
enum shard_kind shard_kind(const char *path, size_t len, size_t *out_stem);

/* What the validators of its members begin with: SOURCE_SHARD_KEY, 32 digits, a colon; empty: the shard has no version.
 * choice: a digest of all that decides what members become. */
GR_MUST_CHECK int shard_key(const struct digest *choice, const struct shard *shard, char out[SOURCE_SHARD_KEY_LEN + 1]);

struct shard_set {
    struct source *source;    /* where they lie */
    VEC(struct shard) shards; /* by their paths, ascending */
    char *pattern;            /* below the source, with its braces; NULL: all there are */
};

/* Opens the source alone; nothing is looked at yet. -EINVAL: braces that are no range of numbers. */
GR_MUST_CHECK int shard_set_open(const char *address, const struct source_options *options, source_opener *open,
                                 struct shard_set *out);
/* Find the shards and their versions. -ENOENT: one that the address names is not there, or there is none at all. */
GR_MUST_CHECK int shard_set_list(struct shard_set *set);
/* Of a set that was opened, or is zero. */
void shard_set_release(struct shard_set *set);

#endif
