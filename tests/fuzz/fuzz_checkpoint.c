/* The document a build leaves behind for the one that goes on. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "format/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct checkpoint_doc c, again;
    int rc = checkpoint_doc_decode(data, len, &c);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return 0;
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX);
    FUZZ_CHECK(checkpoint_doc_encode(&c, &text) == 0);
    FUZZ_CHECK(checkpoint_doc_decode(text.data, text.len, &again) == 0);
    FUZZ_CHECK(digest_equal(&c.key, &again.key) && c.image.size == again.image.size);
    FUZZ_CHECK(digest_equal(&c.image.content_root, &again.image.content_root));
    return 0;
}
