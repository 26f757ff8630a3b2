/* Images whose tag is followed: `granary mount --follow` without a mount (docs/internals/follow.md). Each version is an
 * added export, NAME@sha256:HEX; NAME leads to one of them (stack_show). A round of the thread, each `poll`:
 *
 *   ask for the tag -> add the version -> fetch its changes -> ask again -> have the name lead to it
 *                      |  (first make room: remove the oldest that nobody uses)
 *                      `- fails: the reason is kept, the name stays where it is, the next round tries again
 *
 * The list of added exports is the state: a server that was killed serves every version again under its own name, so a
 * client that comes back finds the bytes that it had. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"
#include "image/warm/warm_run.h"
#include "server/server_internal.h"
#include "stack_options.h"

/* COME_BACK_MS: clients whose connection ended have this long to connect to their versions again; so have, after a
 * start, those of the process before.
 * MOVED_PAUSE_MS: a tag that moves all the time does not fill the log and the file of exports. */
enum {
    STORE_TIMEOUT_MS = 30000,
    HOOK_MS = 60000,
    COME_BACK_MS = 30000,
    REPORT_MS = 30000,
    MOVED_PAUSE_MS = 1000,
    DIGEST_NAME_MAX = DIGEST_HEX_SIZE + 8
};

/* One followed image. */
struct followed {
    const struct stack_image *image; /* by tag */
    const char *name;                /* of the stack */
    struct digest shown, wanted;
    uint64_t switches;
    uint64_t behind_ms;          /* since when what is wanted is not shown; 0: it is */
    char reason[ERROR_TEXT_MAX]; /* why; empty: it is shown */
};

