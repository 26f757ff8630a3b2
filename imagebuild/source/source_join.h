/* A source made of several others, each below its own directory of the image (--add). */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_JOIN_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_JOIN_H

#include "imagebuild/source/source.h"

struct source_part {
    const char *dir; /* the image's directory for its root; slashes around it are ignored; "": the image's root */
    struct source *source;
};

/* Join at least one part. Their sources belong to the new source from now on; on failure they are closed. They are
 * listed in the order given. Directories may nest, as data and data/train. The outer part may then list a directory at
 * data/train, which is ignored, but anything else at or below it fails the listing with -EINVAL.
 *
 * -EINVAL: two parts have the same directory, or a directory has a component that no filesystem can hold. -ENOMEM. */
GR_MUST_CHECK int source_join_open(const struct source_part *parts, size_t count, struct source **out);

#endif
