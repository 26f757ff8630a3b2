/* Reading catalog pages. The header announces how much memory the page needs: plain bytes, all paths in full, entries
 * and extents, each within a limit. Everything is allocated once, up front, and a page that needs more or less than it
 * announced is refused. So no input makes the reader allocate step by step or beyond the limits.
 *
 *   object:  header | zstd frame  --decompress-->  plain: record record ...
 *   record:  bytes shared with the path before, rest of the path, numbers, validator, [content], [target], [extents]
 *
 * Validators and targets point into the plain bytes. Paths are put together in full in an arena.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/format_internal.h"

struct catalog_page {
    struct catalog_header header;
    size_t object_len;
    uint32_t object_crc;
    uint8_t *plain;                 /* the decompressed records */
    char *paths;                    /* all paths in full, one after another */
    struct catalog_extent *extents; /* of all entries */
    struct catalog_entry *entries;  /* level 0 */
    struct catalog_child *children; /* level > 0 */
};

/* Reads records. The first failure sticks, and all further reads return zero; so a decoder reads a whole record and
 * checks once. */
struct cursor {
    const uint8_t *p, *end;
    bool failed;
    uint32_t paths_used, extents_used; /* bytes and extents of the page's arrays in use */
    const char *path;                  /* of the record before; NULL: none */
    size_t path_len;
};

static int bad(const char *what)
{
    return error_set(-EBADMSG, "catalog page: %s", what);
}

void catalog_page_free(struct catalog_page *p)
{
    if (!p)
        return;
    free(p->plain);
    free(p->paths);
    free(p->extents);
    free(p->entries);
    free(p->children);
    free(p);
}

unsigned catalog_page_level(const struct catalog_page *p)
{
    return p->header.level;
}

uint32_t catalog_page_count(const struct catalog_page *p)
{
    return p->header.count;
}

const struct catalog_entry *catalog_page_entry(const struct catalog_page *p, uint32_t i)
{
    assert(p->header.level == 0 && i < p->header.count);
    return &p->entries[i];
}

const struct catalog_child *catalog_page_child(const struct catalog_page *p, uint32_t i)
{
    assert(p->header.level > 0 && i < p->header.count);
    return &p->children[i];
}

struct catalog_base catalog_page_base(const struct catalog_page *p, const struct digest *name)
{
    assert(p->header.level == 0 && p->header.version == CATALOG_VERSION);
    return (struct catalog_base){.records = p->plain,
                                 .records_len = p->header.plain_len,
                                 .object_len = p->object_len,
                                 .object_crc = p->object_crc,
                                 .name = *name};
}

/* Take the next n bytes; NULL: the record is cut short. */
static const uint8_t *catalog_page_take(struct cursor *c, size_t n)
{
    if (c->failed || n > (size_t)(c->end - c->p)) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *at = c->p;
    c->p += n;
    return at;
}

/* Take a varint of at most max. Only the shortest form is valid, so that equal pages have equal bytes. */
static uint64_t take_number(struct cursor *c, uint64_t max)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *b = catalog_page_take(c, 1);
        if (!b)
            return 0;
        uint64_t part = *b & 0x7f;
        /* bits beyond the 64th, or a superfluous last byte */
        if (part << shift >> shift != part || (*b == 0 && shift > 0))
            break;
        v |= part << shift;
        if (*b & 0x80)
            continue;
        if (v > max)
            break;
        return v;
    }
    c->failed = true;
    return 0;
}

static const char *catalog_page_take_string(struct cursor *c, size_t max, size_t *out_len)
{
    *out_len = take_number(c, max);
    return (const char *)catalog_page_take(c, *out_len);
}

static void take_digest(struct cursor *c, struct digest *out)
{
    const uint8_t *b = catalog_page_take(c, DIGEST_SIZE);
    if (b)
        memcpy(out->b, b, DIGEST_SIZE);
}