struct followed_exports {
    const struct stack_options *options;
    struct stack *stack;
    struct added_exports *added;
    struct reports *reports;
    struct followed *images;
    size_t count;
    uint64_t room_at_ms;   /* before it no version is removed */
    uint64_t report_at_ms; /* when the metrics are due */
    pthread_t thread;
    bool started;
    volatile int ending; /* set under lock; read without it, by the stores too */
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* ---- versions ---- */

static char *digest_name(const struct digest *d, char out[DIGEST_NAME_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    if (digest_is_zero(d))
        *out = 0;
    else
        snprintf(out, DIGEST_NAME_MAX, "sha256:%s", digest_hex(d, hex));
    return out;
}

/* Write the name of a version's export; return out. */
static char *version_name(const struct followed *w, const struct digest *d, char out[STACK_EXPORT_NAME_MAX + 1])
{
    char text[DIGEST_NAME_MAX];
    snprintf(out, STACK_EXPORT_NAME_MAX + 1, "%s@%s", w->name, digest_name(d, text));
    return out;
}

/* Whether an export is a version of this image. */
static bool is_version(const struct followed *w, const struct stack_export *e)
{
    char name[STACK_EXPORT_NAME_MAX + 1];
    return !strcmp(stack_export_name(e), version_name(w, &stack_export_ref(e)->digest, name));
}

static size_t count_versions(struct followed_exports *f, const struct followed *w)
{
    size_t n = 0;
    for (struct stack_export *e = NULL; (e = stack_next(f->stack, e));)
        n += is_version(w, e);
    return n;
}

/* May the clients of a version be about to connect again? Devices of the kernel and of virtual machines do when they
 * lose a connection. */
static bool may_come_back(const struct stack_export *e)
{
    uint64_t left_ms = stack_export_left_ms(e);
    return left_ms && clock_now_ms() < left_ms + COME_BACK_MS;
}

/* Remove versions that nobody uses, the oldest first, until `keep` are left. -EBUSY: more stay. */
static int make_room(struct followed_exports *f, const struct followed *w, size_t keep)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    size_t n = count_versions(f, w);
    while (n > keep && clock_now_ms() >= f->room_at_ms && (e = stack_next(f->stack, e))) {
        const struct digest *d = &stack_export_ref(e)->digest;
        bool removed = false;
        if (!is_version(w, e) || digest_equal(d, &w->shown) || digest_equal(d, &w->wanted) || may_come_back(e))
            continue;
        int rc = added_exports_remove(f->added, stack_export_name(e), ADDED_FOR_USER, &removed);
        if (rc && removed)
            log_warning("an old version is removed, but a restart brings it back: %s", error_text());
        else if (rc && rc != -EBUSY)
            log_warning("an old version stays: %s", error_text());
        n -= removed;
    }
    if (n <= keep)
        return 0;
    if (clock_now_ms() < f->room_at_ms)
        return error_set(-EBUSY,
                         "all %zu versions are kept for the clients of the server before, which have %d s to connect "
                         "again",
                         n, COME_BACK_MS / 1000);
    return error_set(-EBUSY, "all %zu versions are in use; the next one is added as soon as one of them is free", n);
}

/* Write the reference by which a version is added: by digest, so that the tables beside the cache keep its manifest
 * when the tag has moved on. With trusted keys by tag, which has the signature; then the tables keep what is signed. */
static int version_ref(const struct followed_exports *f, const struct followed *w, char out[IMAGE_REF_MAX])
{
    struct image_ref ref;
    int rc = image_ref_parse(w->image->ref, &ref);
    if (!rc && !f->options->stack.trust.count) {
        ref.by_digest = true;
        ref.digest = w->wanted;
        *ref.tag = 0;
    }
    image_ref_text(&ref, out);
    return rc;
}

/* Have a start without the store lead the name to this version. */
static void note_tag(const struct followed_exports *f, const struct followed *w, const struct digest *version)
{
    if (stack_note_tag(f->stack, w->image, version))
        log_warning("a start without the store would not know what %s names: %s", w->image->ref, error_text());
}

/* Have the version that is wanted among the exports. A tag that has moved again is refused (-ESTALE): the export's name
 * has another digest; and so is an export that somebody added with keys or a fence (-EEXIST): not all clients can read
 * it. *out: stack_put it. */
static int have_version(struct followed_exports *f, const struct followed *w, struct stack_export **out)
{
    char name[STACK_EXPORT_NAME_MAX + 1], ref[IMAGE_REF_MAX];
    const struct stack_image image = {.ref = ref, .export_name = version_name(w, &w->wanted, name)};
    CLEANUP(cleanup_stack_export) struct stack_export *there = stack_get(f->stack, name);
    if (there && (stack_export_keys(there) || stack_export_fenced(there)))
        return error_set(-EEXIST, "the export '%s' is there with keys or a fence of its own; remove it", name);
    *out = steal_ptr(&there);
    if (*out)
        return 0;
    int rc = version_ref(f, w, ref);
    if (!rc && !digest_is_zero(&w->shown))
        rc = make_room(f, w, f->options->keep - 1);
    if (!rc)
        rc = added_exports_put(f->added, &image, ADDED_FOR_USER, &f->ending, out);
    /* By tag, adding has told the tables that the tag names it, and nothing of it is cached yet. */
    if (!rc && f->options->stack.trust.count && !digest_is_zero(&w->shown))
        note_tag(f, w, &w->shown);
    return rc;
}

/* ---- metrics and status ---- */

/* Report it to the metrics and to /status. */
static void report(struct followed_exports *f, const struct followed *w)
{
    uint64_t now = clock_now_ms();
    union report r = {.followed = {.versions = count_versions(f, w),
                                   .switches = w->switches,
                                   .behind_s = w->behind_ms ? 1 + (now - w->behind_ms) / 1000 : 0,
                                   .shown = w->shown}};
    snprintf(r.followed.image, sizeof r.followed.image, "%s", w->image->ref);
    snprintf(r.followed.reason, sizeof r.followed.reason, "%s", w->reason);
    if (reports_put(f->reports, REPORT_FOLLOWED, w->name, &r, now))
        log_debug("%s is neither in the metrics nor in the status: %s", w->name, error_text());
}

/* The same for all, if it is time: pauses and fetches may be long, and a report that grows old means that nobody
 * follows. */
static void report_due(struct followed_exports *f)
{
    if (clock_now_ms() < f->report_at_ms)
        return;
    f->report_at_ms = clock_now_ms() + REPORT_MS;
    for (size_t i = 0; i < f->count; i++)
        report(f, &f->images[i]);
}

/* ---- fetching ---- */

static int check_ending(void *arg, const struct warm_report *report)
{
    struct followed_exports *f = arg;
    report_due(f);
    return cancel_check(&f->ending);
}

static int pass_over(void *arg, const char *path, size_t len, const char *why)
{
    return check_ending(arg, NULL);
}

/* What is missing without an error did not fit into the cache: waiting would not help. */
static int take_result(const struct followed *w, const struct warm_result *r)
{
    char size[TEXT_SIZE_MAX];
    if (r->after.missing && r->error.code)
        return error_set(-EIO, "%llu of %llu changed chunks are not cached yet: %s",
                         (unsigned long long)r->after.missing, (unsigned long long)r->after.chunks, r->error.text);
    if (r->after.missing)
        log_warning("%s: %llu of %llu changed chunks are not cached: the cache is too small", w->name,
                    (unsigned long long)r->after.missing, (unsigned long long)r->after.chunks);
    log_info("%s: %s of changes fetched", w->name, text_format_size(r->warmed_bytes, size));
    return 0;
}

/* Fetch what the version that is shown lacks, at warming's priority. */
static int fetch_changes(struct followed_exports *f, const struct followed *w, struct stack_export *e)
{
    char name[STACK_EXPORT_NAME_MAX + 1];
    CLEANUP(cleanup_store) struct store *store = NULL;
    CLEANUP(cleanup_stack_export) struct stack_export *since = stack_get(f->stack, version_name(w, &w->shown, name));
    const struct cache_config *cache = &f->options->stack.cache;
    struct warm_result result = {0};
    if (!since || (!cache->dir_count && !cache->memory))
        return 0;
    int rc = stack_open_store(f->stack, e, STORE_TIMEOUT_MS, &f->ending, &store);
    const struct warm_config config = {.img = stack_export_image(e),
                                       .store = store,
                                       .what = WARM_CHANGES,
                                       .since = stack_export_image(since),
                                       .tell = check_ending,
                                       .failed = pass_over,
                                       .arg = f};
    if (!rc)
        rc = warm_run(&config, &result);
    return rc ? rc : take_result(w, &result);
}

/* ---- a round ---- */

/* Run the program with what happened in its environment: env(1) sets it, since other threads read this process's. What
 * the supervisor told this process is not for the hook: a server that it starts would believe it, too. */
static void run_hook(const struct followed_exports *f, const struct followed *w, const char *event,
                     const struct digest *before)
{
    enum { WORDS_AT = 9 }; /* after env and four times -u NAME */
    char now[DIGEST_NAME_MAX], then[DIGEST_NAME_MAX], version[STACK_EXPORT_NAME_MAX + 1];
    const char *const words[][2] = {{"EVENT", event},
                                    {"EXPORT", w->name},
                                    {"IMAGE", w->image->ref},
                                    {"DIGEST", digest_name(&w->wanted, now)},
                                    {"BEFORE", digest_name(before, then)},
                                    {"VERSION", digest_is_zero(&w->wanted) ? "" : version_name(w, &w->wanted, version)},
                                    {"REASON", w->reason}};
    const char *argv[WORDS_AT + GR_ARRAY_SIZE(words) + 2] = {
        "env", "-u", "GRANARY_SUPERVISOR", "-u", KEPT_KEYS_FD, "-u", "GRANARY_RESOLVED", "-u", "GRANARY_LOG"};
    char *owned[GR_ARRAY_SIZE(words)] = {0};
    bool whole = f->options->hook;
    for (size_t i = 0; whole && i < GR_ARRAY_SIZE(words); i++) {
        whole = asprintf(&owned[i], "GRANARY_%s=%s", words[i][0], words[i][1]) >= 0;
        argv[WORDS_AT + i] = owned[i];
    }
    argv[WORDS_AT + GR_ARRAY_SIZE(words)] = f->options->hook;
    if (whole && process_run_until(argv, HOOK_MS, &f->ending))
        log_warning("the hook %s: %s", f->options->hook, error_text());
    for (size_t i = 0; i < GR_ARRAY_SIZE(words); i++)
        free(owned[i]);
}

/* -EAGAIN: the store did not answer. */
static int ask(struct followed_exports *f, const struct followed *w, struct digest *out)
{
    bool from_store = false;
    int rc = stack_ask(f->stack, w->image, &f->ending, out, &from_store);
    if (!rc && !from_store)
        rc = error_set(-EAGAIN, "the tag of %s cannot be read: its store does not answer", w->image->ref);
    return rc;
}

/* Have the name lead to a version; log it and run the hook. -ENOENT: the version has just been removed. */
static int show(struct followed_exports *f, struct followed *w, struct stack_export *e)
{
    char text[DIGEST_NAME_MAX];
    const struct digest before = w->shown;
    bool first = digest_is_zero(&before), other = !digest_equal(&before, &w->wanted);
    int rc = stack_show(f->stack, (size_t)(w - f->images), e);
    if (rc)
        return rc;
    w->shown = w->wanted;
    w->behind_ms = 0;
    *w->reason = 0;
    w->switches += other && !first;
    report(f, w);
    if (other)
        log_info("export '%s' leads to %s, %s now", w->name, w->image->ref, digest_name(&w->shown, text));
    if (other && !first)
        run_hook(f, w, "switched", &before);
    return 0;
}

/* Bring the name to what the tag names. */
static int catch_up(struct followed_exports *f, struct followed *w)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    struct digest now;
    int rc = ask(f, w, &now);
    if (rc)
        return rc;
    w->wanted = now;
    bool other = !digest_equal(&now, &w->shown);
    if (other && !w->behind_ms)
        w->behind_ms = clock_now_ms();
    report(f, w);
    rc = have_version(f, w, &e);
    if (rc == -ESTALE)
        return error_set(-ECANCELED, "the tag has moved on");
    if (!rc && other)
        rc = fetch_changes(f, w, e);
    if (!rc && other)
        rc = ask(f, w, &now); /* fetching may take hours */
    if (rc)
        return rc;
    if (!digest_equal(&now, &w->wanted))
        return error_set(-ECANCELED, "the tag has moved on");
    if (other)
        note_tag(f, w, &w->wanted);
    return show(f, w, e);
}

