/* A catalog page, in full and as a delta; then the input as the records of one, in full and as a delta, so that the
 * fuzzer need not get through zstd. Everything a decoded page points at is touched. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "format/catalog.h"

#define FUZZ_CATALOG_PATH "the path of the only entry of the base"

/* Read every byte, so that sanitizers see one that is not there. */
static void touch(const void *p, size_t len)
{
    if (len)
        (void)crc32c(p, len);
}

static void touch_entry(const struct catalog_entry *e)
{
    touch(e->path, e->path_len);
    touch(e->validator, e->validator_len);
    touch(e->target, e->target_len);
    for (uint32_t i = 0; i < e->extent_count; i++)
        FUZZ_CHECK(e->extents[i].len > 0 && e->extents[i].offset + e->extents[i].len > e->extents[i].offset);
}

/* The base of all deltas: one entry. */
static const struct catalog_page *the_base(void)
{
    static struct catalog_page *page;
    if (page)
        return page;
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    const struct catalog_entry e = {.path = FUZZ_CATALOG_PATH, .path_len = strlen(FUZZ_CATALOG_PATH), .mode = 0100644};
    struct catalog_child child;
    bool full;
    FUZZ_CHECK(w && !catalog_page_add(w, &e, &full) && !catalog_page_finish(w, &object, &child));
    FUZZ_CHECK(!catalog_page_decode(object.data, object.len, &page));
    return page;
}

static void try_page(const struct catalog_page *base, const uint8_t *data, size_t len)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    int rc = catalog_page_decode_upon(base, data, len, &page);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc)
        return;
    FUZZ_CHECK(catalog_page_count(page) > 0);
    for (uint32_t i = 0; i < catalog_page_count(page); i++) {
        if (catalog_page_level(page)) {
            const struct catalog_child *c = catalog_page_child(page, i);
            touch(c->first, c->first_len);
            FUZZ_CHECK(digest_is_zero(&c->base) || catalog_page_level(page) == 1);
        } else {
            touch_entry(catalog_page_entry(page, i));
        }
    }
}

/* Compress as a delta's records are. */
static size_t compress_upon_base(void *dst, size_t room, const void *records, size_t len)
{
    static ZSTD_CCtx *context;
    const struct catalog_base base = catalog_page_base(the_base(), &(struct digest){0});
    if (!context)
        context = ZSTD_createCCtx();
    FUZZ_CHECK(context && !ZSTD_isError(ZSTD_CCtx_refPrefix(context, base.records, base.records_len)));
    size_t n = ZSTD_compress2(context, dst, room, records, len);
    FUZZ_CHECK(!ZSTD_isError(n));
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    try_page(NULL, data, len);
    try_page(the_base(), data, len);
    /* The first bytes: what the header says; the rest: records, well packed. */
    if (len < 24 || len > 64 << 10)
        return 0;
    uint8_t object[32 + ZSTD_COMPRESSBOUND(64 << 10)];
    memset(object, 0, 32);
    memcpy(object, "GRCT\1", 5);
    object[4] += data[5] & 1;
    object[5] = data[0] % 8;
    le32_put(object + 8, data[1]);
    le32_put(object + 12, (uint32_t)len - 24);
    le32_put(object + 16, le16_get(data + 2));
    le32_put(object + 20, data[4] & 15);
    size_t n = ZSTD_compress(object + 32, sizeof object - 32, data + 24, len - 24, 1);
    FUZZ_CHECK(!ZSTD_isError(n));
    try_page(NULL, object, 32 + n);
    n = compress_upon_base(object + 32, sizeof object - 32, data + 24, len - 24);
    try_page(the_base(), object, 32 + n);
    return 0;
}
