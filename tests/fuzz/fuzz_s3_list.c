/* A listing that decodes has sane objects: keys and ETags are strings inside the page, sizes and
 * times in range, and a token that is not empty. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "net/aws/aws_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    int rc = s3_list_decode(data, len, &page);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -EAGAIN);
    FUZZ_CHECK((rc == 0) == (page != NULL));
    if (rc)
        return 0;
    for (size_t i = 0; i < s3_list_page_count(page); i++) {
        const struct s3_object *o = s3_list_page_object(page, i);
        FUZZ_CHECK(o->key_len > 0 && o->key_len <= len && o->key[o->key_len] == 0);
        FUZZ_CHECK(strlen(o->etag) <= len && !strpbrk(o->etag, "\r\n"));
        FUZZ_CHECK(o->size <= INT64_MAX && o->mtime_nsec < 1000000000);
    }
    const char *token = s3_list_page_token(page);
    FUZZ_CHECK(!token || *token);
    return 0;
}
