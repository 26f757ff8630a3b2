/* Writing catalog pages. A record stores only the part of its path that differs from the path before it (front coding),
 * numbers are varints, and zstd compresses the whole page.
 *
 * Borders are content-defined. A page ends after an entry whose path hashes to a chosen value, one in
 * CATALOG_PAGE_ENTRIES; every level follows the same rule, with the first path of a child. So pages over an unchanged
 * stretch of paths stay identical, whatever changed elsewhere:
 *
 *   paths   a b c|d e f g|h i      |: the hash of c, and of g, ends a page
 *   + x     a b c|d e x f g|h i    only one page changes
 *
 * A delta is the same page with the records of its base as the prefix of its zstd frame. zstd finds what is the same
 * there by itself, wherever an entry was added or removed.
 *
 * The size limits also end a page, but at that mean number of entries they are rarely reached. Sizes count every path
 * in full, because that is what a reader must hold in memory.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/format_internal.h"

enum {
    CATALOG_ZSTD_LEVEL = 3,
    CATALOG_DELTA_SHARE = 4, /* a delta's object is at most this part of its base's */
};

struct catalog_page_writer {
    unsigned level;
    struct bytes plain; /* the records of this page */
    struct bytes bases; /* of its children; follow the records if one has a base */
    struct bytes last;  /* path of the entry before */
    struct bytes first; /* first path of this page */
    struct bytes done;  /* first path of the page that was finished last; out_child->first points at it */
    uint32_t count, paths_len, extents;
    uint64_t entries; /* level-0 entries in or below this page */
    bool based;       /* a child of this page has a base */
    bool any;         /* an entry was added, in this page or an earlier one: `last` is set */
};

int catalog_path_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t common = GR_MIN(a_len, b_len);
    int order = common ? memcmp(a, b, common) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

const char *catalog_entry_problem(const struct catalog_entry *e)
{
    if (e->path_len > CATALOG_PATH_MAX || e->target_len > CATALOG_PATH_MAX || e->validator_len > CATALOG_VALIDATOR_MAX)
        return "a path, target or validator is too long";
    if (e->mtime_nsec >= 1000000000)
        return "nanoseconds of a second or more";
    if (e->hard_link && e->target_len == 0)
        return "a hard link without the name it stands for";
    if (e->extent_count > CATALOG_EXTENTS_MAX)
        return "too many extents";
    for (uint32_t i = 0; i < e->extent_count; i++)
        if (e->extents[i].len == 0 || e->extents[i].offset > UINT64_MAX - e->extents[i].len)
            return "an empty or wrapping extent";
    return NULL;
}

const char *catalog_child_problem(unsigned level, const struct catalog_child *c)
{
    if (level == 0 || level >= CATALOG_LEVELS_MAX)
        return "level out of bounds";
    if (c->first_len > CATALOG_PATH_MAX)
        return "a path is too long";
    if (digest_is_zero(&c->digest) || c->len == 0 || c->len > CATALOG_OBJECT_MAX || c->entries == 0)
        return "a child without name, length or entries";
    if (!digest_is_zero(&c->base) && (level > 1 || digest_equal(&c->base, &c->digest)))
        return "a child that can have no base";
    return NULL;
}

struct catalog_page_writer *catalog_page_writer_new(unsigned level)
{
    assert(level < CATALOG_LEVELS_MAX);
    struct catalog_page_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->level = level;
    w->plain.max = CATALOG_PAGE_MAX;
    w->bases.max = CATALOG_PAGE_ENTRIES_MAX * (DIGEST_SIZE + 1);
    w->last.max = w->first.max = w->done.max = CATALOG_PATH_MAX;
    return w;
}

void catalog_page_writer_free(struct catalog_page_writer *w)
{
    if (!w)
        return;
    bytes_release(&w->plain);
    bytes_release(&w->bases);
    bytes_release(&w->last);
    bytes_release(&w->first);
    bytes_release(&w->done);
    free(w);
}

