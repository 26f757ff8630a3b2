/* Everything under one lock; waiting (FAKE_SLOW, hold) without it. */
#include "fake/source_fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/vec.h"
#include "fake/words.h"
#include "imagebuild/source/source_internal.h"

struct version {
    uint64_t size;
    unsigned seed;
};

struct rule {
    uint64_t offset;
    enum fake_action action;
    int rc;
    bool fired;
};

struct fake_file {
    struct source_entry entry; /* pointers owned */
    VEC(struct version) versions;
    VEC(struct rule) rules;
    size_t version;
    bool gone;
    uint64_t kept_below; /* reads that end by here still see the version before */
};

struct source_fake {
    struct source base;
    pthread_mutex_t lock;
    pthread_cond_t released;
    bool held, cancelled, streams;
    uint64_t shorten;
    unsigned order;
    uint64_t in_reads;
    _Atomic size_t found; /* the file that was looked for last */
    struct source_fake_stats stats;
    struct source_counts counts;
    VEC(struct fake_file *) files;
};

static struct source_fake *fake_of(struct source *s)
{
    return (struct source_fake *)s;
}

static void *copy(const void *p, size_t len)
{
    char *c = p ? malloc(len + 1) : NULL;
    if (c) {
        memcpy(c, p, len);
        c[len] = 0;
    }
    return c;
}

static void must(int rc)
{
    if (rc)
        abort();
}

/* From a little before the last one found: most are looked for in the order of the listing, by a few threads. */
static struct fake_file *find(struct source_fake *f, const char *path, size_t len)
{
    size_t last = atomic_load(&f->found), begin = last - GR_MIN(last, (size_t)8);
    for (size_t n = 0; n < f->files.len; n++) {
        size_t i = (begin + n) % f->files.len;
        const struct source_entry *e = &f->files.items[i]->entry;
        if (e->path_len == len && !memcmp(e->path, path, len)) {
            atomic_store(&f->found, i);
            return f->files.items[i];
        }
    }
    return NULL;
}

static struct fake_file *must_find(struct source *s, const char *path)
{
    struct fake_file *file = find(fake_of(s), path, strlen(path));
    if (!file)
        abort();
    return file;
}

static size_t print_version(const struct fake_file *f, char *out, size_t room)
{
    return (size_t)snprintf(out, room, "v%zu-%u", f->version, f->versions.items[f->version].seed);
}

static uint64_t word_at(const void *seed, uint64_t offset)
{
    return (offset >> 3 | (uint64_t) * (const unsigned *)seed << 40) * 0x9E3779B97F4A7C15u;
}

void source_fake_bytes(unsigned seed, uint64_t offset, uint8_t *out, uint64_t len)
{
    words_fill(word_at, &seed, offset, out, len);
}

uint8_t source_fake_byte(unsigned seed, uint64_t offset)
{
    uint8_t byte;
    source_fake_bytes(seed, offset, &byte, 1);
    return byte;
}

/* ------------------------------------------------------------------ the vtable */

struct fake_content {
    struct source_content content;
    unsigned seed;
    uint64_t offset, end;
    uint8_t piece[1000];
};

static int content_next(struct source_content *base, const void **out, size_t *len)
{
    struct fake_content *b = (struct fake_content *)base;
    *len = (size_t)GR_MIN(b->end - b->offset, (uint64_t)sizeof b->piece);
    source_fake_bytes(b->seed, b->offset, b->piece, *len);
    b->offset += *len;
    *out = b->piece;
    return 0;
}

static int list_one(struct source_fake *f, const struct fake_file *file, source_visit *visit, void *arg)
{
    char validator[32];
    struct source_entry e = file->entry;
    if (S_ISREG(e.mode)) {
        e.size = file->versions.items[file->version].size;
        e.validator = validator;
        e.validator_len = print_version(file, validator, sizeof validator);
    }
    struct fake_content content = {.content.next = content_next, .end = e.size > f->shorten ? e.size - f->shorten : 0};
    if (f->streams && S_ISREG(e.mode)) {
        content.seed = file->versions.items[file->version].seed;
        e.content = &content.content;
    }
    return visit(arg, &e);
}

