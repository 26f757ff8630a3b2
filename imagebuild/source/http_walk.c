/* Pages are asked for by several threads, as many as there is room for in memory (page_budget.h): a page and what it
 * names take their part of it until they have been told. Of what waits to be asked for, files come before further
 * pages, so that names do not pile up. All but the looks is of the calling thread.
 */
#include "imagebuild/source/http_walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "imagebuild/source/http_index.h"
#include "imagebuild/source/look_ahead.h"
#include "imagebuild/source/page_budget.h"
#include "imagebuild/source/source_kinds.h"

enum { DEPTH_MAX = 128 };

size_t http_walk_validator(int64_t mtime, uint64_t size, char out[SOURCE_VALIDATOR_MAX + 1])
{
    return (size_t)snprintf(out, SOURCE_VALIDATOR_MAX + 1, "t:%lld-%llu", (long long)mtime, (unsigned long long)size);
}

enum { LOOK_PAGE, LOOK_LARGE_PAGE, LOOK_FILE };

struct pending {
    char *path;
    size_t len;
    int kind;
};

struct walk {
    const struct http_walk *config;
    VEC(struct pending) pending; /* last in, first out */
    uint64_t files;
    struct page_budget budget; /* a look at a page that was answered holds its part of it until it was told */
};

struct page {
    struct look *look;
    size_t len, limit; /* bytes of the page; it and what is kept of it take at most */
    struct bytes path;
    size_t directory_len;
};

/* Mode 0: a file of which only the name is known. */
static int take_child(void *arg, const struct http_index_entry *child)
{
    struct page *p = arg;
    char validator[SOURCE_VALIDATOR_MAX + 1];
    p->path.len = p->directory_len;
    int rc = p->path.len ? bytes_append(&p->path, "/", 1) : 0;
    if (!rc)
        rc = bytes_append(&p->path, child->name, child->name_len);
    if (rc)
        return error_set(-EINVAL, "source: a path that begins with '%.100s' is over 65535 bytes", p->look->ask.path);
    struct source_entry e = {.path = (const char *)p->path.data, .path_len = p->path.len, .mtime = child->mtime};
    if (child->directory) {
        e.mode = S_IFDIR | 0755;
        e.size = !child->exact; /* its time is not known */
    } else if (child->exact) {
        e.mode = S_IFREG | 0644;
        e.size = child->size;
        e.validator = validator;
        e.validator_len = http_walk_validator(child->mtime, child->size, validator);
    }
    rc = look_keep(p->look, &e);
    return !rc && p->len + p->look->kept > p->limit ? -EFBIG : rc;
}

/* -EFBIG without a sentence: the limit is too low. */
static int look_at_page(const struct walk *c, struct look *look, size_t limit)
{
    CLEANUP_BYTES url = BYTES_INIT(4 * CATALOG_PATH_MAX);
    CLEANUP(http_response_release) struct http_response resp = {.body.max = limit};
    struct page page = {
        .look = look, .limit = limit, .path = BYTES_INIT(CATALOG_PATH_MAX), .directory_len = look->ask.path_len};
    int rc = c->config->get(c->config->source, look->ask.path, look->ask.path_len, &url, &resp);
    page.len = resp.body.len;
    if (!rc)
        rc = bytes_append(&page.path, look->ask.path, look->ask.path_len);
    if (!rc)
        rc = http_index_decode(resp.body.data, resp.body.len, (const char *)url.data, take_child, &page);
    bytes_release(&page.path);
    return rc == -EMSGSIZE ? -EFBIG : rc;
}

static int look_at_large_page(struct walk *c, struct look *look)
{
    look_forget(look);
    page_budget_leave(&c->budget, false);
    look->kind = LOOK_LARGE_PAGE;
    int rc = page_budget_enter(&c->budget, true);
    if (!rc)
        rc = look_at_page(c, look, PAGE_BUDGET_BYTES);
    if (rc != -EFBIG)
        return rc;
    return error_set(rc,
                     "source: the index of %s/%.*s takes more than %d MiB with the files it names; name them by "
                     "--files-from",
                     c->config->source->url, (int)GR_MIN(look->ask.path_len, (size_t)200), look->ask.path,
                     PAGE_BUDGET_BYTES >> 20);
}

