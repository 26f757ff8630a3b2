/* The members of tar shards as entries of a source, bodies with them: each shard is read once, from its begin to its
 * end (libarchive). One thread, but for the reads of the shards ahead.
 */
#ifndef GRANARY_IMAGEBUILD_TAR_TAR_UNPACK_H
#define GRANARY_IMAGEBUILD_TAR_TAR_UNPACK_H

#include "base/digest.h"
#include "imagebuild/tar/shard_reader.h"

struct tar_unpack {
    struct source *source; /* where the shards lie */
    const struct shard *shards;
    size_t count;
    unsigned threads;            /* that read ahead */
    const char *url;             /* for messages: the address as it was given */
    bool directories;            /* members stand below a directory named after their shard */
    const struct digest *choice; /* of shard_key() */
    source_visit *visit;
    void *arg;
    const volatile int *cancel; /* as in struct source_options */
};

/* -EBADMSG: a shard is damaged; -EINVAL: a member that no image can have. Sentences name the shard. */
GR_MUST_CHECK int tar_unpack_run(const struct tar_unpack *config);

#endif
