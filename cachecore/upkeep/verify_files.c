/* Each file is one record, sorted by address on disk. While bytes pass by, contents begin, are fed and end. Files with
 * the same content (equal offset and length) form one group with one hasher:
 *
 *   record -> `ahead` -> `next` (a group) -> active[] while bytes arrive -> judged
 *                              \-> judged at once when all its bytes are in one feed, the common case
 *
 * A group holds only the different digests that its files claim: one, in a sound image. A bad file is found again by
 * the content's actual digest, which is kept for bad contents only. */
#include "upkeep/upkeep_internal.h"

#include <endian.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/spill/sorter.h"
#include "base/vec.h"

enum {
    ACTIVE_MAX = 64,  /* different contents over one byte; one in a sound image */
    CLAIMED_MAX = 64, /* different digests claimed for one content; one in a sound image */
};

/* A file's record; the sorter compares bytes. */
struct key {
    uint64_t offset, len; /* big-endian */
    struct digest content;
};

/* How many files claim that their content has this digest. */
struct claim {
    struct digest content;
    uint64_t files;
};

/* The files of one content. */
struct group {
    uint64_t offset, len;
    struct claim first;
    VEC(struct claim) others;
};

/* A group whose bytes are passing by. */
struct active {
    struct group group;
    struct hasher *hasher; /* NULL: some bytes could not be read */
};

/* A content with at least one bad file. */
struct bad_data {
    uint64_t offset, len;
    struct digest content; /* its actual digest; zero: it could not be read */
};

/* The records, the group that comes next, the groups whose bytes are passing by, and what was bad. */
struct verify_files {
    struct sorter *sorter;
    struct key ahead; /* the record after `next` */
    bool have_ahead, have_next;
    struct group next;
    struct active active[ACTIVE_MAX];
    size_t active_count;
    VEC(struct bad_data) bad;
    bool bad_sorted;
    uint64_t compared, bad_files;
};

int verify_files_new(struct verify_files **out)
{
    struct verify_files *f = calloc(1, sizeof *f);
    if (!f)
        return error_no_memory();
    int rc = sorter_new(&(struct sorter_config){0}, &f->sorter);
    if (rc)
        verify_files_free(f);
    else
        *out = f;
    return rc;
}

static void end_active(struct active *a)
{
    hasher_free(a->hasher);
    vec_release(&a->group.others);
}

void verify_files_free(struct verify_files *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->active_count; i++)
        end_active(&f->active[i]);
    if (f->have_next)
        vec_release(&f->next.others);
    vec_release(&f->bad);
    sorter_free(f->sorter);
    free(f);
}

static bool has_data(const struct catalog_entry *e)
{
    return S_ISREG(e->mode) && !e->hard_link && e->size;
}

int verify_files_add(struct verify_files *f, const struct catalog_entry *e)
{
    if (!has_data(e))
        return 0;
    /* A file with data has exactly one extent. */
    if (e->extent_count != 1 || e->extents[0].len < e->size || e->extents[0].offset > UINT64_MAX - e->size)
        return error_set(-EBADMSG, "catalog: '%.*s' has %llu bytes but no extent that holds them", (int)e->path_len,
                         e->path, (unsigned long long)e->size);
    struct key key = {.offset = htobe64(e->extents[0].offset), .len = htobe64(e->size), .content = e->content};
    return sorter_add(f->sorter, &key, sizeof key, NULL, 0);
}

/* ------------------------------------------------------------------ groups, ascending */

static int verify_files_read_ahead(struct verify_files *f)
{
    struct sorter_record r;
    int rc = sorter_next(f->sorter, &r);
    f->have_ahead = rc > 0;
    if (rc > 0)
        memcpy(&f->ahead, r.key, sizeof f->ahead);
    return GR_MIN(rc, 0);
}

/* Add a file's claim to a group. Records are sorted, so equal digests are neighbours. */
static int add_claim(struct group *g, const struct digest *content)
{
    struct claim *last = g->others.len ? &g->others.items[g->others.len - 1] : &g->first;
    if (digest_equal(&last->content, content)) {
        last->files++;
        return 0;
    }
    if (g->others.len == CLAIMED_MAX)
        return error_set(-EBADMSG, "catalog: more than %d different digests of the same bytes", CLAIMED_MAX);
    struct claim fresh = {.content = *content, .files = 1};
    return vec_push(&g->others, fresh);
}

/* Gather the records of the next group into `next`. */
static int load_next(struct verify_files *f)
{
    int rc = 0;
    f->have_next = f->have_ahead;
    if (!f->have_ahead)
        return 0;
    struct key key = f->ahead;
    f->next = (struct group){.offset = be64toh(key.offset), .len = be64toh(key.len), .first = {.content = key.content}};
    while (!rc && f->have_ahead && f->ahead.offset == key.offset && f->ahead.len == key.len) {
        rc = add_claim(&f->next, &f->ahead.content);
        if (!rc)
            rc = verify_files_read_ahead(f);
    }
    return rc;
}

