/* A listing is pages of 1,000 keys, each asked for behind the last key of the one before: one page after the other,
 * unless several ranges of keys are listed at once. Nothing is known of the keys before, so ranges are found by trying:
 *
 *   range      the keys behind `after`, up to and with `end` (none: to the end of the prefix). It is a place of the
 *              walk: a thread fetches a page of it, `after` moves on, and it is pushed again.
 *   probe      a thread for which no place waits picks another's range, asks for the page behind a key M half way to
 *              its end (key_split.c), and
 *                keys came       a new range has (M, end], with the page; the other goes on up to M
 *                none up to end  nothing is there: the other's end becomes M
 *              so each probe halves what the other has before it, or shares it. One probe a range at a time.
 *
 * SPLIT_AFTER pages are fetched before anybody probes: small buckets cost no request more. A page fetched beyond an end
 * that came nearer meanwhile is cut there: those keys are the other's.
 *
 * A range whose page ends in a directory that the rules leave out goes on behind that directory.
 *
 * The lock guards the ranges, and is never held across a request. A key that comes twice in a row counts once; one that
 * goes backwards means that keys may have been passed over: the page is fetched again, and after PAGE_TRIES the walk
 * fails. So is one without keys that says more follow.
 */
#include "imagebuild/source/s3_walk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread.h"
#include "net/aws/s3.h"

enum { SPLIT_AFTER = 2, PAGE_TRIES = 3 };

struct range {
    bool used;   /* by a place that waits or is listed, or by a probe that may fill it */
    bool active; /* more keys may come */
    bool probed; /* by some thread, now */
    bool stuck;  /* no key lies half way; until `after` moves on */
    unsigned pages;
    struct bytes after, end;
    bool has_end;
};

struct s3_walk {
    const struct s3_walk_config *config;
    size_t prefix_len;
    pthread_mutex_t lock;
    struct range ranges[S3_WALK_THREADS_MAX]; /* a thread lists one at a time, or probes one for another */
};

static int copy(struct bytes *to, const void *data, size_t len)
{
    bytes_clear(to);
    return bytes_append(to, data, len);
}

/* ------------------------------------------------------------------ pages */

static int endless(const struct s3_walk *w, const struct bytes *after)
{
    return error_set(-EIO,
                     "source: %s: the server's listing does not end: it has nothing behind '%.*s' but says that more "
                     "follows",
                     w->config->retry->url, (int)GR_MIN(after->len, 100u), (const char *)after->data);
}

/* A page without keys, of which more follow, would pass for the end of what is there. */
static int check_page(const struct s3_walk *w, const struct s3_list_page *page, const struct bytes *after)
{
    const char *last = (const char *)after->data;
    size_t last_len = after->len;
    if (!s3_list_page_count(page) && s3_list_page_token(page))
        return endless(w, after);
    for (size_t i = 0; i < s3_list_page_count(page); i++) {
        const struct s3_object *o = s3_list_page_object(page, i);
        if (last_len && key_order(last, last_len, o->key, o->key_len) > 0)
            return error_set(-EIO,
                             "source: %s: the server's listing goes backwards ('%.100s' behind '%.*s'); a source must "
                             "list its keys in the order of their bytes",
                             w->config->retry->url, o->key, (int)GR_MIN(last_len, 100u), last);
        last = o->key;
        last_len = o->key_len;
    }
    return 0;
}

/* The page behind `after`, tried again and again as the source says. */
static int fetch(struct s3_walk *w, const struct bytes *after, struct s3_list_page **out)
{
    struct source_try try = {0};
    for (unsigned faulty = 0;;) {
        CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
        int rc = s3_list_after(w->config->s3, w->config->prefix, after->data, after->len, &page);
        if (!rc) {
            rc = check_page(w, page, after);
            if (!rc) {
                *out = steal_ptr(&page);
                return 0;
            }
            if (++faulty < PAGE_TRIES)
                rc = -EAGAIN;
        }
        rc = source_retry_wait(w->config->retry, &try, rc);
        if (rc)
            return rc;
    }
}

