/* All that lies below a directory of HDFS, listed by several threads at once, told by the calling one. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_WALK_H

#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"
#include "imagebuild/source/source_retry.h"
#include "net/hdfs/webhdfs.h"

struct hdfs_walk {
    struct webhdfs *client;
    const char *root; /* path of the directory */
    unsigned threads;
    struct source_retry *retry;
    const struct rules *rules; /* directories these leave out are told, but not listed; may be NULL */
    /* An entry and its path, relative to the root. Non-zero ends the walk with that value. */
    int (*visit)(void *arg, const char *path, size_t path_len, const struct webhdfs_status *status);
    void *arg;
    struct source_counts *counts; /* of directories that go away meanwhile */
};

/* Memory: a page (dfs.ls.limit entries, 1,000 by default) a thread
 * and level of the tree. */
GR_MUST_CHECK int hdfs_walk_run(const struct hdfs_walk *walk);

#endif