static int walk_work(void *arg, struct look *look)
{
    struct walk *c = arg;
    if (look->kind == LOOK_FILE)
        return source_look(c->config->source, &look->ask, look_keep, look);
    int rc = page_budget_enter(&c->budget, false);
    if (!rc)
        rc = look_at_page(c, look, PAGE_BUDGET_SMALL_BYTES);
    return rc == -EFBIG ? look_at_large_page(c, look) : rc;
}

static int http_walk_push(struct walk *c, const char *path, size_t len, int kind)
{
    struct pending p = {.path = strndup(path, len), .len = len, .kind = kind};
    if (p.path && !vec_push(&c->pending, p))
        return 0;
    free(p.path);
    return error_no_memory();
}

static int take_directory(struct walk *c, const struct source_entry *e)
{
    unsigned depth = 0;
    for (size_t i = 0; i < e->path_len; i++)
        depth += e->path[i] == '/';
    if (!rules_take(c->config->rules, e->path, e->path_len, true))
        return 0;
    if (depth >= DEPTH_MAX)
        return error_set(-EINVAL,
                         "source: %s: directories nest over %d deep at '%.*s': a link there may lead back; leave it "
                         "out with --exclude",
                         c->config->source->url, DEPTH_MAX, (int)GR_MIN(e->path_len, (size_t)200), e->path);
    int rc = e->size ? 0 : c->config->visit(c->config->arg, e);
    return rc ? rc : http_walk_push(c, e->path, e->path_len, LOOK_PAGE);
}

static int http_walk_tell(struct walk *c, const struct source_entry *e)
{
    c->files += S_ISREG(e->mode);
    if (e->mode)
        return c->config->visit(c->config->arg, e);
    return rules_take(c->config->rules, e->path, e->path_len, false)
               ? http_walk_push(c, e->path, e->path_len, LOOK_FILE)
               : 0;
}

static int take_answer(struct walk *c, const struct look *look)
{
    if (look->error.code == -ENOENT && look->ask.path_len) {
        if (source_counts_vanished(c->config->counts, look->ask.path, look->ask.path_len))
            source_warn_vanished(look->ask.path, look->ask.path_len);
        return 0;
    }
    int rc = look->error.code ? error_restore(&look->error) : 0;
    for (size_t i = 0; !rc && i < look->entries.len; i++)
        if (S_ISDIR(look->entries.items[i]->mode))
            rc = take_directory(c, look->entries.items[i]);
    for (size_t i = 0; !rc && i < look->entries.len; i++)
        if (!S_ISDIR(look->entries.items[i]->mode))
            rc = http_walk_tell(c, look->entries.items[i]);
    return rc;
}

static int walk_answer(void *arg, struct look *look)
{
    struct walk *c = arg;
    int rc = take_answer(c, look);
    look_forget(look);
    if (look->kind != LOOK_FILE)
        page_budget_leave(&c->budget, look->kind == LOOK_LARGE_PAGE);
    return rc;
}

static int http_walk_all(struct walk *c, struct look_ahead *looks)
{
    int rc = http_walk_push(c, "", 0, LOOK_PAGE);
    while (!rc) {
        if (!c->pending.len) {
            bool taken;
            rc = look_ahead_wait(looks, &taken);
            if (!taken)
                break;
            continue;
        }
        struct pending p = c->pending.items[--c->pending.len];
        struct source_ask ask = {.path = p.path, .path_len = p.len};
        rc = look_ahead_ask(looks, &ask, p.kind);
        free(p.path);
    }
    return rc;
}

int http_walk_run(const struct http_walk *config)
{
    struct walk c = {.config = config};
    struct look_ahead_config looking = {
        .threads = config->threads, .work = walk_work, .answer = walk_answer, .arg = &c};
    struct look_ahead *looks = NULL;
    page_budget_init(&c.budget);
    int rc = look_ahead_start(&looking, &looks);
    if (!rc)
        rc = http_walk_all(&c, looks);
    page_budget_close(&c.budget);
    look_ahead_stop(looks);
    page_budget_release(&c.budget);
    for (size_t i = 0; i < c.pending.len; i++)
        free(c.pending.items[i].path);
    vec_release(&c.pending);
    if (!rc && !c.files)
        return error_set(-ENOENT, "source: the index of %s/ names no file; check the address", config->source->url);
    return rc;
}
