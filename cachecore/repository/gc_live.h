/* The tags of a store and the objects that they need: gc's first step, used also to protect an image's objects. */
#ifndef GRANARY_REPOSITORY_GC_LIVE_H
#define GRANARY_REPOSITORY_GC_LIVE_H

#include "base/vec.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "repository/read/digest_map.h"
#include "store/store.h"

/* What long work under a lease calls between any two requests, to renew it: 0, or -errno, which ends the
 * work. */
struct gc_step {
    int (*step)(void *arg); /* NULL: nothing is called */
    void *arg;
};
GR_MUST_CHECK int gc_step_take(const struct gc_step *step);

/* One tag, and whether keep_last removes it. */
struct gc_tag {
    char name[IMAGE_NAME_MAX + 1], tag[IMAGE_TAG_MAX + 1];
    struct digest image;
    int64_t created;
    bool build_tag; /* the unique tag that each build writes: ends in "-" and 12 digits of the digest */
    bool current;   /* the tag "latest" names the same image */
    bool expired;   /* keep_last removes it */
};

/* All tags of a store; starts as all zero. */
struct gc_tags {
    VEC(struct gc_tag) list; /* in byte order of name, tag */
};

void gc_tags_release(struct gc_tags *tags);
#define CLEANUP_GC_TAGS CLEANUP(gc_tags_release) struct gc_tags

/* Read every tag into out, which starts as all zero. With keep_last above 0, mark all but the newest keep_last build
 * tags of each image name as expired. Errors are those of repository_tags. */
GR_MUST_CHECK int gc_tags_read(struct store *s, unsigned keep_last, struct gc_tags *out);

/* Add the names of the image's index nodes and packs to live. A node that is in live already counts as walked, with
 * all below it. After a failure live is incomplete and must be discarded. */
GR_MUST_CHECK int gc_live_add_chunks(struct store *s, const struct manifest *m, const struct gc_step *step,
                                     struct digest_map *live);

/* The same for all objects of the image: manifest, index, packs, catalog. *images (may be NULL) grows by one if the
 * image was not in live. */
GR_MUST_CHECK int gc_live_add_image(struct store *s, const struct digest *image, const struct gc_step *step,
                                    struct digest_map *live, uint64_t *images);

/* The same for the images of all tags that have not expired. -EBADMSG also if an image's object is missing: the
 * sentence names the tag. */
GR_MUST_CHECK int gc_live_add(struct store *s, const struct gc_tags *tags, const struct gc_step *step,
                              struct digest_map *live, uint64_t *images);

#endif
