/* Object keys: <kind>/<first two hex digits>/<hex>. The fan-out directory keeps directories of a file store small;
 * there are few manifests, so their keys have none.
 */
#include "format/object.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const prefixes[OBJECT_KINDS] = {
    [OBJECT_PACK] = "packs",
    [OBJECT_INDEX] = "indexes",
    [OBJECT_CATALOG] = "catalogs",
    [OBJECT_MANIFEST] = "manifests",
};

const char *object_kind_prefix(enum object_kind kind)
{
    assert((unsigned)kind < OBJECT_KINDS);
    return prefixes[kind];
}

char *object_key(enum object_kind kind, const struct digest *name, char out[OBJECT_KEY_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    digest_hex(name, hex);
    if (kind == OBJECT_MANIFEST)
        snprintf(out, OBJECT_KEY_MAX, "%s/%s", object_kind_prefix(kind), hex);
    else
        snprintf(out, OBJECT_KEY_MAX, "%s/%.2s/%s", object_kind_prefix(kind), hex, hex);
    return out;
}

int object_key_parse(const char *key, enum object_kind *kind, struct digest *name)
{
    const char *slash = strrchr(key, '/');
    struct digest parsed;
    if (!slash || digest_parse(slash + 1, strlen(slash + 1), &parsed))
        return -EINVAL;
    /* Build the key of each kind and compare: only the one exact spelling of a key is accepted. */
    for (int k = 0; k < OBJECT_KINDS; k++) {
        char expected[OBJECT_KEY_MAX];
        if (!strcmp(object_key((enum object_kind)k, &parsed, expected), key)) {
            *kind = (enum object_kind)k;
            *name = parsed;
            return 0;
        }
    }
    return -EINVAL;
}