/* Append a number in LEB128: 7 bits per byte, the lowest first; the top bit says that more follow. */
static int put_varint(struct bytes *out, uint64_t v)
{
    uint8_t text[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        text[n++] = (uint8_t)(v | 0x80);
    text[n++] = (uint8_t)v;
    return bytes_append(out, text, n);
}

static int put_string(struct bytes *out, const char *text, size_t len)
{
    int rc = put_varint(out, len);
    return rc || !len ? rc : bytes_append(out, text, len);
}

/* Replace a buffer's contents. */
static int replace(struct bytes *b, const char *text, size_t len)
{
    bytes_clear(b);
    return len ? bytes_append(b, text, len) : 0;
}

/* Does the page end after the entry with this path? A CRC is linear, so numbered names would get related values; the
 * multiplication (Knuth's constant) spreads them. */
static bool path_is_border(const char *path, size_t len)
{
    uint32_t spread = crc32c(path, len) * UINT32_C(2654435761);
    return spread / (UINT32_MAX / CATALOG_PAGE_ENTRIES + 1) == CATALOG_PAGE_ENTRIES - 1;
}

/* Append the part of a path that differs from the path before it. The first path of a page is written in full, so that
 * a page can be read without the others. */
static int put_path(struct catalog_page_writer *w, const char *path, size_t len)
{
    size_t shared = 0, limit = w->count ? GR_MIN(len, w->last.len) : 0;
    while (shared < limit && (uint8_t)path[shared] == w->last.data[shared])
        shared++;
    int rc = put_varint(&w->plain, shared);
    if (!rc)
        rc = put_string(&w->plain, shared ? path + shared : path, len - shared);
    return rc;
}

/* Append an entry's record after its path; catalog_page_take_entry reads it in the same order. */
static int catalog_write_put_entry(struct bytes *out, const struct catalog_entry *e)
{
    bool has_content = !digest_is_zero(&e->content);
    unsigned flags = (has_content ? CATALOG_HAS_CONTENT : 0) | (e->target_len ? CATALOG_HAS_TARGET : 0) |
                     (e->hard_link ? CATALOG_HARD_LINK : 0) | (e->extent_count ? CATALOG_HAS_EXTENTS : 0);
    /* zigzag coding, so that times before 1970 stay short */
    uint64_t mtime = (uint64_t)e->mtime << 1 ^ (uint64_t)(e->mtime >> 63);
    const uint64_t numbers[] = {flags, e->mode, e->uid, e->gid, e->size, mtime, e->mtime_nsec};
    int rc = 0;
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(numbers); i++)
        rc = put_varint(out, numbers[i]);
    if (!rc)
        rc = put_string(out, e->validator, e->validator_len);
    if (!rc && has_content)
        rc = bytes_append(out, e->content.b, DIGEST_SIZE);
    if (!rc && e->target_len)
        rc = put_string(out, e->target, e->target_len);
    if (!rc && e->extent_count)
        rc = put_varint(out, e->extent_count);
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        rc = put_varint(out, e->extents[i].offset);
        if (!rc)
            rc = put_varint(out, e->extents[i].len);
    }
    return rc;
}

/* Append a child's record after its path. */
static int put_child(struct bytes *out, const struct catalog_child *c)
{
    int rc = bytes_append(out, c->digest.b, DIGEST_SIZE);
    uint8_t crc[4];
    le32_put(crc, c->crc);
    if (!rc)
        rc = put_varint(out, c->len);
    if (!rc)
        rc = bytes_append(out, crc, sizeof crc);
    if (!rc)
        rc = put_varint(out, c->entries);
    return rc;
}

/* Append a child's base: whether it has one, and its name. */
static int put_base(struct bytes *out, const struct digest *base)
{
    bool has_base = !digest_is_zero(base);
    int rc = put_varint(out, has_base);
    return rc || !has_base ? rc : bytes_append(out, base->b, DIGEST_SIZE);
}

/* Is there no room for another record, however long? Room for a base counts whether a child has one or not, so that
 * borders depend on paths alone. */
