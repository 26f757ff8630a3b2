/* The chain of parents of an image, and the newest image of a name, as far as the tags of that name record them. */
#ifndef GRANARY_REPOSITORY_LINEAGE_H
#define GRANARY_REPOSITORY_LINEAGE_H

#include "base/vec.h"
#include "format/image_ref.h"
#include "format/tag.h"
#include "store/store.h"

enum { LINEAGE_MAX = 1000 }; /* steps; several years of daily builds */

/* One ancestor of an image. */
struct lineage_step {
    struct digest image;
    char tag[IMAGE_TAG_MAX + 1]; /* its oldest tag; empty: no tag names it any more, and the chain ends here */
    int64_t created;             /* seconds since the epoch, of that tag */
};

/* A chain of ancestors; starts as all zero. */
struct lineage {
    VEC(struct lineage_step) steps; /* the parent first */
};

void lineage_release(struct lineage *l);
#define CLEANUP_LINEAGE CLEANUP(lineage_release) struct lineage

/* Append the ancestors of `image` to out, the parent first. parent: what the image's tag names, or zero for the one
 * that any of the image's tags names. A build from unchanged sources gives the same image again, which is not a step.
 * Errors are those of repository_tags, including -ENOTSUP or -EACCES for a store that cannot be listed; -ENOMEM. */
GR_MUST_CHECK int lineage_read(struct store *s, const char *name, const struct digest *image,
                               const struct digest *parent, struct lineage *out);

/* Find the newest image of the name that was built from that source (struct tag): the one of the tag with the latest
 * time; within one second, the image that was built upon the others. out_tag gets one of its tags, preferably not a
 * build's. -ENOENT: there is none. Otherwise errors of repository_tags. */
GR_MUST_CHECK int lineage_newest(struct store *s, const char *name, const struct digest *source,
                                 char out_tag[IMAGE_TAG_MAX + 1], struct tag *out);

#endif
