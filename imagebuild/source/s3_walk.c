/* A listing is pages of 1,000 keys, each asked for behind the last key of the one before: one page after the other,
 * unless several ranges of keys are listed at once. Nothing is known of the keys before, so ranges are found by trying:
 *
 *   range      the keys behind `after`, up to and with `end` (none: to the end of the prefix). One worker owns it and
 *              fetches its pages; `after` moves on.
 *   probe      a worker without a range picks another's, asks for the page behind a key M half way to its end
 *              (key_split.h), and
 *                keys came       takes (M, end] for itself, with the page; the other goes on up to M
 *                none up to end  nothing is there: the other's end becomes M
 *              so each probe halves what the other has before it, or shares it. One probe a range at a time.
 *
 * The first worker alone fetches SPLIT_AFTER pages before anybody probes: small buckets cost no request more. A page a
 * worker fetched beyond an end that came nearer meanwhile is cut there: those keys are the other's.
 *
 * A range whose page ends in a directory that the rules leave out goes on behind that directory.
 *
 * Pages go through a bounded queue to the caller's thread, which visits. The lock guards ranges and queue, and is never
 * held across a request or a visit. A key that comes twice in a row counts once; one that goes backwards means that
 * keys may have been passed over: the page is fetched again, and after PAGE_TRIES the walk fails. So is one without
 * keys that says more follow.
 */
#include "imagebuild/source/s3_walk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread.h"
#include "imagebuild/source/key_split.h"
#include "net/aws/s3.h"

enum { SPLIT_AFTER = 2, QUEUE = 16, PAGE_TRIES = 3 };

struct range {
    bool active;
    bool probed; /* by some worker, now */
    bool stuck;  /* no key lies half way; until `after` moves on */
    unsigned pages;
    struct bytes after, end;
    bool has_end;
};

struct batch {
    struct s3_list_page *page;
    size_t from, to; /* of its objects: these are visited */
};

struct s3_walk {
    const struct s3_walk_config *config;
    size_t prefix_len;
    unsigned threads;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a range, the queue, over */
    struct range ranges[S3_WALK_THREADS_MAX];
    unsigned active; /* ranges; 0: all pages are in the queue */
    struct batch queue[QUEUE];
    unsigned first, queued;
    bool over;          /* workers end */
    struct error error; /* of a worker */
};

struct worker {
    struct s3_walk *walk;
    struct range *range;
    pthread_t thread;
};

static int order_of(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t common = GR_MIN(a_len, b_len);
    int order = common ? memcmp(a, b, common) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

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
        if (last_len && order_of(last, last_len, o->key, o->key_len) > 0)
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
static int s3_walk_fetch(struct s3_walk *w, const struct bytes *after, struct s3_list_page **out)
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
        if (order_of(o->key, o->key_len, r->end.data, r->end.len) <= 0)
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
        if (order_of(o->key, o->key_len, r->after.data, r->after.len))
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

/* The page's keys are the range's: queue them and move on. Takes *page when it is queued. */
static int advance_locked(struct s3_walk *w, struct range *r, struct s3_list_page **page)
{
    struct batch b = {.page = *page, .from = count_repeated(*page, r), .to = count_within(*page, r)};
    bool more = b.to == s3_list_page_count(*page) && s3_list_page_token(*page);
    if (b.from >= b.to && more)
        return endless(w, &r->after);
    if (b.from < b.to) {
        const struct s3_object *last = s3_list_page_object(*page, b.to - 1);
        int rc = copy(&r->after, last->key, last->key_len);
        if (!rc)
            rc = pass_left_out(w, &r->after);
        if (rc)
            return rc;
    }
    while (w->queued == QUEUE && !w->over)
        pthread_cond_wait(&w->changed, &w->lock);
    if (w->over)
        return 0;
    if (b.from < b.to) {
        w->queue[(w->first + w->queued++) % QUEUE] = b;
        (void)steal_ptr(page);
    }
    r->pages++;
    r->stuck = false;
    if (!more || (r->has_end && order_of(r->after.data, r->after.len, r->end.data, r->end.len) >= 0)) {
        r->active = false;
        w->over = !--w->active;
    }
    pthread_cond_broadcast(&w->changed);
    return 0;
}

/* ------------------------------------------------------------------ workers */

/* The next page of the worker's own range. */
static int list_on(struct s3_walk *w, struct range *r)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    int rc = s3_walk_fetch(w, &r->after, &page); /* only its owner moves a range's `after` */
    SCOPED_LOCK(&w->lock);
    return rc || w->over ? rc : advance_locked(w, r, &page);
}

/* Another's range to share, and the key to split it at; NULL: none now. */
static struct range *choose_locked(struct s3_walk *w, struct bytes *middle, int *rc)
{
    struct range *best = NULL;
    for (unsigned i = 0; i < w->threads; i++) {
        struct range *r = &w->ranges[i];
        if (r->active && !r->probed && !r->stuck && r->pages >= SPLIT_AFTER && (!best || r->pages > best->pages))
            best = r;
    }
    if (!best)
        return NULL;
    const char *end = best->has_end ? (const char *)best->end.data : NULL;
    *rc = key_split((const char *)best->after.data, best->after.len, end, best->end.len, w->prefix_len, middle);
    if (*rc == 1) {
        *rc = 0;
        best->probed = true;
        return best;
    }
    best->stuck = true;
    return NULL;
}