static bool is_filled(const struct catalog_page_writer *w)
{
    size_t bases = w->level == 1 ? w->count * (size_t)(DIGEST_SIZE + 1) : 0;
    return w->count == CATALOG_PAGE_ENTRIES_MAX ||
           w->plain.len + bases + w->paths_len + CATALOG_RECORD_MAX > CATALOG_PAGE_MAX;
}

/* Begin a record: check that its path comes after the last one and that the page has room, and write the path. */
static int begin_record(struct catalog_page_writer *w, const char *path, size_t len)
{
    if (w->any && catalog_path_compare((char *)w->last.data, w->last.len, path, len) >= 0)
        return error_set(-EINVAL, "catalog: \"%.*s\" does not come after \"%.*s\"", (int)GR_MIN(len, 200), path,
                         (int)GR_MIN(w->last.len, 200), (char *)w->last.data);
    if (is_filled(w))
        return error_set(-EINVAL, "catalog: a full page was not finished");
    return put_path(w, path, len);
}

/* End a record: remember its path, and decide whether the page ends here. */
static int end_record(struct catalog_page_writer *w, const char *path, size_t len, bool *out_full)
{
    int rc = replace(&w->last, path, len);
    if (!rc && w->count == 0)
        rc = replace(&w->first, path, len);
    if (rc)
        return rc;
    w->any = true;
    w->count++;
    w->paths_len += (uint32_t)len;
    *out_full = path_is_border(path, len) || is_filled(w);
    return 0;
}

int catalog_page_add(struct catalog_page_writer *w, const struct catalog_entry *e, bool *out_full)
{
    assert(w->level == 0);
    const char *problem = catalog_entry_problem(e);
    if (problem)
        return error_set(-EINVAL, "catalog: \"%.*s\": %s", (int)GR_MIN(e->path_len, 200), e->path, problem);
    size_t before = w->plain.len;
    int rc = begin_record(w, e->path, e->path_len);
    if (!rc && catalog_write_put_entry(&w->plain, e))
        rc = error_no_memory();
    if (!rc)
        rc = end_record(w, e->path, e->path_len, out_full);
    if (rc) {
        w->plain.len = before;
        return rc;
    }
    w->extents += e->extent_count;
    w->entries++;
    return 0;
}

int catalog_page_add_child(struct catalog_page_writer *w, const struct catalog_child *c, bool *out_full)
{
    assert(w->level > 0);
    const char *problem = catalog_child_problem(w->level, c);
    if (problem)
        return error_set(-EINVAL, "catalog: \"%.*s\": %s", (int)GR_MIN(c->first_len, 200), c->first, problem);
    size_t before = w->plain.len, bases = w->bases.len;
    int rc = begin_record(w, c->first, c->first_len);
    if (!rc && (put_child(&w->plain, c) || put_base(&w->bases, &c->base)))
        rc = error_no_memory();
    if (!rc)
        rc = end_record(w, c->first, c->first_len, out_full);
    if (rc) {
        w->plain.len = before;
        w->bases.len = bases;
        return rc;
    }
    w->based |= !digest_is_zero(&c->base);
    w->entries += c->entries;
    return 0;
}

/* Append the page's header to out. */
static int put_header(const struct catalog_page_writer *w, unsigned version, struct bytes *out)
{
    uint8_t *p;
    int rc = bytes_extend(out, CATALOG_HEADER, &p);
    if (rc)
        return error_set(rc, "catalog: no room for a page");
    memcpy(p, CATALOG_MAGIC, 4);
    p[4] = (uint8_t)version;
    p[5] = (uint8_t)w->level;
    le32_put(p + 8, w->count);
    le32_put(p + 12, (uint32_t)w->plain.len);
    le32_put(p + 16, w->paths_len);
    le32_put(p + 20, w->extents);
    return 0;
}

