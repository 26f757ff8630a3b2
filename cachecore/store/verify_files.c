/* One record a file, sorted by address. As bytes pass by, records begin, are fed and end; files
 * that share bytes (same offset and length) share one hasher. A file inside one feed, the common
 * case, is hashed at once and never becomes active.
 */
#include "store/verify_files.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/vec.h"

enum { ACTIVE_MAX = 64 }; /* different files over one byte: one in a sound image */

struct record {
    uint64_t offset, len, entry;
    struct digest content;
};

/* records[first .. first + count): the same bytes */
struct active {
    size_t first, count;
    struct hasher *hasher; /* NULL: bytes were missing */
};

struct verify_files {
    VEC(struct record) records;
    VEC(uint64_t) bad; /* entry numbers */
    struct active active[ACTIVE_MAX];
    size_t active_count, next;
    uint64_t entries, compared;
    size_t bad_cursor;
};

struct verify_files *verify_files_new(void)
{
    return calloc(1, sizeof(struct verify_files));
}

void verify_files_free(struct verify_files *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->active_count; i++)
        hasher_free(f->active[i].hasher);
    vec_release(&f->records);
    vec_release(&f->bad);
    free(f);
}

int verify_files_add(struct verify_files *f, const struct catalog_entry *e)
{
    uint64_t entry = f->entries++;
    if (!S_ISREG(e->mode) || e->hard_link || !e->size)
        return 0;
    if (e->extent_count != 1 || e->extents[0].len < e->size || e->extents[0].offset > UINT64_MAX - e->size)
        return error_set(-EBADMSG, "catalog: '%.*s' has %llu bytes but no extent that holds them", (int)e->path_len,
                         e->path, (unsigned long long)e->size);
    struct record r = {.offset = e->extents[0].offset, .len = e->size, .entry = entry, .content = e->content};
    return vec_push(&f->records, r) ? error_set(-ENOMEM, "out of memory while comparing files") : 0;
}

static int compare_records(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

void verify_files_begin(struct verify_files *f)
{
    if (f->records.len)
        qsort(f->records.items, f->records.len, sizeof *f->records.items, compare_records);
}

static size_t group_count(const struct verify_files *f, size_t first)
{
    const struct record *r = &f->records.items[first];
    size_t n = 1;
    while (first + n < f->records.len && r[n].offset == r->offset && r[n].len == r->len)
        n++;
    return n;
}

/* content NULL: the bytes were not to be had. */
static int judge(struct verify_files *f, size_t first, size_t count, const struct digest *content)
{
    for (size_t i = first; i < first + count; i++) {
        f->compared++;
        if (content && digest_equal(content, &f->records.items[i].content))
            continue;
        if (vec_push(&f->bad, f->records.items[i].entry))
            return error_set(-ENOMEM, "out of memory while comparing files");
    }
    return 0;
}

static void hash_zeros(struct hasher *h, uint64_t len)
{
    static const uint8_t zeros[64 << 10];
    for (uint64_t n; len; len -= n) {
        n = GR_MIN(len, sizeof zeros);
        hasher_update(h, zeros, n);
    }
}

/* Feed an active group the bytes it has in [off, end); *out_ended when they were its last. */
static int feed_one(struct verify_files *f, struct active *a, uint64_t off, uint64_t end, const uint8_t *data,
                    bool *out_ended)
{
    const struct record *r = &f->records.items[a->first];
    uint64_t from = GR_MAX(off, r->offset), to = GR_MIN(end, r->offset + r->len);
    if (a->hasher && data)
        hasher_update(a->hasher, data + (from - off), to - from);
    else if (a->hasher)
        hash_zeros(a->hasher, to - from);
    *out_ended = to == r->offset + r->len;
    if (!*out_ended)
        return 0;
    if (!a->hasher)
        return judge(f, a->first, a->count, NULL);
    struct digest content = hasher_finish(a->hasher);
    return judge(f, a->first, a->count, &content);
}

static int feed_active(struct verify_files *f, uint64_t off, uint64_t end, const uint8_t *data)
{
    for (size_t i = 0; i < f->active_count;) {
        bool ended;
        int rc = feed_one(f, &f->active[i], off, end, data, &ended);
        if (rc)
            return rc;
        if (!ended) {
            i++;
            continue;
        }
        hasher_free(f->active[i].hasher);
        f->active[i] = f->active[--f->active_count];
    }
    return 0;
}

/* Make the group at f->next active. */
static int begin_group(struct verify_files *f)
{
    if (f->active_count == ACTIVE_MAX)
        return error_set(-EBADMSG, "catalog: more than %d different files share one byte", ACTIVE_MAX);
    struct hasher *hasher = hasher_new();
    if (!hasher)
        return error_set(-ENOMEM, "out of memory while comparing files");
    struct active a = {.first = f->next, .count = group_count(f, f->next), .hasher = hasher};
    f->active[f->active_count++] = a;
    f->next += a.count;
    return 0;
}

int verify_files_feed(struct verify_files *f, uint64_t off, uint64_t len, const uint8_t *data)
{
    int rc = feed_active(f, off, off + len, data);
    while (!rc && f->next < f->records.len && f->records.items[f->next].offset < off + len) {
        const struct record *r = &f->records.items[f->next];
        if (data && r->offset >= off && r->offset + r->len <= off + len) {
            struct digest content = digest_of(data + (r->offset - off), r->len);
            size_t count = group_count(f, f->next);
            rc = judge(f, f->next, count, &content);
            f->next += count;
            continue;
        }
        rc = begin_group(f);
        bool ended;
        struct active *a = &f->active[f->active_count - 1];
        if (!rc)
            rc = feed_one(f, a, off, off + len, data, &ended);
        if (!rc && ended) {
            hasher_free(a->hasher);
            f->active_count--;
        }
    }
    return rc;
}

int verify_files_skip(struct verify_files *f, uint64_t off, uint64_t len)
{
    int rc = 0;
    while (!rc && f->next < f->records.len && f->records.items[f->next].offset < off + len)
        rc = begin_group(f);
    for (size_t i = 0; i < f->active_count; i++) {
        hasher_free(f->active[i].hasher);
        f->active[i].hasher = NULL;
    }
    return rc ? rc : feed_active(f, off, off + len, NULL);
}

uint64_t verify_files_compared(const struct verify_files *f)
{
    return f->compared;
}

uint64_t verify_files_bad(const struct verify_files *f)
{
    return f->bad.len;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool verify_files_is_bad(struct verify_files *f, uint64_t entry)
{
    if (!f->bad_cursor && f->bad.len)
        qsort(f->bad.items, f->bad.len, sizeof *f->bad.items, compare_numbers);
    while (f->bad_cursor < f->bad.len && f->bad.items[f->bad_cursor] < entry)
        f->bad_cursor++;
    return f->bad_cursor < f->bad.len && f->bad.items[f->bad_cursor] == entry;
}