/* How many of the page's objects lie up to the range's end. */
static size_t count_within(const struct s3_list_page *page, const struct range *r)
{
    size_t n = s3_list_page_count(page);
    while (r->has_end && n) {
        const struct s3_object *o = s3_list_page_object(page, n - 1);
        if (key_order(o->key, o->key_len, r->end.data, r->end.len) <= 0)
            break;
        n--;
    }
    return n;
}

/* A server may begin with the very key it was asked to begin behind. */
static size_t count_repeated(const struct s3_list_page *page, const struct range *r)
{
    size_t n = 0;
    for (; n < s3_list_page_count(page); n++) {
        const struct s3_object *o = s3_list_page_object(page, n);
        if (key_order(o->key, o->key_len, r->after.data, r->after.len))
            break;
    }
    return n;
}

/* A key in a directory that is left out becomes one behind all that lies there: no character comes behind U+10FFFF. */
static int pass_left_out(const struct s3_walk *w, struct bytes *key)
{
    static const char last[] = "/\xf4\x8f\xbf\xbf";
    size_t at = w->prefix_len;
    if (!w->config->rules || key->len < at)
        return 0;
    const char *path = (const char *)key->data + at;
    for (size_t len = 0; len < key->len - at; len++)
        if (path[len] == '/' && !rules_take(w->config->rules, path, len, true)) {
            key->len = at + len;
            return bytes_append(key, last, sizeof last - 1);
        }
    return 0;
}

/* The page's keys are the range's: [*from, *to) of its objects. Move on. */
static int advance_locked(const struct s3_walk *w, struct range *r, const struct s3_list_page *page, size_t *from,
                          size_t *to)
{
    *from = count_repeated(page, r);
    *to = count_within(page, r);
    bool more = *to == s3_list_page_count(page) && s3_list_page_token(page);
    if (*from >= *to && more)
        return endless(w, &r->after);
    if (*from < *to) {
        const struct s3_object *last = s3_list_page_object(page, *to - 1);
        int rc = copy(&r->after, last->key, last->key_len);
        if (!rc)
            rc = pass_left_out(w, &r->after);
        if (rc)
            return rc;
    }
    r->pages++;
    r->stuck = false;
    r->active = more && !(r->has_end && key_order(r->after.data, r->after.len, r->end.data, r->end.len) >= 0);
    return 0;
}

/* ------------------------------------------------------------------ ranges */

/* Emit the page's objects and come back for the range's next page, if it has one. */
static int emit_page(struct s3_walk *w, struct walker *walker, struct range *r, const struct s3_list_page *page,
                     size_t from, size_t to)
{
    const struct s3_object *last = NULL;
    for (size_t i = from; i < to; i++) {
        const struct s3_object *o = s3_list_page_object(page, i);
        int rc = last && !key_order(last->key, last->key_len, o->key, o->key_len)
                     ? 0
                     : w->config->emit(w->config->arg, walker, o);
        if (rc)
            return rc;
        last = o;
    }
    {
        SCOPED_LOCK(&w->lock);
        r->used = r->active;
        if (!r->active)
            return 0;
    }
    return walk_push(walker, &(struct walk_place){.path = "", .kind = (int)(r - w->ranges)});
}

static int list_range(struct s3_walk *w, struct walker *walker, struct range *r)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    size_t from = 0, to = 0;
    int rc = fetch(w, &r->after, &page); /* nobody else moves its `after` */
    if (!rc) {
        SCOPED_LOCK(&w->lock);
        rc = advance_locked(w, r, page, &from, &to);
    }
    return rc ? rc : emit_page(w, walker, r, page, from, to);
}