/* Append the page's object to out. */
static int put_page(struct catalog_page_writer *w, struct bytes *out)
{
    size_t records = w->plain.len;
    if (w->based && bytes_append(&w->plain, w->bases.data, w->bases.len))
        return error_no_memory();
    int rc = put_header(w, w->based ? CATALOG_VERSION_DELTA : CATALOG_VERSION, out);
    /* Data that zstd cannot compress grows by at most len / 256 and a few bytes. */
    if (!rc)
        rc = zstd_frame_encode(w->plain.data, w->plain.len, CATALOG_ZSTD_LEVEL,
                               w->plain.len + w->plain.len / 128 + 1024, out);
    w->plain.len = records;
    return rc == -EMSGSIZE ? error_set(rc, "catalog: no room for a page") : rc;
}

/* Append the page's object as a delta. -EMSGSIZE: it would be too long; there may be no sentence. */
static int put_delta(const struct catalog_page_writer *w, const struct catalog_base *base, struct bytes *out)
{
    const struct zstd_prefix prefix = {base->records, base->records_len};
    size_t most = base->object_len / CATALOG_DELTA_SHARE;
    if (most <= CATALOG_HEADER)
        return -EMSGSIZE;
    int rc = put_header(w, CATALOG_VERSION_DELTA, out);
    return rc ? rc
              : zstd_frame_encode_upon(prefix, w->plain.data, w->plain.len, ZSTD_UPON_LEVEL, most - CATALOG_HEADER,
                                       out);
}

/* Describe the page and start the next one. */
static void end_page(struct catalog_page_writer *w, const struct digest *name, size_t len, uint32_t crc,
                     struct catalog_child *out_child)
{
    /* Keep the first path alive for out_child, and reuse the older buffer for the next page. */
    struct bytes swap = w->done;
    w->done = w->first;
    w->first = swap;
    *out_child = (struct catalog_child){
        .first = w->done.len ? (const char *)w->done.data : "",
        .first_len = w->done.len,
        .digest = *name,
        .len = (uint32_t)len,
        .crc = crc,
        .entries = w->entries,
    };
    bytes_clear(&w->plain);
    bytes_clear(&w->bases);
    w->count = w->paths_len = w->extents = 0;
    w->entries = 0;
    w->based = false;
}

/* The same, of the page whose object begins at `before` of out. */
static void end_put(struct catalog_page_writer *w, const struct bytes *out, size_t before,
                    struct catalog_child *out_child)
{
    const uint8_t *object = out->data + before;
    const size_t len = out->len - before;
    const struct digest name = digest_of(object, len);
    end_page(w, &name, len, crc32c(object, len), out_child);
}

int catalog_page_finish(struct catalog_page_writer *w, struct bytes *out, struct catalog_child *out_child)
{
    if (w->count == 0)
        return error_set(-EINVAL, "catalog: a page without entries");
    size_t before = out->len;
    int rc = put_page(w, out);
    if (rc)
        out->len = before;
    else
        end_put(w, out, before, out_child);
    return rc;
}

/* Has the page the records of base? Then it has its number of entries, too. */
static bool is_same(const struct catalog_page_writer *w, const struct catalog_base *base)
{
    return base->records_len == w->plain.len && !memcmp(base->records, w->plain.data, w->plain.len);
}

int catalog_page_finish_upon(struct catalog_page_writer *w, const struct catalog_base *base, struct bytes *out,
                             struct catalog_child *out_child)
{
    assert(w->level == 0);
    if (w->count == 0)
        return catalog_page_finish(w, out, out_child);
    if (is_same(w, base)) { /* not compressed again: another version of zstd gives other bytes */
        end_page(w, &base->name, base->object_len, base->object_crc, out_child);
        return 0;
    }
    size_t before = out->len;
    int rc = put_delta(w, base, out);
    if (rc)
        out->len = before;
    if (rc == -EMSGSIZE)
        return catalog_page_finish(w, out, out_child);
    if (rc)
        return rc;
    end_put(w, out, before, out_child);
    out_child->base = base->name;
    return 0;
}

const char *catalog_page_last(const struct catalog_page_writer *w, size_t *out_len)
{
    *out_len = w->last.len;
    return w->last.len ? (const char *)w->last.data : "";
}