static int fake_list(struct source *s, source_visit *visit, void *arg)
{
    struct source_fake *f = fake_of(s);
    CLEANUP_FREE size_t *order = calloc(f->files.len + 1, sizeof *order);
    for (size_t i = 0; i < f->files.len; i++)
        order[i] = f->order == 1 ? f->files.len - 1 - i : i;
    uint64_t random = f->order;
    for (size_t i = f->files.len; f->order > 1 && i > 1; i--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t j = (size_t)(random >> 33) % i, swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    int rc = 0;
    for (size_t i = 0; i < f->files.len && !rc; i++)
        rc = list_one(f, f->files.items[order[i]], visit, arg);
    return rc;
}

static void fake_counts(struct source *s, struct source_counts *out)
{
    source_counts_add(out, &fake_of(s)->counts);
}

static bool fake_streams(const struct source *s)
{
    return ((const struct source_fake *)s)->streams;
}

static int fake_look(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg)
{
    struct source_fake *f = fake_of(s);
    const struct fake_file *file = find(f, ask->path, ask->path_len);
    if (!file || file->gone)
        return error_set(-ENOENT, "fake: nothing at '%.*s'", (int)ask->path_len, ask->path);
    return list_one(f, file, visit, arg);
}

/* Rules that this read meets. *out_slow_ms: to wait first. */
static int apply_rules(struct fake_file *file, const struct source_read *r, unsigned *out_slow_ms)
{
    int rc = 0;
    for (size_t i = 0; i < file->rules.len; i++) {
        struct rule *rule = &file->rules.items[i];
        if (rule->fired || rule->offset < r->offset || rule->offset >= r->offset + r->len)
            continue;
        rule->fired = true;
        file->kept_below = rule->offset;
        if (rule->action == FAKE_CHANGE)
            file->version++;
        else if (rule->action == FAKE_VANISH)
            file->gone = true;
        else if (rule->action == FAKE_READ_FAIL)
            rc = rule->rc;
        else
            *out_slow_ms = (unsigned)rule->rc;
        if (rule->action != FAKE_SLOW)
            break; /* the next one waits for the next read */
    }
    return rc;
}

static int wait_released(struct source_fake *f)
{
    SCOPED_LOCK(&f->lock);
    while (f->held && !f->cancelled)
        pthread_cond_wait(&f->released, &f->lock);
    return f->cancelled ? error_set(-ECANCELED, "fake: cancelled") : 0;
}

static int read_locked(struct source_fake *f, const struct source_read *r, unsigned *slow_ms, unsigned *seed)
{
    SCOPED_LOCK(&f->lock);
    f->stats.reads++;
    f->in_reads += r->len;
    f->stats.bytes_asked += r->len;
    f->stats.bytes_in_reads_max = GR_MAX(f->stats.bytes_in_reads_max, f->in_reads);
    struct fake_file *file = find(f, r->path, r->path_len);
    int rc = file ? apply_rules(file, r, slow_ms) : -ENOENT;
    if (rc)
        return error_set(rc, "fake: read of '%.*s' fails", (int)r->path_len, r->path);
    char text[32] = {0};
    memcpy(text, r->validator, GR_MIN(r->validator_len, sizeof text - 1));
    size_t asked = strtoul(text + 1, NULL, 10);
    bool kept = r->offset + r->len <= file->kept_below && asked + 1 == file->version + file->gone;
    if (file->gone && !kept)
        return error_set(-ENOENT, "fake: '%.*s' is gone", (int)r->path_len, r->path);
    if (asked != file->version && !kept)
        return error_set(-ESTALE, "fake: '%.*s' changed", (int)r->path_len, r->path);
    const struct version *v = &file->versions.items[asked];
    if (r->offset + r->len > v->size)
        return error_set(-ESTALE, "fake: '%.*s' is shorter", (int)r->path_len, r->path);
    *seed = v->seed;
    f->stats.bytes += r->len;
    return 0;
}

static int fake_read(struct source *s, const struct source_read *r)
{
    struct source_fake *f = fake_of(s);
    unsigned slow_ms = 0, seed = 0;
    int rc = read_locked(f, r, &slow_ms, &seed);
    if (slow_ms)
        usleep(slow_ms * 1000);
    if (!rc)
        rc = wait_released(f);
    if (!rc)
        source_fake_bytes(seed, r->offset, r->dst, r->len);
    SCOPED_LOCK(&f->lock);
    f->in_reads -= r->len;
    return rc;
}

static int fake_stat(struct source *s, const char *path, size_t path_len, struct source_version *out)
{
    struct source_fake *f = fake_of(s);
    SCOPED_LOCK(&f->lock);
    f->stats.stats++;
    const struct fake_file *file = find(f, path, path_len);
    if (!file || file->gone)
        return error_set(-ENOENT, "fake: '%.*s' is gone", (int)path_len, path);
    *out = (struct source_version){.size = file->versions.items[file->version].size,
                                   .mtime = file->entry.mtime + (int64_t)file->version,
                                   .mtime_nsec = file->entry.mtime_nsec};
    out->validator_len = print_version(file, out->validator, sizeof out->validator);
    return 0;
}

static void fake_cancel(struct source *s)
{
    struct source_fake *f = fake_of(s);
    SCOPED_LOCK(&f->lock);
    f->stats.cancels++;
    f->cancelled = true;
    pthread_cond_broadcast(&f->released);
}

static void fake_close(struct source *s)
{
    struct source_fake *f = fake_of(s);
    for (size_t i = 0; i < f->files.len; i++) {
        struct fake_file *file = f->files.items[i];
        free((char *)file->entry.path);
        free((char *)file->entry.target);
        free((void *)file->entry.xattrs);
        vec_release(&file->versions);
        vec_release(&file->rules);
        free(file);
    }
    vec_release(&f->files);
    pthread_cond_destroy(&f->released);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ------------------------------------------------------------------ making it */

struct source *source_fake_new(void)
{
    static const struct source_ops ops = {.list = fake_list,
                                          .counts = fake_counts,
                                          .streams = fake_streams,
                                          .look = fake_look,
                                          .read = fake_read,
                                          .stat = fake_stat,
                                          .cancel = fake_cancel,
                                          .close = fake_close};
    struct source_fake *f = calloc(1, sizeof *f);
    must(!f);
    f->base.ops = &ops;
    f->base.url = "fake://source";
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->released, NULL);
    return &f->base;
}

void source_fake_stream(struct source *s, uint64_t shorten)
{
    fake_of(s)->streams = true;
    fake_of(s)->shorten = shorten;
}

void source_fake_counts(struct source *s, const struct source_counts *counts)
{
    fake_of(s)->counts = *counts;
}

void source_fake_entry(struct source *s, const struct source_entry *e)
{
    struct source_fake *f = fake_of(s);
    struct fake_file *file = calloc(1, sizeof *file);
    must(!file);
    file->entry = *e;
    file->entry.path = copy(e->path, e->path_len);
    file->entry.target = copy(e->target, e->target_len);
    file->entry.xattrs = copy(e->xattrs, e->xattrs_len);
    struct version v = {.size = e->size};
    must(vec_push(&file->versions, v));
    must(vec_push(&f->files, file));
}

void source_fake_file(struct source *s, const char *path, uint64_t size, unsigned seed)
{
    struct source_entry e = {
        .path = path, .path_len = strlen(path), .mode = S_IFREG | 0644, .size = size, .mtime = 1700000000};
    source_fake_entry(s, &e);
    struct source_fake *f = fake_of(s);
    f->files.items[f->files.len - 1]->versions.items[0].seed = seed;
}

void source_fake_linked(struct source *s)
{
    static const char *const names[] = {"b", "a/first", "c/last"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        const struct source_entry e = {.path = names[i],
                                       .path_len = strlen(names[i]),
                                       .mode = S_IFREG | 0644,
                                       .size = 50,
                                       .link_dev = 1,
                                       .link_ino = 2};
        source_fake_entry(s, &e);
    }
    source_fake_file(s, "d", 10, 0);
}

void source_fake_link(struct source *s, const char *path, const char *file)
{
    struct source_fake *f = fake_of(s);
    struct fake_file *first = must_find(s, file);
    first->entry.link_dev = 1;
    if (!first->entry.link_ino)
        first->entry.link_ino = f->files.len;
    struct source_entry e = first->entry;
    e.path = path;
    e.path_len = strlen(path);
    e.size = first->versions.items[first->version].size;
    source_fake_entry(s, &e);
    f->files.items[f->files.len - 1]->versions.items[0] = first->versions.items[first->version];
}

void source_fake_version(struct source *s, const char *path, uint64_t size, unsigned seed)
{
    struct version v = {.size = size, .seed = seed};
    must(vec_push(&must_find(s, path)->versions, v));
}

void source_fake_rule(struct source *s, const char *path, uint64_t offset, enum fake_action action, int rc)
{
    struct rule rule = {.offset = offset, .action = action, .rc = rc};
    must(vec_push(&must_find(s, path)->rules, rule));
}

void source_fake_change(struct source *s, const char *path)
{
    SCOPED_LOCK(&fake_of(s)->lock);
    must_find(s, path)->version++;
}

void source_fake_vanish(struct source *s, const char *path)
{
    SCOPED_LOCK(&fake_of(s)->lock);
    must_find(s, path)->gone = true;
}

void source_fake_order(struct source *s, unsigned order)
{
    fake_of(s)->order = order;
}

void source_fake_hold(struct source *s)
{
    SCOPED_LOCK(&fake_of(s)->lock);
    fake_of(s)->held = true;
}

void source_fake_release(struct source *s)
{
    SCOPED_LOCK(&fake_of(s)->lock);
    fake_of(s)->held = false;
    pthread_cond_broadcast(&fake_of(s)->released);
}

struct source_fake_stats source_fake_stats(struct source *s)
{
    SCOPED_LOCK(&fake_of(s)->lock);
    return fake_of(s)->stats;
}