/* Take the next path and put it together in the arena. It must come after the one before it. */
static const char *take_path(struct cursor *c, struct catalog_page *page, size_t *out_len)
{
    size_t suffix_len, shared = take_number(c, c->path_len);
    const char *suffix = catalog_page_take_string(c, CATALOG_PATH_MAX - shared, &suffix_len);
    size_t len = shared + suffix_len;
    if (c->failed || len > page->header.paths_len - c->paths_used) {
        c->failed = true;
        *out_len = 0;
        return NULL;
    }
    char *path = page->paths + c->paths_used;
    if (shared)
        memcpy(path, c->path, shared);
    if (suffix_len)
        memcpy(path + shared, suffix, suffix_len);
    if (c->path && catalog_path_compare(c->path, c->path_len, path, len) >= 0)
        c->failed = true;
    c->paths_used += (uint32_t)len;
    c->path = path;
    c->path_len = len;
    *out_len = len;
    return path;
}

/* Take an entry's extents into the page's array, which has room for as many as the header announced. */
static void take_extents(struct cursor *c, struct catalog_page *page, struct catalog_entry *e)
{
    e->extent_count = (uint32_t)take_number(c, CATALOG_EXTENTS_MAX);
    if (e->extent_count == 0 || e->extent_count > page->header.extents - c->extents_used) {
        c->failed = true;
        e->extent_count = 0;
        return;
    }
    struct catalog_extent *extents = page->extents + c->extents_used;
    for (uint32_t i = 0; i < e->extent_count; i++) {
        extents[i].offset = take_number(c, UINT64_MAX);
        extents[i].len = take_number(c, UINT64_MAX);
    }
    c->extents_used += e->extent_count;
    e->extents = extents;
}

/* Take one entry. A value that its flag announces must not be empty, so that an entry has one encoding only. */
static void catalog_page_take_entry(struct cursor *c, struct catalog_page *page, struct catalog_entry *e)
{
    e->path = take_path(c, page, &e->path_len);
    uint64_t flags = take_number(c, CATALOG_FLAGS);
    e->mode = (uint32_t)take_number(c, UINT32_MAX);
    e->uid = (uint32_t)take_number(c, UINT32_MAX);
    e->gid = (uint32_t)take_number(c, UINT32_MAX);
    e->size = take_number(c, UINT64_MAX);
    uint64_t mtime = take_number(c, UINT64_MAX);
    e->mtime = (int64_t)(mtime >> 1 ^ -(mtime & 1)); /* zigzag */
    e->mtime_nsec = (uint32_t)take_number(c, 999999999);
    e->validator = catalog_page_take_string(c, CATALOG_VALIDATOR_MAX, &e->validator_len);
    if (flags & CATALOG_HAS_CONTENT) {
        take_digest(c, &e->content);
        c->failed |= digest_is_zero(&e->content);
    }
    if (flags & CATALOG_HAS_TARGET) {
        e->target = catalog_page_take_string(c, CATALOG_PATH_MAX, &e->target_len);
        c->failed |= e->target_len == 0;
    }
    e->hard_link = flags & CATALOG_HARD_LINK;
    if (flags & CATALOG_HAS_EXTENTS)
        take_extents(c, page, e);
    if (!c->failed && catalog_entry_problem(e))
        c->failed = true;
}

/* Take one child. */
static void take_child(struct cursor *c, struct catalog_page *page, struct catalog_child *child)
{
    child->first = take_path(c, page, &child->first_len);
    take_digest(c, &child->digest);
    child->len = (uint32_t)take_number(c, UINT32_MAX);
    const uint8_t *crc = catalog_page_take(c, 4);
    child->crc = crc ? le32_get(crc) : 0;
    child->entries = take_number(c, UINT64_MAX);
    if (!c->failed && catalog_child_problem(page->header.level, child))
        c->failed = true;
}

/* Take the children's bases, which follow all of them. At least one has a base, else the page is of the version without
 * bases. */
static void take_bases(struct cursor *c, struct catalog_page *page)
{
    bool any = false;
    for (uint32_t i = 0; i < page->header.count && !c->failed; i++) {
        struct catalog_child *child = &page->children[i];
        if (!take_number(c, 1))
            continue;
        take_digest(c, &child->base);
        any = true;
        c->failed |= digest_is_zero(&child->base) || catalog_child_problem(page->header.level, child);
    }
    c->failed |= !any;
}

