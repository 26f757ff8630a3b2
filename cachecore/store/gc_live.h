/* What the tags of a store need: gc's first step. */
#ifndef GRANARY_STORE_GC_LIVE_H
#define GRANARY_STORE_GC_LIVE_H

#include "base/vec.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "store/read/digest_map.h"
#include "store/store.h"

struct gc_tag {
    char name[IMAGE_NAME_MAX + 1], tag[IMAGE_TAG_MAX + 1];
    struct digest image;
    int64_t created;
    bool build_tag; /* the unique one that a build writes: it ends in "-" and 12 digits of the digest */
    bool current;   /* "latest" names the same image */
    bool expired;   /* keep_last removes it */
};

struct gc_tags {
    VEC(struct gc_tag) list; /* in byte order of name, tag */
};

void gc_tags_release(struct gc_tags *tags);
#define CLEANUP_GC_TAGS CLEANUP(gc_tags_release) struct gc_tags

/* Read every tag; with keep_last above 0 mark all but each image's newest build tags as expired. */
GR_MUST_CHECK int gc_tags_read(struct store *s, unsigned keep_last, struct gc_tags *out);

/* Add the names of the image's index nodes and packs; what is in it already is taken as walked. */
GR_MUST_CHECK int gc_live_add_chunks(struct store *s, const struct manifest *m, struct digest_map *live);

/* Add the names of everything the image needs, the manifest's too, likewise. *images (may be NULL) grows by one when
 * the image is new. */
GR_MUST_CHECK int gc_live_add_image(struct store *s, const struct digest *image, struct digest_map *live,
                                    uint64_t *images);

/* Add the name of every object that the tags (expired ones aside) need to live. What is in it
 * already is taken as walked. *images (may be NULL): how many images were added. */
GR_MUST_CHECK int gc_live_add(struct store *s, const struct gc_tags *tags, struct digest_map *live, uint64_t *images);

#endif
