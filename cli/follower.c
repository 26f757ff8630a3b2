/* A round of the loop:
 *
 *   each second     look: is everything mounted, do servers and reconnect daemons live?
 *   each --poll     ask for the tag -> have the version mounted -> have the server fetch its changes -> show it
 *                                      |  (first make room: take down the oldest that nobody uses)
 *                                      `- fails: the reason is kept, DIR/current stays, the next poll tries again
 *
 * Fetching may take hours. Meanwhile each line of the server's answer is a chance to look and to ask; if the tag names
 * yet another version by then, the fetching is given up for that. */
#include "cli/follower.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/output.h"

enum {
    LOOK_MS = 1000,
    BUSY_MS = 500,
    CLEAR_MS = 30000,
    HOOK_MS = 60000,
    ROOM_PAUSE_MAX_MS = 600000,
    REPORT_MS = 30000 /* whatever --poll is: the age of a report says whether the follower lives */
};

/* ---- the hook ---- */

/* Run the program with what happened in its environment. `before` may be zero. */
static void run_hook(const struct follower *w, const char *event, const struct digest *digest,
                     const struct digest *before)
{
    char now[PRINT_DIGEST_MAX], then[PRINT_DIGEST_MAX], version[PATH_MAX];
    const char *const argv[] = {w->c->hook, NULL};
    const char *const words[][2] = {{"GRANARY_EVENT", event},
                                    {"GRANARY_DIR", w->f.dir},
                                    {"GRANARY_IMAGE", w->f.image},
                                    {"GRANARY_DIGEST", print_digest(digest, now)},
                                    {"GRANARY_BEFORE", digest_is_zero(before) ? "" : print_digest(before, then)},
                                    {"GRANARY_VERSION", follow_version_link(&w->f, digest, version)},
                                    {"GRANARY_REASON", w->f.reason}};
    if (!w->c->hook)
        return;
    for (size_t i = 0; i < GR_ARRAY_SIZE(words); i++)
        setenv(words[i][0], words[i][1], 1);
    if (process_run(argv, HOOK_MS))
        log_warning("the hook: %s", error_text());
    for (size_t i = 0; i < GR_ARRAY_SIZE(words); i++)
        unsetenv(words[i][0]);
}

/* ---- looking ---- */

/* Return the mount of a version; false: it is not mounted. */
static bool version_is_there(const struct follower *w, const struct digest *digest, struct mount_state *out)
{
    char dir[PATH_MAX];
    return !mount_find(follow_version_dir(&w->f, digest, dir), out) && mount_is_there(out) &&
           digest_equal(&out->digest, digest);
}

/* Tell the server, when it is time. It will be told again, so a failure is no news. */
static void report(struct follower *w)
{
    if (clock_now_ms() < w->report_at_ms)
        return;
    if (follow_report(&w->f))
        log_debug("%s is not in the metrics: %s", w->f.dir, error_text());
    w->report_at_ms = clock_now_ms() + REPORT_MS;
}

/* Find the mount of a version. One that was unmounted, by others or by a follower that was killed, while somebody still
 * uses it is mounted again: it could be neither taken down nor made anew. */
static bool find_version(struct follower *w, const struct digest *digest, struct mount_state *out)
{
    char dir[PATH_MAX];
    if (version_is_there(w, digest, out))
        return true;
    int rc = mount_put_back(follow_version_dir(&w->f, digest, dir), out);
    if (rc < 0 && rc != -ENOENT && rc != -EBUSY) /* busy: another process works on it */
        log_limited(&w->limit, LOG_LEVEL_WARNING, "a version in use cannot be mounted again: %s", error_text());
    return rc > 0 && digest_equal(&out->digest, digest);
}

/* Check that what should be mounted is, and tend every version. Returns the reason to end. */
static int look(struct follower *w)
{
    struct mount_state s;
    w->look_at_ms = clock_now_ms() + LOOK_MS;
    while (waitpid(-1, NULL, WNOHANG) > 0) /* reconnect daemons that ended */
        ;
    int rc = follow_shows(&w->f);
    if (!rc && !digest_is_zero(&w->f.shown) && !follow_is_ending(&w->f)) { /* others have unmounted DIR/current */
        const struct digest shown = w->f.shown;
        if (follow_show(&w->f, &shown) < 0)
            log_limited(&w->limit, LOG_LEVEL_WARNING, "%s shows nothing: %s", w->f.dir, error_text());
    }
    for (size_t i = 0; rc >= 0 && i < w->f.count; i++)
        if (find_version(w, &w->f.versions[i].digest, &s))
            rc = mount_tend(&w->tending, &s);
    if (rc < 0 && rc != -ENOENT && rc != -EIO) { /* it may pass */
        log_limited(&w->limit, LOG_LEVEL_WARNING, "%s: %s", w->f.dir, error_text());
        rc = 0;
    }
    if (rc < 0)
        return rc;
    report(w);
    return 0;
}

