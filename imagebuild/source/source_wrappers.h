/* A source around another one that decides what goes into the image: it filters paths by rules, strips a prefix from
 * them, and replaces owners, modes and times. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_WRAPPERS_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_WRAPPERS_H

#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"

/* Attributes that replace those of the source, each if its `have_` is set. */
struct source_overrides {
    bool have_uid, have_gid, have_file_mode, have_directory_mode, have_mtime;
    uint32_t uid, gid;
    uint32_t file_mode, directory_mode; /* permissions of regular files, of directories */
    int64_t mtime;                      /* seconds since 1970; of every entry */
};

struct source_shape {
    const struct rules *rules;        /* must outlive the source; NULL: take everything */
    const char *strip;                /* a directory whose contents become the image's root; the listing fails with
                                         -EINVAL if a path that is taken lies elsewhere. NULL: strip nothing */
    struct source_overrides override; /* {0}: none */
};

/* Wrap `inner`, which belongs to the new source from now on; on failure it is closed. -ENOMEM. `strip` is copied. */
GR_MUST_CHECK int source_shape_open(struct source *inner, const struct source_shape *shape, struct source **out);

#endif
