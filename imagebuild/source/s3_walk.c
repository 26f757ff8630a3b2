/* S3 lists 1,000 keys a page, and each page is requested by the last key of the page before. So one range of keys is
 * listed by one request after the other, and only several ranges can be listed in parallel. Nothing is known about
 * the keys in advance, so ranges are found by probing:
 *
 *   range    the keys after `after`, up to and including `end` (or the end of the prefix). It is a place of the walk:
 *            a thread fetches one page, `after` moves on, and the range is pushed again.
 *   probe    a thread without work picks the range of another one and a key M half way to its end (key_split), and
 *            fetches the page after M:
 *              keys up to `end`   a new range takes (M, end] and this page; the other range now ends at M
 *              no keys            nothing lies there; the other range now ends at M
 *
 *       after ............. M ............. end
 *         |--- keeps this ---|-- new range --|
 *
 * So each probe either shares a range or halves the part of it that is not listed yet. A range has one probe at a
 * time, and none before SPLIT_AFTER of its pages have come, so that small buckets cost no extra request.
 *
 * The owner continues to list its range while the range is probed. If it has passed M when the probe's page comes, the
 * probe was too late and is dropped. If a probe has moved the range's end while the owner fetched a page, the page's
 * keys past the new end are dropped: they belong to the new range.
 *
 * Where a page ends in a directory that the rules leave out, the range continues after that directory.
 *
 * A server may not be what it claims. A key that comes twice in a row counts once. A key that goes backwards means
 * that keys may have been skipped: the page is fetched again, and after PAGE_TRIES the walk fails. A page without
 * keys that claims to have a successor is handled in the same way.
 *
 * One lock guards the ranges. It is never held across a request.
 */
#include "imagebuild/source/source_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread.h"
#include "net/aws/s3.h"

/* ------------------------------------------------------------------ keys */

/* Find a key half way between two keys. The bytes after the shared ones are read as a number of up to DIGITS digits
 * in base 96: one digit for each printable ASCII character, and 0 for the end of the key. Other bytes count as the
 * nearest digit. The middle of the two numbers gives the new key. Since some bytes were rounded, the result is
 * compared with the real keys.
 *
 *   after  data/2024/img_0001      shared "data/2024/img_0"   001
 *   end    data/2024/img_0900                                 900
 *   new    data/2024/img_04
 *
 * Fewer digits are tried first, so keys are short.
 *
 * Keys in other scripts may differ only in bytes that are no digits. Then everything after the directory of `after`
 * is split off.
 */

enum { BASE = 96, DIGITS = 6, FIRST = 0x1f /* the byte before the first printable one: digit 0 */ };

/* Return the digit at a position of a key; 0 past its end. */
static unsigned digit(const char *key, size_t len, size_t at)
{
    if (at >= len)
        return 0;
    unsigned char c = (unsigned char)key[at];
    return c <= FIRST ? 1 : GR_MIN((unsigned)c - FIRST, (unsigned)BASE - 1);
}

int key_order(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t common = GR_MIN(a_len, b_len);
    int order = common ? memcmp(a, b, common) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Two keys, exclusive. end NULL: no limit but the prefix. */
struct span {
    const char *after, *end;
    size_t after_len, end_len;
};

/* Return whether the key lies in the span. */
static bool is_between(const struct span *s, const struct bytes *key)
{
    const char *k = (const char *)key->data;
    return key_order(s->after, s->after_len, k, key->len) < 0 &&
           (!s->end || key_order(k, key->len, s->end, s->end_len) < 0);
}

/* Return the number of bytes that both keys share, not ending within a UTF-8 character. */
static size_t shared_bytes(const struct span *s, size_t prefix_len)
{
    size_t n = prefix_len;
    if (s->end)
        while (n < s->after_len && n < s->end_len && s->after[n] == s->end[n])
            n++;
    while (n > prefix_len && ((n < s->after_len && (s->after[n] & 0xC0) == 0x80) ||
                              (s->end && n < s->end_len && (s->end[n] & 0xC0) == 0x80)))
        n--;
    return n;
}

/* Make a key of the shared bytes and the digits of `number`. Zeros at the end are dropped; one before another digit
 * becomes a space, since a key cannot end and continue. */
static int key_split_make_key(const struct span *s, size_t shared, uint64_t number, unsigned digits, struct bytes *out)
{
    char text[DIGITS];
    for (unsigned i = digits; i-- > 0; number /= BASE)
        text[i] = (char)(FIRST + number % BASE);
    while (digits && text[digits - 1] == FIRST)
        digits--;
    for (unsigned i = 0; i < digits; i++)
        text[i] = text[i] == FIRST ? ' ' : text[i];
    bytes_clear(out);
    int rc = bytes_append(out, s->after, shared);
    return rc ? rc : bytes_append(out, text, digits);
}

/* Make a key right after the directory of `after`. Return 1, 0 if that is not in the span, or -errno. */
static int after_directory(const struct span *s, size_t prefix_len, struct bytes *out)
{
    const char *slash = memrchr(s->after + prefix_len, '/', s->after_len - prefix_len);
    if (!slash)
        return 0;
    bytes_clear(out);
    int rc = bytes_append(out, s->after, (size_t)(slash - s->after));
    if (!rc)
        rc = bytes_append(out, "0", 1); /* the byte after '/' in ASCII */
    return rc ? rc : is_between(s, out);
}

int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
              struct bytes *out)
{
    struct span s = {.after = after, .end = end, .after_len = after_len, .end_len = end_len};
    if (after_len < prefix_len)
        return 0;
    size_t shared = shared_bytes(&s, prefix_len);
    uint64_t low = 0, high = 0, above = 1;
    for (unsigned digits = 1; digits <= DIGITS; digits++) {
        low = low * BASE + digit(after, after_len, shared + digits - 1);
        /* without an end, the number may go up to the highest one of this length */
        high = end ? high * BASE + digit(end, end_len, shared + digits - 1) : (above *= BASE);
        /* nothing lies between the two yet: take another digit */
        if (high < low + 2)
            continue;
        int rc = key_split_make_key(&s, shared, low + (high - low) / 2, digits, out);
        if (rc || is_between(&s, out))
            return rc ? rc : 1;
    }
    return after_directory(&s, prefix_len, out);
}

