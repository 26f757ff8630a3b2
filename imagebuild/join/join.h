/* A source that is several images of a store: their files, each with the place in the new image where its data lies
 * already, because the images' chunks are taken over as they are. Nothing is read but catalogs and inodes. */
#ifndef GRANARY_IMAGEBUILD_JOIN_JOIN_H
#define GRANARY_IMAGEBUILD_JOIN_JOIN_H

#include "base/spill/scratch.h"
#include "base/step.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/source/source.h"

/* All pointers are the caller's. They outlive what reads the inodes. */
struct inodes_config {
    struct store *store;
    const struct manifest *manifest;
    const char *dir; /* for temporary files; as in struct scratch_config */
    struct step step;
};

/* Copy an image's first block, and after it the region of its metadata, to a scratch of the caller's. Reads ahead.
 * -EBADMSG, -ENOENT: they are damaged; -ENOMEM; others come from the store, the scratch and step. */
GR_MUST_CHECK int inodes_copy_metadata(const struct inodes_config *config, struct scratch **out);

/* All pointers are the caller's and outlive the source. */
struct join_config {
    struct store *store;
    const struct parent_image *images; /* where they lie in the new image: parent_index.h */
    const char *const *at;             /* of each, the directory for its root; "": the new image's root */
    size_t count;
    const char *dir; /* for temporary files; as in struct scratch_config */
    struct step step;
};

/* Check that a directory can be one of `at`: slashes at either end are dropped; -EINVAL. */
GR_MUST_CHECK int join_check_directory(const char *at);

/* Open the source. It can be listed, by one thread, and nothing else. A listing holds in memory a page of the catalog
 * for each level and some ahead, 8 MiB of inodes, a sorter (64 MiB) and a scratch, the attributes of the directories
 * above the current path (erofs), and 40 to 80 bytes for each file of several names. Its errors: -EBADMSG: an image is
 * damaged, or laid out by another program; -ENOMEM; others come from the store, the sorter, step and visit. -ENOMEM. */
GR_MUST_CHECK int join_source_open(const struct join_config *config, struct source **out);

#endif
