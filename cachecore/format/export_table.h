/* The data that a server needs to restart while its store is unreachable: reference, digest and manifest of each image
 * it served. A copy is kept in each cache directory (docs/reference/format-cache.md, "Exports").
 *
 * No I/O, no lock: one thread at a time. Entries are in order of use, the most recent first.
 */
#ifndef GRANARY_FORMAT_EXPORT_TABLE_H
#define GRANARY_FORMAT_EXPORT_TABLE_H

#include "base/bytes.h"
#include "base/vec.h"
#include "format/image_ref.h"
#include "format/signature.h"

enum { EXPORT_TABLE_MAX = 1 << 20 /* bytes; about 700 images */ };

/* Suffix to the path of a server's control socket: the file by which the process that resolved the images passes this
 * table to the server. */
#define EXPORT_TABLE_HANDED ".images"

struct export_entry {
    struct image_ref ref;  /* by digest; its tag, if any, named this image when the store was asked */
    int64_t resolved;      /* when the store was asked, in seconds since the epoch; 0: no tag */
    struct bytes manifest; /* owned; its SHA-256 is ref.digest */
    char *signature;       /* owned; the tag's, as in struct tag; NULL: none */
};

struct export_table {
    uint64_t generation; /* the copy with the highest generation is the current one */
    VEC(struct export_entry) entries;
};

/* Free all entries. */
void export_table_release(struct export_table *t);
#define CLEANUP_EXPORT_TABLE CLEANUP(export_table_release) struct export_table

/* Find the entry with ref's store, name and tag, whatever its digest; NULL: none. Valid until the next put. */
const struct export_entry *export_table_find_tag(const struct export_table *t, const struct image_ref *ref);
/* Find the entry of a store's image by its digest, whatever its tag; NULL: none. Valid until the next put. */
const struct export_entry *export_table_find_image(const struct export_table *t, const char *store,
                                                   const struct digest *image);

/* Put a copy of an entry in front; its ref is by digest. Removes older entries with the same tag, or, if ref has no
 * tag, one with the same name and digest; those that are signed, and of another image, stay. -ENOMEM; -EMSGSIZE: the
 * manifest is longer than MANIFEST_MAX. */
GR_MUST_CHECK int export_table_put(struct export_table *t, const struct export_entry *e);

/* Append the encoded table to *out. The oldest entries are dropped if they do not fit in out->max; *out_kept: the
 * number of entries written. -EMSGSIZE: not even an empty table fits; -ENOMEM. On failure *out is unchanged. */
GR_MUST_CHECK int export_table_encode(const struct export_table *t, struct bytes *out, size_t *out_kept);
/* Decode a table; any bytes are safe. The caller releases *out, which is set only on success. -EBADMSG, -ENOMEM. */
GR_MUST_CHECK int export_table_decode(const void *data, size_t len, struct export_table *out);

#endif