/* Share what `of` has behind the middle, where the page begins. */
static int split_locked(struct s3_walk *w, struct range *of, struct range *mine, const struct bytes *middle,
                        struct s3_list_page **page)
{
    bool passed = !of->active || order_of(of->after.data, of->after.len, middle->data, middle->len) >= 0 ||
                  (of->has_end && order_of(middle->data, middle->len, of->end.data, of->end.len) >= 0);
    if (passed)
        return 0; /* too late: its owner was faster */
    if (!count_within(*page, of)) {
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
    mine->active = true;
    mine->pages = SPLIT_AFTER - 1; /* with this page it may be shared itself */
    of->pages = SPLIT_AFTER;
    w->active++;
    return advance_locked(w, mine, page);
}

static int probe(struct s3_walk *w, struct range *of, struct range *mine, const struct bytes *middle)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    int rc = s3_walk_fetch(w, middle, &page);
    SCOPED_LOCK(&w->lock);
    if (!rc && !w->over)
        rc = split_locked(w, of, mine, middle, &page);
    of->probed = false;
    pthread_cond_broadcast(&w->changed);
    return rc;
}

/* One page, or a wait until there is something to do. */
static int s3_walk_step(struct s3_walk *w, struct range *mine, struct bytes *middle)
{
    struct range *of = NULL;
    bool own;
    {
        SCOPED_LOCK(&w->lock);
        int rc = 0;
        own = mine->active;
        if (!own && !w->over && !(of = choose_locked(w, middle, &rc)) && !rc)
            pthread_cond_wait(&w->changed, &w->lock);
        if (rc || w->over)
            return rc;
    }
    return own ? list_on(w, mine) : of ? probe(w, of, mine, middle) : 0;
}

static bool is_over(struct s3_walk *w)
{
    SCOPED_LOCK(&w->lock);
    return w->over;
}

static void *s3_walk_work(void *arg)
{
    struct worker *me = arg;
    struct s3_walk *w = me->walk;
    CLEANUP_BYTES middle = BYTES_INIT(HTTP_ERROR_BODY_MAX);
    int rc = 0;
    while (!rc && !is_over(w))
        rc = s3_walk_step(w, me->range, &middle);
    if (rc) {
        SCOPED_LOCK(&w->lock);
        if (!w->error.code)
            error_take(&w->error, rc);
        w->over = true;
        pthread_cond_broadcast(&w->changed);
    }
    return NULL;
}

/* ------------------------------------------------------------------ the caller */

/* The next batch: 1; all is done: 0; or a worker's -errno. */
static int take_batch(struct s3_walk *w, struct batch *out)
{
    SCOPED_LOCK(&w->lock);
    while (!w->queued && !w->over)
        pthread_cond_wait(&w->changed, &w->lock);
    if (w->error.code)
        return error_restore(&w->error);
    if (!w->queued)
        return 0;
    *out = w->queue[w->first];
    w->first = (w->first + 1) % QUEUE;
    w->queued--;
    pthread_cond_broadcast(&w->changed);
    return 1;
}

static int visit_batch(const struct batch *b, s3_visit *visit, void *arg)
{
    const struct s3_object *last = NULL;
    for (size_t i = b->from; i < b->to; i++) {
        const struct s3_object *o = s3_list_page_object(b->page, i);
        int rc = last && !order_of(last->key, last->key_len, o->key, o->key_len) ? 0 : visit(arg, o);
        if (rc)
            return rc;
        last = o;
    }
    return 0;
}

static void end_workers(struct s3_walk *w, struct worker *workers, unsigned started)
{
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
}

static void walk_release(struct s3_walk *w)
{
    for (; w->queued; w->queued--, w->first = (w->first + 1) % QUEUE)
        s3_list_page_free(w->queue[w->first].page);
    for (unsigned i = 0; i < S3_WALK_THREADS_MAX; i++) {
        bytes_release(&w->ranges[i].after);
        bytes_release(&w->ranges[i].end);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

int s3_walk(const struct s3_walk_config *config, s3_visit *visit, void *arg)
{
    struct s3_walk w = {.config = config, .prefix_len = strlen(config->prefix), .active = 1};
    struct worker workers[S3_WALK_THREADS_MAX];
    w.threads = config->threads ? GR_MIN(config->threads, (unsigned)S3_WALK_THREADS_MAX) : S3_WALK_THREADS_MAX;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    for (unsigned i = 0; i < S3_WALK_THREADS_MAX; i++)
        w.ranges[i].after.max = w.ranges[i].end.max = HTTP_ERROR_BODY_MAX;
    w.ranges[0].active = true;
    int rc = 0;
    unsigned started = 0;
    for (; !rc && started < w.threads; started += !rc) {
        workers[started] = (struct worker){.walk = &w, .range = &w.ranges[started]};
        rc = thread_start(&workers[started].thread, s3_walk_work, &workers[started]);
        if (rc && started) {
            rc = 0; /* those there are will do */
            break;
        }
    }
    struct batch b = {0};
    while (!rc && (rc = take_batch(&w, &b)) > 0) {
        rc = visit_batch(&b, visit, arg);
        s3_list_page_free(b.page);
    }
    struct error error;
    error_take(&error, rc);
    end_workers(&w, workers, started);
    walk_release(&w);
    return rc ? error_restore(&error) : 0;
}