/* ------------------------------------------------------------------ the walk */

enum { SPLIT_AFTER = 2, PAGE_TRIES = 3 };

/* A range of keys. The thread that lists it is its owner; only the owner changes `after`. */
struct range {
    bool used;      /* by a place of the walk, or by a probe that may fill it */
    bool active;    /* more keys may come */
    bool probed;    /* a thread probes it now */
    bool stuck;     /* no split was found, or the probe failed; cleared when `after` moves on */
    unsigned pages; /* listed so far */
    struct bytes after, end;
    bool has_end;
};

struct s3_walk {
    const struct s3_walk_config *config;
    size_t prefix_len;
    pthread_mutex_t lock;
    struct range ranges[S3_WALK_THREADS_MAX]; /* one a thread suffices: each lists one, or probes to fill one */
};

static int copy(struct bytes *to, const void *data, size_t len)
{
    bytes_clear(to);
    return bytes_append(to, data, len);
}

/* ------------------------------------------------------------------ pages */

/* Return the error for a listing that says that more keys follow but has none. */
static int endless(const struct s3_walk *w, const struct bytes *after)
{
    return error_set(-EIO,
                     "source: %s: the server's listing does not end: it has nothing after '%.*s' but says that more "
                     "follows",
                     w->config->retry->url, (int)GR_MIN(after->len, 100u), (const char *)after->data);
}

/* Check that a page can be trusted. One without keys but with a successor must not pass for the end of the listing. */
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
                             "source: %s: the server's listing goes backwards ('%.100s' after '%.*s'); a source must "
                             "list its keys in the order of their bytes",
                             w->config->retry->url, o->key, (int)GR_MIN(last_len, 100u), last);
        last = o->key;
        last_len = o->key_len;
    }
    return 0;
}

/* Fetch the page after `after`. Failures are retried, and so are faulty pages, up to PAGE_TRIES. */
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
            /* retry a faulty page like a failed request; the last time, the fault itself ends the walk */
            if (++faulty < PAGE_TRIES)
                rc = -EAGAIN;
        }
        rc = source_retry_wait(w->config->retry, &try, rc);
        if (rc)
            return rc;
    }
}

/* Return how many of the page's objects lie within the range's end. */
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

/* Return how many of the page's first objects are the key `after` itself: some servers begin with it. */
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

/* If the key lies in a directory that the rules leave out, replace it by a key after all keys of that directory: no
 * character sorts after U+10FFFF. */
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

/* Move the range past the page. Objects [*from, *to) of the page are new and belong to the range. */
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

/* Emit objects [from, to) of the page, and push the range again if it has more. */
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

/* List one page of a range. */
static int list_range(struct s3_walk *w, struct walker *walker, struct range *r)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    size_t from = 0, to = 0;
    int rc = fetch(w, &r->after, &page); /* read without the lock: only its owner changes `after` */
    if (!rc) {
        SCOPED_LOCK(&w->lock);
        rc = advance_locked(w, r, page, &from, &to);
    }
    return rc ? rc : emit_page(w, walker, r, page, from, to);
}

/* Choose the range to probe, the one with most pages, a free range to fill, and the key to split at. Return 1; 0:
 * there is nothing to probe now; or -errno. */
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

/* Split `of` at the middle after a probe. Return 1: `mine` is the second part, which the page begins; 0: it is
 * empty, or the probe was too late. */
static int split_locked(struct range *of, struct range *mine, const struct bytes *middle,
                        const struct s3_list_page *page)
{
    bool passed = !of->active || key_order(of->after.data, of->after.len, middle->data, middle->len) >= 0 ||
                  (of->has_end && key_order(middle->data, middle->len, of->end.data, of->end.len) >= 0);
    if (passed)
        return 0; /* too late: the owner has passed the middle */
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
    mine->pages = SPLIT_AFTER - 1; /* advance_locked adds this page, so the new range may be probed at once */
    of->pages = SPLIT_AFTER;
    return 1;
}

/* Probe a range; the walk's `share`. Return 1 if a range was probed: others may be worth probing too. */
static int probe(void *arg, struct walker *walker)
{
    struct s3_walk *w = arg;
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    CLEANUP_BYTES middle = BYTES_INIT(S3_KEY_ROOM);
    struct range *of = NULL, *mine = NULL;
    size_t from = 0, to = 0;
    int rc = s3_walk_choose(w, &of, &mine, &middle), shared = 0;
    if (rc <= 0)
        return rc;
    bool got = !fetch(w, &middle, &page);
    {
        SCOPED_LOCK(&w->lock);
        rc = 0;
        of->stuck = !got; /* not an error of the walk: if it lasts, the range's owner gets it too */
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
        w.ranges[i].after.max = w.ranges[i].end.max = S3_KEY_ROOM;
    w.ranges[0].used = w.ranges[0].active = true;
    int rc = walk_run(&walk);
    for (unsigned i = 0; i < S3_WALK_THREADS_MAX; i++) {
        bytes_release(&w.ranges[i].after);
        bytes_release(&w.ranges[i].end);
    }
    pthread_mutex_destroy(&w.lock);
    return rc;
}
