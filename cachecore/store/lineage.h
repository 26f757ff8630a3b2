/* The images an image was built upon, and the newest of a name, as far as the tags of the name know. */
#ifndef GRANARY_STORE_LINEAGE_H
#define GRANARY_STORE_LINEAGE_H

#include "base/vec.h"
#include "format/image_ref.h"
#include "format/tag.h"
#include "store/store.h"

enum { LINEAGE_MAX = 1000 }; /* steps: daily builds of some years */

struct lineage_step {
    struct digest image;
    char tag[IMAGE_TAG_MAX + 1]; /* its oldest; empty: no tag names it any more, and the chain ends here */
    int64_t created;             /* that tag's */
};

struct lineage {
    VEC(struct lineage_step) steps; /* the parent first */
};

void lineage_release(struct lineage *l);
#define CLEANUP_LINEAGE CLEANUP(lineage_release) struct lineage

/* parent: what the tag of the image names; zero: the one that any of the image's tags names. Unchanged sources give the
 * image itself again, which is no step. A store that cannot be listed is an error (-ENOTSUP, -EACCES). */
GR_MUST_CHECK int lineage_read(struct store *s, const char *name, const struct digest *image,
                               const struct digest *parent, struct lineage *out);

/* The newest image of the name that was built from that source (struct tag): of the tag with the latest time; of one
 * second, the image that was built upon the others. *out_tag: one of its tags, a given one rather than a build's.
 * -ENOENT: there is none. */
GR_MUST_CHECK int lineage_newest(struct store *s, const char *name, const struct digest *source,
                                 char out_tag[IMAGE_TAG_MAX + 1], struct tag *out);

#endif
