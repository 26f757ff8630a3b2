/* The only callers of the operations of sources (tests/style/banned.sh checks it). What is the same for all kinds is
 * here once: defaults for operations that a kind lacks, small helpers for implementations, and the pauses between
 * retries. */
#include "imagebuild/source/source.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/retry.h"
#include "base/thread.h"
#include "format/catalog.h"
#include "imagebuild/source/source_internal.h"

struct source_entry source_entry_of_catalog(const struct catalog_entry *e)
{
    struct source_entry out = {.path = e->path,
                               .path_len = e->path_len,
                               .mode = e->mode,
                               .uid = e->uid,
                               .gid = e->gid,
                               .size = e->size,
                               .mtime = e->mtime,
                               .mtime_nsec = e->mtime_nsec,
                               .validator = e->validator,
                               .validator_len = e->validator_len};
    if (S_ISLNK(e->mode)) {
        out.target = e->hard_link ? "-" : e->target;
        out.target_len = e->hard_link ? 1 : e->target_len;
    }
    return out;
}

/* ---- operations ---- */

int source_list(struct source *s, source_visit *visit, void *arg)
{
    return s->ops->list(s, visit, arg);
}

void source_ask_counts(struct source *s, struct source_counts *out)
{
    if (s->ops->counts)
        s->ops->counts(s, out);
}

/* A kind that lacks an operation leaves it NULL. */
bool source_can_look(const struct source *s)
{
    return s->ops->look;
}

int source_look(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg)
{
    if (!s->ops->look)
        return error_set(-ENOTSUP, "source: %s can only be listed as a whole", s->url);
    return s->ops->look(s, ask, visit, arg);
}

bool source_streams(const struct source *s)
{
    return s->ops->streams && s->ops->streams(s);
}

bool source_can_know(const struct source *s)
{
    return s->ops->set_known;
}

int source_set_known(struct source *s, const struct source_known *known)
{
    return s->ops->set_known ? s->ops->set_known(s, known) : 0;
}

bool source_name_origin(struct source *s, const struct source_entry *e, char *out, size_t size)
{
    return s->ops->name_origin && s->ops->name_origin(s, e, out, size);
}

int source_read(struct source *s, const struct source_read *read)
{
    assert(read->validator_len <= SOURCE_VALIDATOR_MAX);
    return s->ops->read(s, read);
}

int source_stat(struct source *s, const char *path, size_t path_len, struct source_version *out)
{
    return s->ops->stat(s, path, path_len, out);
}

void source_cancel(struct source *s)
{
    if (s->ops->cancel)
        s->ops->cancel(s);
}

void source_close(struct source *s)
{
    if (s)
        s->ops->close(s);
}

/* ---- for implementations ---- */

bool source_counts_vanished(struct source_counts *c, const char *path, size_t len)
{
    /* the first one is kept as an example for the summary */
    if (!c->vanished)
        snprintf(c->first_vanished, sizeof c->first_vanished, "%.*s", (int)GR_MIN(len, sizeof c->first_vanished), path);
    return c->vanished++ < SOURCE_VANISHED_NAMED;
}

void source_warn_vanished(const char *path, size_t len)
{
    log_warning("source: '%.*s' was named where it should be, but is not there: it is left out",
                (int)GR_MIN(len, (size_t)1024), path);
}

/* Sources that contain others add up the counts of their parts; the first example is as good as any. */
void source_counts_add(struct source_counts *to, const struct source_counts *from)
{
    if (!to->vanished)
        memcpy(to->first_vanished, from->first_vanished, sizeof to->first_vanished);
    to->vanished += from->vanished;
    to->owners_unknown += from->owners_unknown;
}

/* A key or an address has no owner and no mode. These are the values that the listing of such a source has too. */
int source_tell(const struct source_ask *ask, const struct source_version *now, source_visit *visit, void *arg)
{
    const struct source_entry e = {.path = ask->path,
                                   .path_len = ask->path_len,
                                   .mode = S_IFREG | 0644,
                                   .size = now->size,
                                   .mtime = now->mtime,
                                   .validator = now->validator,
                                   .validator_len = now->validator_len};
    return visit(arg, &e);
}

