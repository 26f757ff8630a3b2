/* Several sources in one image, each below a directory of its own. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_JOIN_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_JOIN_H

#include "imagebuild/source/source.h"

struct source_part {
    const char *dir; /* where its root stands in the image; slashes around it do not count; "": the root */
    struct source *source;
};

/* The parts' sources are taken over, also on failure. They are listed in the order given. A part that lists something
 * at or below another part's directory, which lies within its own, fails the listing; directories there are passed
 * over. -EINVAL: a directory twice, or one that no filesystem can hold. */
GR_MUST_CHECK int source_join_open(const struct source_part *parts, size_t count, struct source **out);

#endif