/* A range to share, one that is free, and the key to split it at: 1; 0: none now; or -errno. */
static int s3_walk_choose(struct s3_walk *w, struct range **out_of, struct range **out_mine, struct bytes *middle)
{
    struct range *best = NULL, *mine = NULL;
    SCOPED_LOCK(&w->lock);
    for (struct range *r = w->ranges; r < w->ranges + S3_WALK_THREADS_MAX; r++) {
        if (!r->used)
            mine = r;
        else if (r->active && !r->probed && !r->stuck && r->pages >= SPLIT_AFTER && (!best || r->pages > best->pages))
            best = r;
    }
    if (!best || !mine)
        return 0;
    const char *end = best->has_end ? (const char *)best->end.data : NULL;
    int rc = key_split((const char *)best->after.data, best->after.len, end, best->end.len, w->prefix_len, middle);
    best->stuck = !rc;
    if (rc == 1) {
        best->probed = mine->used = true;
        *out_of = best;
        *out_mine = mine;
    }
    return rc;
}

/* Share what `of` has behind the middle, where the page begins: 1; 0: nothing to share. */
static int split_locked(struct range *of, struct range *mine, const struct bytes *middle,
                        const struct s3_list_page *page)
{
    bool passed = !of->active || key_order(of->after.data, of->after.len, middle->data, middle->len) >= 0 ||
                  (of->has_end && key_order(middle->data, middle->len, of->end.data, of->end.len) >= 0);
    if (passed)
        return 0; /* too late: its owner was faster */
    if (!count_within(page, of)) {
        of->has_end = true; /* nothing is there */
        return copy(&of->end, middle->data, middle->len);
    }
    int rc = copy(&mine->after, middle->data, middle->len);
    if (!rc)
        rc = copy(&mine->end, of->end.data, of->end.len);
    if (!rc)
        rc = copy(&of->end, middle->data, middle->len);
    if (rc)
        return rc;
    mine->has_end = of->has_end;
    of->has_end = true;
    mine->pages = SPLIT_AFTER - 1; /* with this page it may be shared itself */
    of->pages = SPLIT_AFTER;
    return 1;
}

/* No range waits: 1 if something came of probing one. */
static int probe(void *arg, struct walker *walker)
{
    struct s3_walk *w = arg;
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    CLEANUP_BYTES middle = BYTES_INIT(HTTP_ERROR_BODY_MAX);
    struct range *of = NULL, *mine = NULL;
    size_t from = 0, to = 0;
    int rc = s3_walk_choose(w, &of, &mine, &middle), shared = 0;
    if (rc <= 0)
        return rc;
    bool got = !fetch(w, &middle, &page);
    {
        SCOPED_LOCK(&w->lock);
        rc = 0;
        of->stuck = !got; /* no failure of the walk: an error that lasts also meets the thread that lists the range */
        if (got)
            rc = shared = split_locked(of, mine, &middle, page);
        if (shared > 0)
            rc = advance_locked(w, mine, page, &from, &to);
        else
            mine->used = false;
        of->probed = false;
    }
    if (!rc && shared)
        rc = emit_page(w, walker, mine, page, from, to);
    return rc ? rc : 1;
}

static int s3_walk_list_place(void *arg, struct walker *walker, const struct walk_place *place)
{
    struct s3_walk *w = arg;
    return list_range(w, walker, &w->ranges[place->kind]);
}

int s3_walk(const struct s3_walk_config *config, source_visit *visit, void *arg)
{
    struct s3_walk w = {.config = config, .prefix_len = strlen(config->prefix)};
    unsigned threads = config->threads ? config->threads : S3_WALK_THREADS_MAX;
    const struct walk walk = {.url = config->retry->url,
                              .threads = GR_MIN(threads, (unsigned)S3_WALK_THREADS_MAX),
                              .list = s3_walk_list_place,
                              .share = probe,
                              .arg = &w,
                              .visit = visit,
                              .visit_arg = arg};
    pthread_mutex_init(&w.lock, NULL);
    for (unsigned i = 0; i < S3_WALK_THREADS_MAX; i++)
        w.ranges[i].after.max = w.ranges[i].end.max = HTTP_ERROR_BODY_MAX;
    w.ranges[0].used = w.ranges[0].active = true;
    int rc = walk_run(&walk);
    for (unsigned i = 0; i < S3_WALK_THREADS_MAX; i++) {
        bytes_release(&w.ranges[i].after);
        bytes_release(&w.ranges[i].end);
    }
    pthread_mutex_destroy(&w.lock);
    return rc;
}
