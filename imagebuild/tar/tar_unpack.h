/* Unpack tar shards: list their members as entries of a source, with their data. Each shard is read once, from begin
 * to end, by libarchive. One thread calls it, while others read ahead (shard_reader.h). */
#ifndef GRANARY_IMAGEBUILD_TAR_TAR_UNPACK_H
#define GRANARY_IMAGEBUILD_TAR_TAR_UNPACK_H

#include "base/digest.h"
#include "imagebuild/tar/shard_reader.h"

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
