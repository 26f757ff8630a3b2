/* gc's marks on objects that no manifest needs (trash/<digest>), and taking them off what a new image comes to need. */
#ifndef GRANARY_STORE_GC_MARKS_H
#define GRANARY_STORE_GC_MARKS_H

#include "format/object.h"
#include "store/read/digest_map.h"
#include "store/store.h"

#define GC_MARKS_PREFIX "trash/"

/* "trash/<digest>"; returns out. */
char *gc_mark_key(const struct digest *name, char out[OBJECT_KEY_MAX]);

/* The opposite; false: another key. */
bool gc_mark_key_parse(const char *key, struct digest *out);

/* Take the marks off these objects, under a lease: a new image needs them again, and should it be given up before a gc
 * sees it, they must not count as unneeded since their old marks. */
GR_MUST_CHECK int gc_unmark(struct store *s, const struct digest_map *names);

/* The same for everything that this image needs: when it is to be given a name again. Looks for marks first; without
 * any, the image is not walked. */
GR_MUST_CHECK int gc_unmark_image(struct store *s, const struct digest *image);

/* Before an image is published that shares chunks with `image`, its parent, under a lease that was begun before the
 * parent was looked at: is the parent still there? If it is marked, the marks are taken off its packs and index nodes.
 * look: each of those is looked for; for when the lease has lapsed, or no tag named the parent, which may have lost
 * some by then. -EAGAIN naming what is gone. Memory: 54 to 107 bytes an object, when it is marked or looked for. */
GR_MUST_CHECK int gc_hold_parent(struct store *s, const struct digest *image, bool look);

#endif
