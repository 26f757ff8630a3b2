/* granary mount --follow IMAGE DIR
 *
 *   --foreground   mounts, then follows the tag until it is told to end
 *   without        mounts, then starts itself with the same words and --foreground, which goes on with what is there
 *
 * So whatever ends a follower, the same command line goes on where it was. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "cli/follower.h"
#include "cli/verbs/cmd_mount.h"
#include "format/export_table.h"

#define LOG "follow.log"
#define POLL_TIMEOUT "10s"

enum { POLL_MAX_S = 24 * 3600, TAKE_OVER_MS = 60000, STEP_US = 50000 };

/* ---- options ---- */

int mount_follow_check(const struct mount_values *v, const char *image)
{
    struct image_ref ref;
    const char *given = v->poll_s ? "poll" : v->keep_versions ? "keep-versions" : v->hook ? "hook" : NULL;
    if (!v->follow)
        return given ? options_wrong("--%s goes with --follow", given) : 0;
    if (v->socket)
        return options_exclude("--follow", "--socket", "new versions are added to the server, as to one of mounts");
    if (v->keys_file)
        return options_exclude("--follow", "--keys", "a version that comes later would have none");
    if (v->poll_s > POLL_MAX_S)
        return options_wrong("--poll must be at most 1d");
    if (image_ref_parse(image, &ref))
        return CLI_USAGE;
    return ref.by_digest ? options_wrong("%s names a digest, which never moves; name a tag to follow", image) : 0;
}

bool mount_follow_continues(const struct mount_values *v, const char *dir)
{
    struct follow_state f;
    return v->follow && !follow_load(dir, &f);
}

/* ---- the tag and its versions ---- */

/* What the follower's calls need. */
struct asking {
    const struct mount_values *v;
    const char *image;
    const string_list *words;
    struct pinner pinner; /* of the last question: each question is a new one to the store */
    bool asked;
    bool again; /* it will be asked again soon, so a store that does not answer is not waited for */
    struct pin pin;
};

static void asking_release(struct asking *t)
{
    if (t->asked)
        pinner_release(&t->pinner);
    t->asked = false;
}

/* Ask the store. A tag that only a table knows is left out of the reference. */
static int asking_ask(void *arg, struct digest *out, bool *out_from_store)
{
    struct asking *t = arg;
    struct server_values server = t->v->server;
    if (t->again)
        server.timeout = POLL_TIMEOUT;
    asking_release(t);
    t->asked = true;
    int rc = pinner_init(&t->pinner, &server, NULL, NULL);
    if (!rc)
        rc = pin_resolve(&t->pinner, t->image, &t->pin);
    if (rc)
        return rc > 0 ? -EINVAL : rc;
    *out = t->pin.ref.digest;
    *out_from_store = *t->pin.ref.tag;
    return 0;
}

/* Mount what the last answer named. */
static int asking_mount(void *arg, const char *dir, struct mount_state *out)
{
    struct asking *t = arg;
    struct manifest manifest;
    CLEANUP_BYTES table = BYTES_INIT(EXPORT_TABLE_MAX);
    const struct mount_resolved image = {.pin = &t->pin, .manifest = &manifest, .table = &table};
    int rc = resolver_manifest(t->pinner.resolver, &t->pin.ref, &manifest);
    if (!rc)
        rc = resolver_hand(t->pinner.resolver, &table);
    return rc ? rc : mount_make(t->v, &image, t->words, dir, out);
}

/* ---- in the background ---- */

/* Wait until the process that was started has the claim, which it takes first. */
static int wait_for_follower(const struct follow_state *f, pid_t pid)
{
    const struct process child = process_identify(pid);
    uint64_t deadline = clock_now_ms() + TAKE_OVER_MS;
    struct follow_state now;
    while (clock_now_ms() < deadline) {
        if (!follow_load(f->dir, &now) && now.follower.pid == pid)
            return 0;
        if (!process_alive(&child))
            break;
        usleep(STEP_US);
    }
    int rc = error_set(
        -EIO, "the process that would follow the tag has ended; mount it again, with --foreground, to see why");
    return service_log_explain(f->run_dir, LOG, "the process that would follow the tag has ended", rc);
}

