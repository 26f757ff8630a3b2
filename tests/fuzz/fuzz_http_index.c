/* Whatever an index page holds, only names of one component come out, and a page that is refused has a sentence. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/source/http_index.h"

static int check(void *arg, const struct http_index_entry *e)
{
    FUZZ_CHECK(e->name_len && !memchr(e->name, '/', e->name_len) && !memchr(e->name, 0, e->name_len));
    FUZZ_CHECK(!(e->name_len == 1 && *e->name == '.') && !(e->name_len == 2 && !memcmp(e->name, "..", 2)));
    FUZZ_CHECK(e->size <= INT64_MAX && !(e->directory && e->size));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    int rc = http_index_decode(data, len, "http://host/a%20b/", check, NULL);
    FUZZ_CHECK(!rc || (rc == -EBADMSG && *error_text()));
    return 0;
}
