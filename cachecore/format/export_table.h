/* What a server needs to start again without its store: for every image it served the reference, the
 * digest and the manifest. Kept in each cache directory (docs/reference/format-cache.md, "Exports").
 *
 * A pure value, no I/O. The entries stand in the order of their use, the latest first.
 */
#ifndef GRANARY_FORMAT_EXPORT_TABLE_H
#define GRANARY_FORMAT_EXPORT_TABLE_H

#include "base/bytes.h"
#include "base/vec.h"
#include "format/image_ref.h"

enum { EXPORT_TABLE_MAX = 1 << 20 /* bytes; about 700 images */ };

/* Behind the path of a server's control socket: the table that the process which resolved the images hands to it. */
#define EXPORT_TABLE_HANDED ".images"

struct export_entry {
    struct image_ref ref;  /* by digest; with a tag: the store said that the tag is this image */
    int64_t resolved;      /* when it said so, seconds since the epoch; 0: no tag */
    struct bytes manifest; /* owned; its SHA-256 is ref.digest */
};

struct export_table {
    uint64_t generation; /* of several copies the one with the highest counts */
    VEC(struct export_entry) entries;
};

void export_table_release(struct export_table *t);
#define CLEANUP_EXPORT_TABLE CLEANUP(export_table_release) struct export_table

/* The entry for a store's name and tag, whatever its digest; NULL: none. */
const struct export_entry *export_table_find_tag(const struct export_table *t, const struct image_ref *ref);
/* The entry of a store's image by its digest, under whatever tag; NULL: none. */
const struct export_entry *export_table_find_image(const struct export_table *t, const char *store,
                                                   const struct digest *image);

/* Put an image in front: ref is by digest. An entry for the same tag (ref without one: for the same
 * image) goes. The manifest is copied. -ENOMEM. */
GR_MUST_CHECK int export_table_put(struct export_table *t, const struct image_ref *ref, int64_t resolved,
                                   const void *manifest, size_t len);

/* Append the text to *out. Entries that do not fit out->max are left out from the end; *out_kept: how
 * many are in. */
GR_MUST_CHECK int export_table_encode(const struct export_table *t, struct bytes *out, size_t *out_kept);
/* Any bytes are safe. *out is valid afterwards only with 0. -EBADMSG, -ENOMEM. */
GR_MUST_CHECK int export_table_decode(const void *data, size_t len, struct export_table *out);

#endif