/* Decode the header and check that what it announces is within the limits. */
static int decode_header(const uint8_t *p, size_t len, struct catalog_header *h)
{
    if (len < CATALOG_HEADER || memcmp(p, CATALOG_MAGIC, 4))
        return bad("not a catalog page");
    if (p[4] < CATALOG_VERSION || p[4] > CATALOG_VERSION_DELTA)
        return error_set(-EBADMSG,
                         "catalog page: version %u is newer than this program reads (%d): use a newer granary", p[4],
                         CATALOG_VERSION_DELTA);
    h->version = p[4];
    h->level = p[5];
    h->count = le32_get(p + 8);
    h->plain_len = le32_get(p + 12);
    h->paths_len = le32_get(p + 16);
    h->extents = le32_get(p + 20);
    if (h->level >= CATALOG_LEVELS_MAX || le16_get(p + 6) || le64_get(p + 24))
        return bad("level out of bounds or bytes set that must be zero");
    if (h->count == 0 || h->count > CATALOG_PAGE_ENTRIES_MAX || h->plain_len > CATALOG_PAGE_MAX)
        return bad("count or length out of bounds");
    /* an extent takes at least two bytes of the plain text */
    if (h->paths_len > CATALOG_PAGE_MAX || h->extents > h->plain_len / 2 || (h->level && h->extents))
        return bad("paths or extents out of bounds");
    return len <= CATALOG_OBJECT_MAX ? 0 : bad("longer than a page can be");
}

/* calloc that returns NULL only when out of memory, even for n == 0. */
static void *room(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* Allocate everything that the header announces. */
static int allocate(struct catalog_page *page)
{
    const struct catalog_header *h = &page->header;
    page->plain = room(h->plain_len, 1);
    page->paths = room(h->paths_len, 1);
    page->extents = room(h->extents, sizeof *page->extents);
    if (h->level)
        page->children = room(h->count, sizeof *page->children);
    else
        page->entries = room(h->count, sizeof *page->entries);
    if (!page->plain || !page->paths || !page->extents || !(h->level ? (void *)page->children : (void *)page->entries))
        return error_no_memory();
    return 0;
}

/* Decode the records, which must be exactly what the header announced, so that a page has one encoding only. */
static int decode_records(struct catalog_page *page)
{
    const struct catalog_header *h = &page->header;
    struct cursor c = {.p = page->plain, .end = page->plain + h->plain_len};
    for (uint32_t i = 0; i < h->count && !c.failed; i++) {
        if (h->level)
            take_child(&c, page, &page->children[i]);
        else
            catalog_page_take_entry(&c, page, &page->entries[i]);
    }
    if (h->level && h->version == CATALOG_VERSION_DELTA)
        take_bases(&c, page);
    if (c.failed)
        return bad("a record is cut short, out of bounds or out of order");
    if (c.p != c.end || c.paths_used != h->paths_len || c.extents_used != h->extents)
        return bad("more or less in it than its header says");
    return 0;
}

int catalog_page_decode(const void *data, size_t len, struct catalog_page **out)
{
    return catalog_page_decode_upon(NULL, data, len, out);
}

int catalog_page_decode_upon(const struct catalog_page *base, const void *data, size_t len, struct catalog_page **out)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = calloc(1, sizeof *page);
    if (!page)
        return error_no_memory();
    struct catalog_header *h = &page->header;
    int rc = decode_header(data, len, h);
    if (!rc && (h->version == CATALOG_VERSION_DELTA && !h->level) != !!base)
        rc = bad(base ? "not the delta that its parent says it is" : "a delta, which its parent does not say");
    if (!rc)
        rc = allocate(page);
    if (rc)
        return rc;
    assert(!base || (base->header.level == 0 && base->header.version == CATALOG_VERSION));
    /* a page has at least one record, so a prefix is never empty */
    const struct zstd_prefix prefix = {base ? base->plain : NULL, base ? base->header.plain_len : 0};
    const char *why;
    page->object_len = len;
    page->object_crc = crc32c(data, len);
    rc = zstd_frame_decode_upon(prefix, (const uint8_t *)data + CATALOG_HEADER, len - CATALOG_HEADER, page->plain,
                                h->plain_len, &why);
    if (rc)
        return rc == -EBADMSG ? bad(why) : rc;
    rc = decode_records(page);
    if (!rc)
        *out = steal_ptr(&page);
    return rc;
}
