/* Leases. A lease is a document builds/<uuid> that only its owner writes and every gc may list. Time alone makes one
 * dead, so a killed build needs no cleanup.
 *
 * Two clocks: documents carry wall-clock time, since other machines compare it. A handle measures its own age by
 * CLOCK_BOOTTIME, which counts while the machine sleeps and cannot be set. */
#include "repository/lease.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "format/tag.h"
#include "repository/nesting.h"

enum {
    SWEEP_POLL_MS = 200,  /* how often a build looks whether a sweep has ended */
    SWEEP_TELL_MS = 1000, /* after this time it says what it waits for */
    LEASE_KEY_MAX = 64
};

/* A lease or a sweep announcement that this process holds. */
struct lease_handle {
    struct store *store;
    const struct nesting *place; /* NULL for a sweep */
    const volatile int *cancel;  /* ends a wait for a sweep; may be NULL */
    struct lease lease;
    _Atomic uint64_t written_ms; /* clock_boot_ms of the last write */
    bool sweep;                  /* a sweep's announcement instead of a build's lease */
    unsigned lapses;             /* how often it was too old when renewed */
    char key[LEASE_KEY_MAX];
};

/* Write the lease's document with the current time. The caller sets the key, mode and version of put. */
static int lease_put(struct lease_handle *l, uint64_t now_ms, struct store_put *put)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    l->lease.renewed = time(NULL);
    int rc = lease_encode(&l->lease, &doc);
    put->data = doc.data;
    put->len = doc.len;
    if (!rc)
        rc = store_put(l->store, put);
    if (!rc)
        l->written_ms = now_ms;
    return rc;
}

static int lease_write(struct lease_handle *l, uint64_t now_ms)
{
    struct store_put put = {.key = l->key, .mode = STORE_PUT_ALWAYS};
    return lease_put(l, now_ms, &put);
}

/* Make a key: builds/ and a version 4 UUID (RFC 9562). */
static int random_key(char out[LEASE_KEY_MAX])
{
    uint8_t r[16];
    int rc = io_random(r, sizeof r);
    if (rc)
        return rc;
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    snprintf(out, LEASE_KEY_MAX, "builds/%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
             r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
    return 0;
}

/* Make a handle; nothing is written yet. */
static int make(struct store *s, const char *image, struct lease_handle **out)
{
    struct lease_handle *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->store = s;
    l->lease.started = time(NULL);
    l->lease.pid = (uint64_t)getpid();
    snprintf(l->lease.image, sizeof l->lease.image, "%s", image);
    if (gethostname(l->lease.host, sizeof l->lease.host - 1))
        snprintf(l->lease.host, sizeof l->lease.host, "unknown");
    *out = l;
    return 0;
}

/* Set *out to whether a sweep is running; false also if it has died. */
static int sweep_runs(struct store *s, bool *out)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct lease sweep;
    *out = false;
    int rc = store_get_small(s, LEASE_SWEEP_KEY, &doc, NULL);
    if (rc == -ENOENT)
        return 0;
    if (!rc)
        rc = lease_decode(doc.data, doc.len, &sweep);
    if (rc)
        return error_prefix(rc, "%s: %s", s->url, LEASE_SWEEP_KEY);
    *out = time(NULL) - sweep.renewed < LEASE_SWEEP_DEAD_S;
    return 0;
}

/* Wait until no sweep is running; the lease has been written. It is renewed meanwhile. Then check that the sweep was
 * not an unnest, which leaves no store. */
static int wait_for_sweep(struct lease_handle *l)
{
    struct store *s = l->store;
    bool runs = false, told = false;
    int rc = 0;
    for (uint64_t begun = clock_now_ms(); !rc;) {
        rc = sweep_runs(s, &runs);
        if (rc || !runs)
            break;
        const uint64_t waited_ms = clock_now_ms() - begun;
        if (waited_ms > LEASE_SWEEP_DEAD_S * 1000)
            return error_set(-ETIMEDOUT,
                             "%s: a gc or unnest has been removing objects for too long; if none is running, remove "
                             "the object %s",
                             s->url, LEASE_SWEEP_KEY);
        if (!told && waited_ms >= SWEEP_TELL_MS) {
            log_info("%s: waits until a gc or unnest has removed its objects (%s)", s->url, LEASE_SWEEP_KEY);
            told = true;
        }
        if (!cancel_sleep_until(clock_now_us() + SWEEP_POLL_MS * 1000, l->cancel))
            return error_set(-ECANCELED, "%s: interrupted while a gc or unnest was removing objects", s->url);
        uint64_t now = clock_boot_ms();
        rc = now - l->written_ms > LEASE_RENEW_MS ? lease_write(l, now) : 0;
    }
    return rc ? rc : nesting_check_again(s, l->place);
}

