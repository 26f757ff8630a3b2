/* What of a source goes into the image, under which path, and as whose: a source around another one. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_SHAPE_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_SHAPE_H

#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"

/* Attributes given in place of the source's, for each `have_`. */
struct source_overrides {
    bool have_uid, have_gid, have_file_mode, have_directory_mode, have_mtime;
    uint32_t uid, gid;
    uint32_t file_mode, directory_mode; /* permissions of regular files, of directories */
    int64_t mtime;                      /* seconds; of everything */
};

struct source_shape {
    const struct rules *rules;        /* NULL: everything; the caller keeps them while the source is open */
    const char *strip;                /* what is below this path stands in the image's root; NULL: nothing is stripped.
                                         A path elsewhere fails the listing */
    struct source_overrides override; /* {0}: none */
};

/* inner is taken over, also on failure. */
GR_MUST_CHECK int source_shape_open(struct source *inner, const struct source_shape *shape, struct source **out);

#endif
