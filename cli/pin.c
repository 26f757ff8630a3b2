#include "cli/pin.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "cli/open.h"
#include "cli/options.h"
#include "store/repository.h"

void pin_set(const char *given, const struct image_ref *ref, const struct digest *digest, struct pin *out)
{
    char hex[DIGEST_HEX_SIZE];
    out->given = given;
    out->ref = *ref;
    snprintf(out->text, sizeof out->text, "%s/%s@sha256:%s", ref->store, ref->name, digest_hex(digest, hex));
}

int pin_resolve(const char *given, const char *endpoint, struct pin *out)
{
    struct image_ref ref;
    if (image_ref_parse(given, &ref))
        return CLI_USAGE;
    CLEANUP(cleanup_store) struct store *store = NULL;
    int rc = 0;
    if (!ref.by_digest)
        rc = open_image_store(given, endpoint, &ref, &store);
    if (!rc && !ref.by_digest)
        rc = repository_resolve(store, &ref, &ref.digest, NULL);
    if (!rc)
        pin_set(given, &ref, &ref.digest, out);
    return rc;
}