/* Keep the thread's sentence as the reason why the name stays. The hook is told of the first one only. */
static void note_reason(struct followed_exports *f, struct followed *w)
{
    bool first = !*w->reason;
    if (!w->behind_ms)
        w->behind_ms = clock_now_ms();
    if (strcmp(w->reason, error_text()) != 0)
        log_warning("export '%s' stays as it is: %s", w->name, error_text());
    snprintf(w->reason, sizeof w->reason, "%s", error_text());
    report(f, w);
    if (first)
        run_hook(f, w, "waiting", &w->shown);
}

/* One round. Returns false if it is to be repeated soon: the tag has moved on. */
static bool round_of(struct followed_exports *f, struct followed *w)
{
    int rc = catch_up(f, w);
    if (cancel_asked(&f->ending) || rc == -ECANCELED)
        return rc != -ECANCELED;
    if (rc)
        note_reason(f, w);
    else if (make_room(f, w, f->options->keep))
        log_debug("%s: %s", w->name, error_text());
    report(f, w);
    return true;
}

static void pause_for(struct followed_exports *f, uint64_t ms)
{
    const uint64_t end_ms = clock_now_ms() + ms;
    while (!cancel_asked(&f->ending) && clock_now_ms() < end_ms) {
        report_due(f);
        struct timespec until = clock_at_ms(GR_MIN(end_ms, f->report_at_ms));
        int rc = 0;
        SCOPED_LOCK(&f->lock);
        while (!f->ending && rc != ETIMEDOUT)
            rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
    }
}

