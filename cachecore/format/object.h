/* Keys of the content-addressed objects in a store (docs/reference/format-store.md, "Keys"). Any thread. */
#ifndef GRANARY_FORMAT_OBJECT_H
#define GRANARY_FORMAT_OBJECT_H

#include "base/digest.h"

enum object_kind { OBJECT_PACK, OBJECT_INDEX, OBJECT_CATALOG, OBJECT_MANIFEST, OBJECT_KINDS };

enum { OBJECT_KEY_MAX = 128 };

/* Write an object's key; returns out. "packs/ab/ab12...", likewise indexes and catalogs; "manifests/<hex>" has no
 * fan-out directory. */
char *object_key(enum object_kind kind, const struct digest *name, char out[OBJECT_KEY_MAX]);

/* Parse an object's key. -EINVAL (no sentence) for any other key; *kind and *name are unchanged then. */
GR_MUST_CHECK int object_key_parse(const char *key, enum object_kind *kind, struct digest *name);

/* Return the first component of the keys of one kind, for listing: "packs", "indexes", "catalogs" or "manifests". */
const char *object_kind_prefix(enum object_kind kind);

#endif