int verify_files_begin(struct verify_files *f)
{
    int rc = sorter_sort(f->sorter);
    if (!rc)
        rc = verify_files_read_ahead(f);
    return rc ? rc : load_next(f);
}

/* ------------------------------------------------------------------ judging */

/* Compare a group's claims with its actual digest; content NULL: its bytes could not be read. */
static int verify_files_judge(struct verify_files *f, const struct group *g, const struct digest *content)
{
    uint64_t bad = 0;
    for (size_t i = 0; i <= g->others.len; i++) {
        const struct claim *c = i ? &g->others.items[i - 1] : &g->first;
        f->compared += c->files;
        bad += content && digest_equal(content, &c->content) ? 0 : c->files;
    }
    f->bad_files += bad;
    struct bad_data damaged = {.offset = g->offset, .len = g->len};
    if (!bad || f->bad.len == VERIFY_FILES_NAMED_MAX)
        return 0;
    if (content)
        damaged.content = *content;
    return vec_push(&f->bad, damaged);
}

static void hash_zeros(struct hasher *h, uint64_t len)
{
    static const uint8_t zeros[64 << 10];
    for (uint64_t n; len; len -= n) {
        n = GR_MIN(len, sizeof zeros);
        hasher_update(h, zeros, n);
    }
}

/* Feed an active group its bytes in [off, end). *out_ended: these were its last. */
static int feed_one(struct verify_files *f, struct active *a, uint64_t off, uint64_t end, const uint8_t *data,
                    bool *out_ended)
{
    const struct group *g = &a->group;
    uint64_t from = GR_MAX(off, g->offset), to = GR_MIN(end, g->offset + g->len);
    if (a->hasher && data)
        hasher_update(a->hasher, data + (from - off), to - from);
    else if (a->hasher)
        hash_zeros(a->hasher, to - from);
    *out_ended = to == g->offset + g->len;
    if (!*out_ended)
        return 0;
    if (!a->hasher)
        return verify_files_judge(f, g, NULL);
    struct digest content = hasher_finish(a->hasher);
    return verify_files_judge(f, g, &content);
}

/* Feed all active groups and drop those that end. */
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
        end_active(&f->active[i]);
        /* The order does not matter: the last one takes its place. */
        f->active[i] = f->active[--f->active_count];
    }
    return 0;
}

/* Make the next group active. */
static int begin_group(struct verify_files *f)
{
    if (f->active_count == ACTIVE_MAX)
        return error_set(-EBADMSG, "catalog: more than %d different files share one byte", ACTIVE_MAX);
    struct hasher *hasher = hasher_new();
    if (!hasher)
        return error_no_memory();
    f->active[f->active_count++] = (struct active){.group = f->next, .hasher = hasher};
    f->have_next = false; /* its memory now belongs to the active group */
    return load_next(f);
}

/* Judge the next group, all of whose bytes are in this feed. */
static int judge_next(struct verify_files *f, uint64_t off, const uint8_t *data)
{
    struct digest content = digest_of(data + (f->next.offset - off), f->next.len);
    int rc = verify_files_judge(f, &f->next, &content);
    vec_release(&f->next.others);
    f->have_next = false;
    return rc ? rc : load_next(f);
}

/* Begin the next group, which starts in this feed, and feed it. */
static int feed_next(struct verify_files *f, uint64_t off, uint64_t end, const uint8_t *data)
{
    struct active *a = &f->active[f->active_count];
    bool ended;
    int rc = begin_group(f);
    if (!rc)
        rc = feed_one(f, a, off, end, data, &ended);
    if (!rc && ended) {
        end_active(a);
        f->active_count--;
    }
    return rc;
}

int verify_files_feed(struct verify_files *f, uint64_t off, uint64_t len, const uint8_t *data)
{
    int rc = feed_active(f, off, off + len, data);
    while (!rc && f->have_next && f->next.offset < off + len) {
        bool within = data && f->next.offset >= off && f->next.offset + f->next.len <= off + len;
        rc = within ? judge_next(f, off, data) : feed_next(f, off, off + len, data);
    }
    return rc;
}

int verify_files_skip(struct verify_files *f, uint64_t off, uint64_t len)
{
    int rc = 0;
    while (!rc && f->have_next && f->next.offset < off + len)
        rc = begin_group(f);
    for (size_t i = 0; i < f->active_count; i++) {
        /* Without these bytes no digest can match. */
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
    return f->bad_files;
}

static int compare_bad_data(const void *a, const void *b)
{
    const struct bad_data *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

bool verify_files_is_bad(struct verify_files *f, const struct catalog_entry *e)
{
    if (!has_data(e) || !f->bad.len)
        return false;
    if (!f->bad_sorted)
        qsort(f->bad.items, f->bad.len, sizeof *f->bad.items, compare_bad_data);
    f->bad_sorted = true;
    /* A content may have good and bad files: bad are those that claim another digest than the actual one. */
    const struct bad_data key = {.offset = e->extents[0].offset, .len = e->size};
    const struct bad_data *damaged = bsearch(&key, f->bad.items, f->bad.len, sizeof key, compare_bad_data);
    return damaged && !digest_equal(&damaged->content, &e->content);
}