/* ---- a version ---- */

/* Note since when it is behind, and have the server told soon. */
static void note_behind(struct follower *w)
{
    if (w->f.behind)
        return;
    w->f.behind = time(NULL);
    w->report_at_ms = 0;
    if (follow_save(&w->f))
        log_limited(&w->limit, LOG_LEVEL_WARNING, "%s", error_text());
}

/* Ask for the tag. -EAGAIN: the store did not answer. */
static int ask(struct follower *w, struct digest *out)
{
    bool from_store = false;
    w->ask_at_ms = clock_now_ms() + w->c->poll_ms;
    int rc = w->c->ask(w->c->arg, out, &from_store);
    if (!rc && !from_store)
        rc = error_set(-EAGAIN, "the tag of %s cannot be read: its store does not answer", w->f.image);
    return rc;
}

/* Take down versions that nobody uses, the oldest first, until one more may be mounted. Whether a container has a
 * version is known only while its directory is empty, so the pauses between two tries grow. */
static int make_room(struct follower *w)
{
    struct follow_state *f = &w->f;
    bool again = clock_now_ms() >= w->room_at_ms;
    for (size_t i = 0; f->count >= w->c->keep && again && i < f->count;) {
        const struct digest digest = f->versions[i].digest;
        bool needed = digest_equal(&digest, &f->shown) || digest_equal(&digest, &f->wanted);
        int rc = needed ? -EBUSY : follow_retire(f, &digest);
        if (rc && rc != -EBUSY)
            log_limited(&w->limit, LOG_LEVEL_WARNING, "an old version stays: %s", error_text());
        i += rc != 0;
    }
    if (f->count < w->c->keep) {
        w->room_at_ms = w->room_pause_ms = 0;
        return 0;
    }
    if (again) {
        w->room_pause_ms = GR_MIN(GR_MAX(2 * w->room_pause_ms, w->c->poll_ms), (uint64_t)ROOM_PAUSE_MAX_MS);
        w->room_at_ms = clock_now_ms() + w->room_pause_ms;
    }
    return error_set(-EBUSY, "all %zu versions are in use; the next one is mounted as soon as one of them is free",
                     f->count);
}

/* Report to the server of this version from now on. */
static int take_server(struct follower *w, const struct mount_state *s)
{
    if (!strcmp(w->f.control, s->control))
        return 0;
    follow_report_end(&w->f); /* to the server before */
    snprintf(w->f.control, sizeof w->f.control, "%s", s->control);
    w->report_at_ms = 0;
    return follow_save(&w->f);
}

/* Have a version mounted at its directory. What a killed follower left of it is repaired by mount_image. */
static int have_version(struct follower *w, const struct digest *digest)
{
    char dir[PATH_MAX];
    struct mount_state s;
    struct error first;
    bool listed = follow_find(&w->f, digest);
    if (listed && find_version(w, digest, &s))
        return take_server(w, &s);
    int rc = listed ? 0 : make_room(w);
    if (!rc)
        rc = follow_add(&w->f, digest);
    if (rc)
        return rc;
    rc = w->c->mount(w->c->arg, follow_version_dir(&w->f, digest, dir), &s);
    if (!rc)
        return take_server(w, &s);
    error_take(&first, rc);
    if (follow_retire(&w->f, digest))
        log_debug("what is left of a version: %s", error_text());
    return error_restore(&first);
}

/* ---- fetching ---- */

/* What the server's answer has reported so far. */
struct fetching {
    struct follower *w;
    bool done; /* the final sums have arrived */
};

/* Take the sums. What is missing without an error did not fit into the cache: waiting would not help. */
static int take_sums(struct fetching *g, const json_t *sums)
{
    const char *why = json_string_value(json_object_get(sums, "error"));
    uint64_t chunks = control_number(sums, "chunks"), missing = chunks - control_number(sums, "cached_chunks");
    char size[TEXT_SIZE_MAX];
    g->done = true;
    if (missing && why && *why)
        return error_set(-EIO, "%llu of %llu changed chunks are not cached yet: %s", (unsigned long long)missing,
                         (unsigned long long)chunks, why);
    if (missing)
        log_warning("%s: %llu of %llu changed chunks are not cached: the cache is too small", g->w->f.dir,
                    (unsigned long long)missing, (unsigned long long)chunks);
    log_info("%s: %s of changes fetched in %.1f s", g->w->f.dir,
             text_format_size(control_number(sums, "warmed_bytes"), size),
             json_number_value(json_object_get(sums, "seconds")));
    return 0;
}

