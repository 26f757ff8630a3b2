/* What gc may remove: the tags of a store, the objects that they need, and the marks (trash/<digest>) on those that no
 * image needs, which are removed when a new image comes to need them. Used by gc itself, and to protect objects from
 * it. Any thread. Errors are the store's. */
#ifndef GRANARY_REPOSITORY_GC_MARKS_H
#define GRANARY_REPOSITORY_GC_MARKS_H

#include "base/map.h"
#include "base/step.h"
#include "base/vec.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/object.h"
#include "store/store.h"

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
GR_MUST_CHECK int gc_live_add_chunks(struct store *s, const struct manifest *m, const struct step *step,
                                     struct digest_map *live);

/* The same for all objects of the image: manifest, index, packs, catalog. *images (may be NULL) grows by one if the
 * image was not in live. */
GR_MUST_CHECK int gc_live_add_image(struct store *s, const struct digest *image, const struct step *step,
                                    struct digest_map *live, uint64_t *images);

/* The same for the images of all tags that have not expired. -EBADMSG also if an image's object is missing: the
 * sentence names the tag. */
GR_MUST_CHECK int gc_live_add(struct store *s, const struct gc_tags *tags, const struct step *step,
                              struct digest_map *live, uint64_t *images);

/* ---- marks ---- */

#define GC_MARKS_PREFIX "trash/"

/* Write the key of an object's mark, "trash/<digest>", and return out. */
char *gc_mark_key(const struct digest *name, char out[OBJECT_KEY_MAX]);

/* Parse such a key. Return false if it is another one. */
bool gc_mark_key_parse(const char *key, struct digest *out);

/* Remove the marks of these objects. The caller holds a lease, which step renews. If a new image needs them but is
 * abandoned before a gc run sees it, they must not count as unneeded since the time of their old marks. */
GR_MUST_CHECK int gc_unmark(struct store *s, const struct digest_map *names, const struct step *step);

/* The same for all objects of an image that is about to get a tag again. Lists the marks first: if there are none, the
 * image is not walked. */
GR_MUST_CHECK int gc_unmark_image(struct store *s, const struct digest *image, const struct step *step);

/* The same for the packs and index nodes of an image that is still being built. */
GR_MUST_CHECK int gc_unmark_chunks(struct store *s, const struct manifest *m, const struct step *step);

/* Check that the parent of an image that is about to be published is still in the store, because the two share chunks.
 * The caller holds a lease that was begun before it looked at the parent. If the parent is marked, the marks of its
 * manifest, packs and index nodes are removed. look: also check that each pack and index node is there; needed if the
 * lease has lapsed or if no tag names the parent. -EAGAIN: something is gone; the sentence names it. Memory: 54 to 107
 * bytes for each object, if the parent is marked or look is set. */
GR_MUST_CHECK int gc_hold_parent(struct store *s, const struct digest *image, bool look, const struct step *step);

#endif