static void *followed_exports_run(void *arg)
{
    struct followed_exports *f = arg;
    bool done = true;
    while (!cancel_asked(&f->ending)) {
        pause_for(f, done ? f->options->poll_ms : GR_MIN(f->options->poll_ms, (uint64_t)MOVED_PAUSE_MS));
        done = true;
        for (size_t i = 0; i < f->count && !cancel_asked(&f->ending); i++)
            done &= round_of(f, &f->images[i]);
    }
    return NULL;
}

/* ---- life ---- */

/* Show what the tag names now. A table of earlier answers will do: a machine may start while its store is away. */
static int show_first(struct followed_exports *f, struct followed *w)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    bool from_store = false;
    int rc = stack_ask(f->stack, w->image, &f->ending, &w->wanted, &from_store);
    if (!rc)
        rc = have_version(f, w, &e);
    if (!rc && from_store)
        note_tag(f, w, &w->wanted);
    return rc ? rc : show(f, w, e);
}

/* A start after the first serves the versions of before by their own names, whatever became of the tag: clients have
 * them. The name leads nowhere until a round shows what the tag names. */
static int go_without(struct followed_exports *f, struct followed *w, int rc)
{
    if (!rc || rc == -ENOMEM || !count_versions(f, w))
        return rc;
    log_warning("export '%s' leads nowhere yet, and its versions are served by their own names only: %s", w->name,
                error_text());
    w->wanted = (struct digest){{0}};
    w->behind_ms = clock_now_ms();
    return 0;
}

int followed_exports_open(const struct stack_options *options, struct stack *stack, struct added_exports *added,
                          struct reports *reports, struct followed_exports **out)
{
    size_t n = options->stack.followed_count;
    if (!n)
        return 0;
    struct followed_exports *f = calloc(1, sizeof *f);
    if (!f)
        return error_no_memory();
    *f = (struct followed_exports){.options = options, .stack = stack, .added = added, .reports = reports, .count = n};
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->changed);
    *out = f; /* followed_exports_end frees it, also after a failure */
    f->images = calloc(n, sizeof *f->images);
    int rc = f->images ? 0 : error_no_memory();
    for (size_t i = 0; !rc && i < n; i++) {
        f->images[i] = (struct followed){.image = &options->stack.followed[i], .name = stack_followed(stack, i)};
        rc = go_without(f, &f->images[i], show_first(f, &f->images[i]));
    }
    return rc;
}

int followed_exports_start(struct followed_exports *f)
{
    f->room_at_ms = clock_now_ms() + COME_BACK_MS; /* opening may have waited for stores */
    int rc = thread_start(&f->thread, followed_exports_run, f);
    f->started = !rc;
    return rc;
}

void followed_exports_end(struct followed_exports *f)
{
    if (!f)
        return;
    {
        SCOPED_LOCK(&f->lock);
        __atomic_store_n(&f->ending, 1, __ATOMIC_RELAXED);
        pthread_cond_signal(&f->changed);
    }
    if (f->started)
        pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f->images);
    free(f);
}