/* Start this command line again, in a session of its own. */
static int start_follower(const struct invocation *inv, const struct follow_state *f)
{
    char program[PATH_MAX];
    pid_t pid;
    VEC(const char *) argv = {0};
    CLEANUP_FD int log = service_log_open(f->run_dir, LOG);
    int rc = log < 0 ? log : process_own_program(program);
    const char *const fixed[] = {program, "mount", "--foreground"};
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(fixed); i++)
        rc = vec_push(&argv, fixed[i]);
    for (size_t i = 0; !rc && i < inv->word_count; i++)
        rc = vec_push(&argv, inv->words[i]);
    if (!rc)
        rc = vec_push(&argv, NULL);
    const struct process_spec spec = {.argv = argv.items, .output = log, .listen_fd = -1, .session = true};
    if (!rc)
        rc = process_spawn(&spec, &pid);
    vec_release(&argv);
    return rc ? rc : wait_for_follower(f, pid);
}

/* ---- all of it ---- */

/* Print what is shown. */
static int report(const struct mount_values *v, const struct follow_state *f)
{
    struct mount_state s;
    char dir[PATH_MAX];
    int rc = mount_find(follow_version_dir(f, &f->shown, dir), &s);
    return rc ? rc : mount_print(v, &s, f);
}

/* Stay and follow. What an earlier process has begun was printed by that. */
static int follow_here(const struct mount_values *v, struct follower *w, struct asking *tag, bool begun)
{
    int rc = begun ? report(v, &w->f) : 0;
    if (rc)
        return rc;
    (void)fflush(stdout); /* main reports a failed write at the end */
    service_log_begin();
    log_info("following %s on %s", w->f.image, w->f.dir);
    tag->again = true;
    return follower_run(w);
}

/* Whether a process other than this one follows it. */
static bool is_followed(const struct follow_state *f)
{
    struct follow_state now;
    return !follow_load(f->dir, &now) && now.follower.pid != getpid() && follow_is_alive(&now);
}

/* Have another process follow. If none does, what was begun is undone. */
static int follow_elsewhere(const struct mount_values *v, const struct invocation *inv, struct follower *w, bool begun)
{
    struct error first;
    follower_close(w);
    int rc = start_follower(inv, &w->f);
    if (!rc)
        return report(v, &w->f);
    error_take(&first, rc);
    if (begun && !is_followed(&w->f) && follow_remove(w->f.dir, false, -1))
        log_warning("while undoing the mount: %s", error_text());
    return error_restore(&first);
}

int mount_follow(const struct mount_values *v, const struct invocation *inv, const string_list *words)
{
    struct asking tag CLEANUP(asking_release) = {.v = v, .image = inv->operands[0], .words = words};
    const struct follower_config config = {.dir = inv->operands[1],
                                           .image = inv->operands[0],
                                           .poll_ms = (v->poll_s ? v->poll_s : FOLLOWER_POLL_S) * 1000,
                                           .keep = v->keep_versions ? v->keep_versions : FOLLOWER_VERSIONS,
                                           .hook = v->hook,
                                           .keeps_nothing =
                                               server_options_no_cache(&v->server) && !v->server.memory && !v->fenced,
                                           .ask = asking_ask,
                                           .mount = asking_mount,
                                           .arg = &tag,
                                           .cancel = interrupt_watch()};
    struct follower w CLEANUP(follower_close);
    bool begun;
    int rc = follower_open(&w, &config, &begun);
    if (rc)
        return rc;
    return v->foreground ? follow_here(v, &w, &tag, begun) : follow_elsewhere(v, inv, &w, begun);
}
