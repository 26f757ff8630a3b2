/* All that lies below a local directory, or one path of it. Everything is opened relative to the root's descriptor
 * without following a link, so that whoever may write below it cannot lead the build out of it. Mounts below it are
 * crossed. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_LOCAL_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_LOCAL_WALK_H

#include <sys/stat.h>

#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"

struct local_walk {
    int root;                  /* the directory */
    bool openat2;              /* openat2.h */
    const char *url;           /* for messages */
    const struct rules *rules; /* directories these leave out are neither told nor listed; may be NULL */
    source_visit *visit;
    void *arg;
    struct source_counts *counts; /* of what went away meanwhile */
};

/* Memory: the names of the directories still to visit. */
GR_MUST_CHECK int local_walk_run(const struct local_walk *walk);
/* Tell of one path. -ENOENT without a sentence: it is not there. */
GR_MUST_CHECK int local_walk_look(const struct local_walk *walk, const struct source_ask *ask);

/* Does this error of opening a path mean that nothing is there any more? */
bool local_is_removed(int rc);
/* A file's version, "size-mtime-ctime-inode", times in nanoseconds, all in hex; its length. */
size_t local_validator(const struct stat *st, char out[SOURCE_VALIDATOR_MAX + 1]);
/* Do both have the same? */
bool local_same_version(const struct stat *a, const struct stat *b);

#endif
