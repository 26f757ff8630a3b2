/* A manifest that decodes is written again and decodes to the same. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "format/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct manifest m, again;
    memset(&m, 0, sizeof m);
    memset(&again, 0, sizeof again);
    int rc = manifest_decode(data, len, &m);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return 0;
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    FUZZ_CHECK(manifest_encode(&m, &text) == 0);
    FUZZ_CHECK(manifest_decode(text.data, text.len, &again) == 0);
    FUZZ_CHECK(!memcmp(&m, &again, sizeof m));
    return 0;
}
