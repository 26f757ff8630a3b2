/* What WebHDFS answers: pages of a listing, a status, an exception. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "net/hdfs/webhdfs_internal.h"

static void check_page(const struct webhdfs_page *page, bool listed)
{
    FUZZ_CHECK(webhdfs_page_count(page) || !webhdfs_page_more(page));
    for (size_t i = 0; i < webhdfs_page_count(page); i++) {
        const struct webhdfs_status *s = webhdfs_page_status(page, i);
        FUZZ_CHECK(strlen(s->name) == s->name_len && s->permission <= 07777 && s->size <= INT64_MAX);
        FUZZ_CHECK(s->owner && s->group && s->target);
        FUZZ_CHECK(!listed || (s->name_len && !strchr(s->name, '/') && strcmp(s->name, ".") && strcmp(s->name, "..")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    int (*const decoders[])(const void *, size_t, struct webhdfs_page **) = {webhdfs_list_decode,
                                                                             webhdfs_status_decode};
    for (int i = 0; i < 2; i++) {
        CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
        int rc = decoders[i](data, len, &page);
        FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
        FUZZ_CHECK((rc == 0) == (page != NULL));
        if (page)
            check_page(page, i == 0);
    }
    struct webhdfs_exception e;
    webhdfs_exception_decode(data, len, &e);
    FUZZ_CHECK(strlen(e.name) < sizeof e.name && strlen(e.message) < sizeof e.message && !strpbrk(e.message, "\r\n"));
    return 0;
}
