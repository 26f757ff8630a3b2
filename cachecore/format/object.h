/* Names of what a store holds (docs/reference/format-store.md, "Keys"). */
#ifndef GRANARY_FORMAT_OBJECT_H
#define GRANARY_FORMAT_OBJECT_H

#include "base/digest.h"

enum object_kind { OBJECT_PACK, OBJECT_INDEX, OBJECT_CATALOG, OBJECT_MANIFEST, OBJECT_KINDS };

enum { OBJECT_KEY_MAX = 128 };

/* "packs/ab/ab12…", "indexes/…", "catalogs/…", "manifests/<hex>" (no fan-out directory); returns
 * out. */
char *object_key(enum object_kind kind, const struct digest *name, char out[OBJECT_KEY_MAX]);

/* The opposite: kind and name of an object's key. -EINVAL (no sentence) for any other key. */
GR_MUST_CHECK int object_key_parse(const char *key, enum object_kind *kind, struct digest *name);

/* "packs", "indexes", "catalogs", "manifests": the key's first component, to list by. */
const char *object_kind_prefix(enum object_kind kind);

#endif
