/* A source that has only the paths that a list names (--files-from). Each path is looked up by itself, several at a
 * time: the inner source is not listed, and the list is not held in memory. A directory in the list stands for itself,
 * not for its contents. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_LISTED_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_LISTED_H

#include "imagebuild/source/path_list.h"
#include "imagebuild/source/source.h"

struct source_listed_config {
    unsigned threads;    /* concurrent lookups; 0: 8 */
    bool ignore_missing; /* leave out paths that the source does not have; otherwise the listing fails with -ENOENT
                            after all lookups, with warnings that name the first twenty */
    const volatile int *cancel; /* as in struct source_options; may be NULL */
};

/* Wrap `inner` and `list`, which belong to the new source from now on; on failure both are closed. It can be listed
 * only once, since the list may be a pipe. -ENOTSUP: `inner` has no source_look. -ENOMEM. */
GR_MUST_CHECK int source_listed_open(struct source *inner, struct path_list *list,
                                     const struct source_listed_config *config, struct source **out);

#endif