/* Between two lines: look, and ask whether this is still what is wanted. */
static int look_meanwhile(struct follower *w)
{
    struct digest now;
    int rc = cancel_check(w->c->cancel);
    if (!rc && clock_now_ms() >= w->look_at_ms)
        rc = look(w);
    if (rc || clock_now_ms() < w->ask_at_ms || ask(w, &now) || digest_equal(&now, &w->f.wanted))
        return rc;
    w->moved_on = true;
    return error_set(-ECANCELED, "the tag has moved on");
}

/* Take one line of the answer. */
static int take_line(void *arg, const char *line, size_t len)
{
    struct fetching *g = arg;
    json_t *sums = NULL;
    int rc = look_meanwhile(g->w);
    if (!rc)
        rc = control_warm_sums(line, len, &sums);
    if (sums)
        rc = take_sums(g, sums);
    json_decref(sums);
    return rc;
}

/* Have the server fetch what the version that is shown lacks. */
static int fetch_changes(struct follower *w, const struct digest *digest)
{
    struct fetching g = {.w = w};
    struct mount_state s, shown;
    char since[PRINT_DIGEST_MAX];
    const struct bytes nothing = BYTES_INIT(0);
    struct control_turn turn = {.cancel = w->c->cancel};
    if (w->c->keeps_nothing || digest_is_zero(&w->f.shown) || !version_is_there(w, digest, &s))
        return 0;
    if (!version_is_there(w, &w->f.shown, &shown) || strcmp(shown.control, s.control) != 0) {
        log_warning("%s: the changes were not cached before the switch: another server has the version that is shown",
                    w->f.dir);
        return 0;
    }
    const char *const params[] = {"what", "changes", "export", s.export_name, "since", print_digest(&w->f.shown, since),
                                  NULL};
    int rc;
    do
        rc = control_post(s.control, "/warm", params, &nothing, take_line, &g);
    while (control_turn(rc, &turn));
    if (cancel_check(w->c->cancel)) /* it also ends the wait for an answer */
        return -ECANCELED;
    return rc || g.done ? rc : error_set(-EIO, "the answer of the server on %s ended early", s.control);
}

/* ---- a round ---- */

/* Note that what the tag names is shown. */
static int note_shown(struct follower *w)
{
    w->report_at_ms = 0;
    w->f.behind = 0;
    *w->f.reason = 0;
    return follow_save(&w->f);
}

/* Show the version that the tag names; log it and run the hook. */
static int show(struct follower *w, const struct digest *digest)
{
    const struct digest before = w->f.shown;
    char hex[PRINT_DIGEST_MAX];
    if (follow_is_ending(&w->f)) /* if not after all, the next poll shows it */
        return 0;
    int rc = follow_show(&w->f, digest);
    if (rc < 0)
        return rc;
    int saved = note_shown(w);
    if (!rc || saved)
        return saved;
    log_info("%s shows %s, %s now", w->f.dir, w->f.image, print_digest(digest, hex));
    run_hook(w, "switched", digest, &before);
    return 0;
}

/* Keep the thread's sentence as the reason why DIR/current stays. The hook is told of the first one only. */
static void note_reason(struct follower *w)
{
    char reason[FOLLOW_REASON_MAX];
    bool first = !*w->f.reason;
    snprintf(reason, sizeof reason, "%s", error_text());
    note_behind(w);
    if (!strcmp(reason, w->f.reason))
        return;
    memcpy(w->f.reason, reason, sizeof reason);
    log_limited(&w->limit, LOG_LEVEL_WARNING, "%s stays as it is: %s", w->f.dir, reason);
    if (follow_save(&w->f))
        log_limited(&w->limit, LOG_LEVEL_WARNING, "%s", error_text());
    if (first)
        run_hook(w, "waiting", &w->f.wanted, &w->f.shown);
}

/* Bring the directory to what the tag names. */
static int catch_up(struct follower *w)
{
    struct digest wanted;
    int rc = ask(w, &wanted);
    if (rc)
        return rc;
    w->f.wanted = wanted;
    if (digest_equal(&wanted, &w->f.shown) && !w->f.behind)
        return 0;
    note_behind(w);
    rc = have_version(w, &wanted);
    if (!rc && !digest_equal(&wanted, &w->f.shown))
        rc = fetch_changes(w, &wanted);
    return rc ? rc : show(w, &wanted);
}

