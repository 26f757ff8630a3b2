/* A subset of a source: the paths a list names, looked at one by one, several at a time, so that neither the source is
 * listed nor the list held in memory. A directory in the list stands for itself, not for what is below it. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_LISTED_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_LISTED_H

#include "imagebuild/source/path_list.h"
#include "imagebuild/source/source.h"

struct source_listed_config {
    unsigned threads;    /* looks at the same time; 0: 8 */
    bool ignore_missing; /* a path that is not there is left out; else the listing fails, naming the first twenty */
    const volatile int *cancel;
};

/* inner and list are taken over, also on failure. -ENOTSUP: this kind of source has no list. It can be listed once. */
GR_MUST_CHECK int source_listed_open(struct source *inner, struct path_list *list,
                                     const struct source_listed_config *config, struct source **out);

#endif