int lease_begin(struct store *s, const struct nesting *place, const char *image, const volatile int *cancel,
                struct lease_handle **out)
{
    CLEANUP_FREE struct lease_handle *unwritten = NULL;
    int rc = make(s, image, &unwritten);
    if (!rc)
        rc = random_key(unwritten->key);
    if (!rc)
        rc = lease_write(unwritten, clock_boot_ms());
    if (rc)
        return rc;
    /* From here on a failure must remove the written lease, not only free the handle. */
    CLEANUP(cleanup_lease_handle) struct lease_handle *l = steal_ptr(&unwritten);
    l->place = place;
    l->cancel = cancel;
    rc = wait_for_sweep(l);
    if (!rc)
        *out = steal_ptr(&l);
    return rc;
}

static int another_sweeps(const struct store *s)
{
    return error_set(-EAGAIN,
                     "%s: another gc or unnest is removing objects, so this one removes nothing; if that one was "
                     "killed, %s counts for another 10 minutes",
                     s->url, LEASE_SWEEP_KEY);
}

/* Write the announcement unless a live one is there. If several gc runs try at once, one succeeds, as far as the store
 * honours conditional puts. */
static int announce(struct lease_handle *l)
{
    struct store *s = l->store;
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    char version[STORE_VERSION_MAX] = "";
    struct lease there;
    struct tag tag;
    bool conditional;
    int found = store_get_small(s, LEASE_SWEEP_KEY, &doc, version);
    if (found && found != -ENOENT)
        return found;
    if (!found && !lease_decode(doc.data, doc.len, &there) && time(NULL) - there.renewed < LEASE_SWEEP_DEAD_S)
        return another_sweeps(s);
    if (!found && !tag_decode(doc.data, doc.len, &tag))
        return error_set(-EEXIST,
                         "%s: %s is a tag of the store around this one; remove it there ('granary rm'), after giving "
                         "its image another one ('granary tag')",
                         s->url, LEASE_SWEEP_KEY);
    /* With conditions, one of several gc runs that found no live announcement succeeds. */
    int rc = store_probe_conditional(s, &conditional);
    if (rc)
        return rc;
    struct store_put put = {.key = LEASE_SWEEP_KEY, .mode = STORE_PUT_ALWAYS, .version = version};
    if (conditional)
        put.mode = found ? STORE_PUT_IF_ABSENT : STORE_PUT_IF_MATCH;
    rc = lease_put(l, clock_boot_ms(), &put);
    return rc == -EEXIST ? another_sweeps(s) : rc;
}

int lease_begin_sweep(struct store *s, struct lease_handle **out)
{
    CLEANUP_FREE struct lease_handle *l = NULL;
    int rc = make(s, "", &l);
    if (rc)
        return rc;
    l->sweep = true;
    snprintf(l->key, sizeof l->key, "%s", LEASE_SWEEP_KEY);
    rc = announce(l);
    if (!rc)
        *out = steal_ptr(&l);
    return rc;
}

static int sweep_lapsed(uint64_t age_ms)
{
    return error_set(-EAGAIN,
                     "stood still for %llu s, so that builds may no longer wait for it; run the same command again",
                     (unsigned long long)age_ms / 1000);
}