/* One poll. Returns the reason to end. */
static int poll_tag(struct follower *w)
{
    int rc = catch_up(w);
    if (w->moved_on)
        w->ask_at_ms = w->look_at_ms;
    w->moved_on = false;
    if (!rc || rc == -ECANCELED)
        return 0;
    note_reason(w);
    return look(w); /* the error may be one of a look in between */
}

/* ---- life ---- */

/* Show the version that the tag names now. A table of earlier answers will do: a machine may start while its store is
 * away. */
static int show_first(struct follower *w)
{
    struct digest wanted;
    bool from_store;
    int rc = w->c->ask(w->c->arg, &wanted, &from_store);
    if (rc)
        return rc;
    w->f.wanted = wanted;
    rc = have_version(w, &wanted);
    if (!rc)
        rc = follow_show(&w->f, &wanted);
    return rc < 0 ? rc : 0;
}

/* Undo what was begun; return the error that rc and the thread's sentence describe. */
static int undo(struct follower *w, int rc)
{
    struct error first;
    error_take(&first, rc);
    if (follow_remove(w->f.dir, false, w->lock))
        log_warning("while undoing the mount: %s", error_text());
    return error_restore(&first);
}

int follower_open(struct follower *w, const struct follower_config *c, bool *out_begun)
{
    struct mount_state s;
    *w = (struct follower){.c = c, .lock = -1, .tending = MOUNT_TENDING_INIT, .limit = LOG_LIMIT_INIT};
    bool made = false;
    int rc = follow_claim(c->dir, c->image, &w->f, &w->lock);
    const bool fresh = !rc && !w->f.count && digest_is_zero(&w->f.shown);
    if (!rc)
        rc = follow_make(&w->f, &made);
    if (!rc && !made)
        rc = follow_recognize(&w->f);
    bool goes_on = !rc && !digest_is_zero(&w->f.shown) && find_version(w, &w->f.shown, &s);
    *out_begun = made || fresh;
    if (goes_on) {
        const struct digest shown = w->f.shown;
        rc = follow_show(&w->f, &shown);
        return rc < 0 ? rc : 0;
    }
    if (!rc && !follow_shows(&w->f)) /* a version that is neither shown nor mounted keeps no place */
        w->f.shown = (struct digest){{0}};
    if (!rc)
        rc = show_first(w);
    return rc && *out_begun ? undo(w, rc) : rc;
}

void follower_close(struct follower *w)
{
    if (w->lock >= 0)
        close(w->lock);
    w->lock = -1;
}

/* Take everything down; while something is in use, try again until a second signal ends the process. */
static int end(struct follower *w)
{
    bool reported = false;
    notify("STOPPING=1");
    for (;;) {
        int rc = follow_remove(w->f.dir, false, w->lock);
        if (rc != -EBUSY)
            return rc == -ENOENT ? 0 : rc;
        if (!reported)
            log_warning("%s; it will be unmounted as soon as nothing uses it", error_text());
        reported = true;
        (void)poll(NULL, 0, BUSY_MS);
    }
}

/* Take down the rest after the directory failed, and return the error of rc. The kernel may hold a device for a moment
 * after its last mount has gone. */
static int clear_away(struct follower *w, int rc)
{
    struct error first;
    error_take(&first, rc);
    const bool force = rc == -EIO;
    const uint64_t deadline_ms = clock_now_ms() + CLEAR_MS;
    while ((rc = follow_remove(w->f.dir, force, w->lock)) == -EBUSY && clock_now_ms() < deadline_ms)
        (void)poll(NULL, 0, BUSY_MS);
    if (rc && rc != -ENOENT)
        log_warning("while taking down the rest: %s", error_text());
    return error_restore(&first);
}

int follower_run(struct follower *w)
{
    int rc = 0;
    notify("READY=1");
    while (!rc && !cancel_asked(w->c->cancel)) {
        if (clock_now_ms() >= w->look_at_ms)
            rc = look(w);
        if (!rc && clock_now_ms() >= w->ask_at_ms)
            rc = poll_tag(w);
        if (!rc && w->ask_at_ms)
            interrupt_pause_until(GR_MIN(w->look_at_ms, w->ask_at_ms));
    }
    return cancel_asked(w->c->cancel) ? end(w) : clear_away(w, rc);
}
