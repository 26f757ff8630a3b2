/* A reference that parses holds a valid name, and written out in full it parses to the same. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/image_ref.h"
#include "format/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct image_ref ref = {.by_digest = false}, again = {.by_digest = false};
    struct digest name;
    enum object_kind kind;
    CLEANUP_FREE char *text = strndup((const char *)data, len);
    FUZZ_CHECK(text);
    (void)!object_key_parse(text, &kind, &name);
    int rc = image_ref_parse_store(text, &ref);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    rc = image_ref_parse(text, &ref);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    if (rc)
        return 0;
    FUZZ_CHECK(image_ref_check_name("image name", ref.name) == 0);
    char full[IMAGE_REF_MAX];
    FUZZ_CHECK(image_ref_parse(image_ref_text(&ref, full), &again) == 0);
    FUZZ_CHECK(!strcmp(ref.store, again.store) && !strcmp(ref.name, again.name) && !strcmp(ref.tag, again.tag));
    FUZZ_CHECK(ref.by_digest == again.by_digest && digest_equal(&ref.digest, &again.digest));
    return 0;
}