int lease_renew_at(struct lease_handle *l, uint64_t now_ms)
{
    const uint64_t before_ms = l->written_ms, life_ms = LEASE_LIFE_MIN_S * 1000;
    if (now_ms - before_ms <= LEASE_RENEW_MS)
        return 0;
    if (l->sweep && now_ms - before_ms >= life_ms)
        return sweep_lapsed(now_ms - before_ms);
    int rc = lease_write(l, now_ms);
    /* Others see the old renewal until the put has ended, which may take long. */
    const uint64_t age_ms = GR_MAX(now_ms, clock_boot_ms()) - before_ms;
    if (rc || age_ms < life_ms)
        return rc;
    if (l->sweep) {
        l->written_ms = before_ms; /* it stays lapsed, also for lease_is_live */
        return sweep_lapsed(age_ms);
    }
    /* A sweep may have begun in the gap, so a lapsed lease is begun anew. */
    l->lapses++;
    return wait_for_sweep(l);
}

int lease_renew(struct lease_handle *l)
{
    return lease_renew_at(l, clock_boot_ms());
}

int lease_check_held(const struct lease_handle *l, unsigned lapses)
{
    if (l->lapses == lapses)
        return 0;
    return error_set(
        -EAGAIN,
        "%s: this machine or the store stood still for more than ten minutes, and a garbage collection may "
        "have removed objects of the image meanwhile; run the same command again",
        l->store->url);
}

bool lease_is_live(const struct lease_handle *l)
{
    return clock_boot_ms() - l->written_ms < LEASE_LIFE_MIN_S * 1000;
}

unsigned lease_lapses(const struct lease_handle *l)
{
    return l->lapses;
}

/* Is the document under our key still ours? Another gc may have taken our announcement for dead and replaced it. */
static bool is_ours(const struct lease_handle *l)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct lease there;
    if (!l->sweep || store_get_small(l->store, l->key, &doc, NULL) || lease_decode(doc.data, doc.len, &there))
        return true;
    return there.started == l->lease.started && there.pid == l->lease.pid && !strcmp(there.host, l->lease.host);
}

/* Keeps the thread's sentence: callers that failed end their lease on the way out. */
void lease_end(struct lease_handle *l)
{
    if (!l)
        return;
    struct error before;
    error_take(&before, 0);
    if (is_ours(l) && store_remove(l->store, l->key))
        log_warning("the lease %s could not be removed; a later gc removes it: %s", l->key, error_text());
    (void)error_restore(&before);
    lease_abandon(l);
}

void lease_abandon(struct lease_handle *l)
{
    free(l);
}

/* A listed lease. */
struct found {
    char key[LEASE_KEY_MAX + 64];
    int64_t mtime;
};

typedef VEC(struct found) found_list;

static void found_list_release(found_list *l)
{
    vec_release(l);
}

static int lease_collect(void *arg, const struct store_item *item)
{
    found_list *list = arg;
    struct found f = {.mtime = item->mtime};
    if (strlen(item->key) >= sizeof f.key)
        return 0; /* no build writes such a key */
    snprintf(f.key, sizeof f.key, "%s", item->key);
    return vec_push(list, f);
}

/* Set *out to the time of the lease's last renewal, by its document or the store, whichever is later: one of the
 * clocks may be wrong. -ENOENT: it ended meanwhile. */
static int last_sign(struct store *s, const struct found *f, int64_t *out)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct lease lease;
    int rc = store_get_small(s, f->key, &doc, NULL);
    if (rc && rc != -EMSGSIZE)
        return rc;
    *out = f->mtime;
    if (!rc && !lease_decode(doc.data, doc.len, &lease))
        *out = GR_MAX(f->mtime, lease.renewed);
    return 0;
}

int lease_count_live(struct store *s, int64_t now, int64_t grace_s, bool forget_dead, uint64_t *out)
{
    CLEANUP(found_list_release) found_list list = {0};
    *out = 0;
    int rc = store_list(s, "builds/", lease_collect, &list);
    for (size_t i = 0; i < list.len && !rc; i++) {
        int64_t seen;
        rc = last_sign(s, &list.items[i], &seen);
        /* It ended after it was listed. */
        if (rc == -ENOENT) {
            rc = 0;
            continue;
        }
        if (rc)
            break;
        if (now - seen < GR_MAX(grace_s, (int64_t)LEASE_LIFE_MIN_S))
            ++*out;
        else if (forget_dead)
            rc = store_remove(s, list.items[i].key);
    }
    return rc;
}
