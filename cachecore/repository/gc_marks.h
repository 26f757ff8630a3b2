/* gc's marks (trash/<digest>) on objects that no image needs, and their removal when a new image comes to need them.
 * Any thread. Errors are the store's. */
#ifndef GRANARY_REPOSITORY_GC_MARKS_H
#define GRANARY_REPOSITORY_GC_MARKS_H

#include "format/object.h"
#include "repository/gc_live.h"
#include "repository/read/digest_map.h"
#include "store/store.h"

#define GC_MARKS_PREFIX "trash/"

/* Write the key of an object's mark, "trash/<digest>", and return out. */
char *gc_mark_key(const struct digest *name, char out[OBJECT_KEY_MAX]);

/* Parse such a key. Return false if it is another one. */
bool gc_mark_key_parse(const char *key, struct digest *out);

/* Remove the marks of these objects. The caller holds a lease, which step renews. If a new image needs them but is
 * abandoned before a gc run sees it, they must not count as unneeded since the time of their old marks. */
GR_MUST_CHECK int gc_unmark(struct store *s, const struct digest_map *names, const struct gc_step *step);

/* The same for all objects of an image that is about to get a tag again. Lists the marks first: if there are none, the
 * image is not walked. */
GR_MUST_CHECK int gc_unmark_image(struct store *s, const struct digest *image, const struct gc_step *step);

/* Check that the parent of an image that is about to be published is still in the store, because the two share chunks.
 * The caller holds a lease that was begun before it looked at the parent. If the parent is marked, the marks of its
 * manifest, packs and index nodes are removed. look: also check that each pack and index node is there; needed if the
 * lease has lapsed or if no tag names the parent. -EAGAIN: something is gone; the sentence names it. Memory: 54 to 107
 * bytes for each object, if the parent is marked or look is set. */
GR_MUST_CHECK int gc_hold_parent(struct store *s, const struct digest *image, bool look, const struct gc_step *step);

#endif