int source_take(void *arg, const void *data, size_t len)
{
    struct source_target *t = arg;
    /* checked before copying: the length is the server's word */
    if (len > t->len - t->done)
        return error_set(-EBADMSG, "source: the server sent more bytes than were asked for");
    memcpy(t->dst + t->done, data, len);
    t->done += len;
    return 0;
}

/* ------------------------------------------------------------------ retries */

/* Exponential pauses with jitter: 100 ms at first, doubled up to 5 s.
 *
 * A pause can end early in two ways. source_retry_cancel sets a flag and signals the condition. A signal handler sets
 * *interrupted but may not signal a condition, so waits wake every LOOK_MS and look at it.
 */

enum { PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 5000, LOOK_MS = 200, TIMEOUT_DEFAULT_MS = 300000 };

void source_retry_init(struct source_retry *r, const char *url, const struct source_options *options)
{
    *r = (struct source_retry){.url = url,
                               .timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_DEFAULT_MS,
                               .interrupted = options->cancel};
    thread_cond_init(&r->cancelling);
    pthread_mutex_init(&r->lock, NULL);
}

void source_retry_release(struct source_retry *r)
{
    pthread_cond_destroy(&r->cancelling);
    pthread_mutex_destroy(&r->lock);
}

static bool is_over_locked(const struct source_retry *r)
{
    return r->cancelled || (r->interrupted && *r->interrupted);
}

/* Wait for ms milliseconds. -ECANCELED as soon as the build is to end. */
static int source_retry_pause_for(struct source_retry *r, unsigned ms)
{
    uint64_t until = clock_now_ms() + ms, now;
    SCOPED_LOCK(&r->lock);
    while (!is_over_locked(r) && (now = clock_now_ms()) < until) {
        struct timespec at = clock_at_ms(now + GR_MIN(until - now, (uint64_t)LOOK_MS));
        pthread_cond_timedwait(&r->cancelling, &r->lock, &at);
    }
    if (is_over_locked(r))
        return error_set(-ECANCELED, "source: %s: the build was stopped while it waited for the server", r->url);
    return 0;
}

/* retry_warn, with the source's URL. */
static void warn_of_trouble(struct source_retry *r, const struct source_try *t)
{
    char prefix[250];
    snprintf(prefix, sizeof prefix, "source: %.200s: ", r->url);
    retry_warn(&r->warned_ms, t->until_ms - r->timeout_ms, r->timeout_ms, prefix);
}

int source_retry_wait(struct source_retry *r, struct source_try *t, int rc)
{
    if (rc != -EAGAIN && rc != -ETIMEDOUT)
        return rc;
    uint64_t now = clock_now_ms();
    if (!t->until_ms) {
        t->until_ms = now + r->timeout_ms;
        t->pause_ms = PAUSE_FIRST_MS;
    }
    if (now + t->pause_ms > t->until_ms)
        return error_prefix(rc, "source: no success for %llu s of retries", (unsigned long long)r->timeout_ms / 1000);
    warn_of_trouble(r, t);
    /* Half of the pause is certain, half random: readers that failed together must not retry together. */
    uint64_t pause = t->pause_ms / 2 + retry_jitter(t->pause_ms / 2) + retry_asked_ms();
    pause = GR_MIN(pause, t->until_ms - now);
    t->pause_ms = GR_MIN(t->pause_ms * 2, (unsigned)PAUSE_MAX_MS);
    return source_retry_pause_for(r, (unsigned)pause);
}

void source_retry_cancel(struct source_retry *r)
{
    SCOPED_LOCK(&r->lock);
    r->cancelled = true;
    pthread_cond_broadcast(&r->cancelling);
}
