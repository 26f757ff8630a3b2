/* Puts the parts of a serving process together, in two steps, since a front end may fork in between (nbdkit does):
 *
 *     serving_open    opens and binds everything, starts no thread, reports bad parameters
 *     serving_start   starts the threads, in the process that serves
 *
 * The order of closing matters. The control socket and the console go first, since their requests use every other part;
 * then the threads that follow tags and warm; the stack goes last. `ending` is the cancel flag of all stores and is set
 * before anything is joined, so that no thread waits for the retries of a dead store.
 */
#include "server/serving.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/text.h"
#include "format/export_table.h"
#include "server/server_internal.h"

void serving_init(struct serving *s)
{
    *s = (struct serving){.failures = LOG_LIMIT_INIT};
    pages_limit_heap();
    stack_options_init(&s->options);
}

/* ---- opening ---- */

char *serving_describe(const struct stack_export *e, char out[SERVING_DESCRIPTION_MAX])
{
    char root[DIGEST_HEX_SIZE], digest[DIGEST_HEX_SIZE];
    const struct manifest *m = image_manifest(stack_export_image(e));
    snprintf(
        out, SERVING_DESCRIPTION_MAX, "granary content-root sha256:%s image sha256:%s metadata %llu+%llu front %llu",
        digest_hex(&m->content_root, root), digest_hex(image_digest(stack_export_image(e)), digest),
        (unsigned long long)m->metadata_offset, (unsigned long long)m->metadata_len, (unsigned long long)m->front_len);
    return out;
}

/* Return when the supervisor resolved the tags, seconds since the epoch; 0: unknown. A restart serves the images that
 * were resolved then, whatever the tags say now. */
static int64_t resolved_when(void)
{
    const char *text = getenv("GRANARY_RESOLVED");
    long long when = text ? strtoll(text, NULL, 10) : 0;
    return when > 0 ? when : 0;
}

/* Return the descriptor of the memory in which the supervisor holds keys; -1: there is none. Only such memory has seals
 * and none set: keys must not go into any other file, whatever the environment says. */
static int inherited_keys(void)
{
    const char *text = getenv(KEPT_KEYS_FD);
    uint64_t fd;
    if (!text || text_parse_uint(KEPT_KEYS_FD, text, STDERR_FILENO + 1, INT_MAX, &fd))
        return -1;
    return !fcntl((int)fd, F_GET_SEALS) && !fcntl((int)fd, F_SETFD, FD_CLOEXEC) ? (int)fd : -1;
}

static struct console_config console_config_of(const struct serving *s)
{
    return (struct console_config){.address = s->options.console,
                                   .token_file = s->options.console_token,
                                   .admin_token_file = s->options.console_admin_token};
}

static int open_console(struct serving *s)
{
    const struct console_config config = console_config_of(s);
    int rc = console_open(&config, s->stack, s->added, s->reports, &s->console);
    if (!rc) /* port 0 takes a free one */
        log_info("console at %s, port %u", s->options.console, console_port(s->console));
    return rc;
}

/* The stack first: everything else works on it. The control socket last, when the server can serve. */
int serving_open(struct serving *s)
{
    if (getenv("GRANARY_CHECK")) { /* only the parameters were to be checked, and they are good */
        const struct console_config config = console_config_of(s);
        int rc = console_check(&config);
        if (rc)
            return rc;
        _exit(EXIT_SUCCESS);
    }
    s->options.stack.resolved = resolved_when();
    if (s->options.control && asprintf(&s->handed, "%s" EXPORT_TABLE_HANDED, s->options.control) < 0) {
        s->handed = NULL;
        return error_no_memory();
    }
    s->options.stack.handed = s->handed;
    s->options.stack.store.cancel = &s->ending;
    int rc = stack_open(&s->options.stack, &s->stack);
    if (!rc)
        rc = added_exports_open(s->stack, s->options.exports, inherited_keys(), &s->added);
    if (!rc)
        rc = reports_new(&s->reports);
    if (!rc)
        rc = followed_exports_open(&s->options, s->stack, s->added, s->reports, &s->follow);
    char text[SERVING_DESCRIPTION_MAX]; /* by content: the log then tells which bytes clients got */
    for (struct stack_export *e = NULL; !rc && (e = stack_next(s->stack, e));)
        log_info("export '%s': %llu bytes, %s", stack_export_name(e),
                 (unsigned long long)image_manifest(stack_export_image(e))->size, serving_describe(e, text));
    if (!rc && s->options.metrics)
        rc = metrics_server_open(s->options.metrics, s->stack, s->added, s->reports, &s->metrics);
    if (!rc && s->metrics) /* port 0 takes a free one */
        log_info("metrics at %s, port %u", s->options.metrics, metrics_server_port(s->metrics));
    if (!rc && s->options.peer_listen)
        rc = peers_open(&s->options.stack.node, s->stack, &s->peers);
    if (!rc && s->options.console)
        rc = open_console(s);
    if (!rc && s->options.control)
        rc = control_open(s->options.control, s->stack, s->added, s->reports, &s->control);
    return rc;
}

int serving_refuse_follow(const struct serving *s)
{
    if (!s->options.stack.followed_count)
        return 0;
    return error_set(-EINVAL,
                     "follow=%s is for NBD clients, which keep their version; granary mount --follow mounts the "
                     "versions of a tag",
                     s->options.stack.followed[0].ref);
}

/* ---- starting ---- */

/* Have the kernel kill this process when the supervisor dies. A front end that outlived its supervisor would keep the
 * caches' locks. nbdkit's own parent-death signal does not do: it is SIGTERM, at which nbdkit waits for idle
 * connections, and the setting is lost across nbdkit's fork. */
static int follow_supervisor(void)
{
    const char *supervisor = getenv("GRANARY_SUPERVISOR");
    if (!supervisor)
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return error_set(-errno, "cannot follow the supervisor: %s", strerror(errno));
    if (getppid() != strtol(supervisor, NULL, 10)) /* it ended before prctl */
        return error_set(-ECANCELED, "the supervisor is gone");
    return 0;
}

/* Threads do not survive a fork, so all of them start here. Without any cache there is nothing to warm. */
int serving_start(struct serving *s)
{
    int rc = follow_supervisor();
    if (!rc)
        rc = stack_start_threads(s->stack);
    if (!rc && s->control)
        rc = control_start(s->control);
    if (!rc && s->metrics)
        rc = metrics_server_start(s->metrics);
    if (!rc && s->peers)
        rc = peers_start(s->peers);
    if (!rc && s->peers)
        rc = takeover_begin(s->stack, &s->takeover);
    if (!rc && s->console)
        rc = console_start(s->console);
    const struct cache_config *cache = &s->options.stack.cache;
    if (!rc && s->options.warm_metadata && (cache->dir_count || cache->memory))
        rc = start_warm_begin(s->stack, &s->start_warm);
    if (!rc)
        added_exports_warm(s->added, s->start_warm);
    return rc || !s->follow ? rc : followed_exports_start(s->follow);
}

/* ---- ending ---- */

static void debug_counter(void *arg, const struct counter_row *row)
{
    log_debug("%s %llu", row->name, (unsigned long long)row->value);
}

void serving_stop_fetching(struct serving *s)
{
    __atomic_store_n(&s->ending, 1, __ATOMIC_RELAXED);
}

/* The counters are logged after the last thread that changes them, and before the stack is gone. */
void serving_close(struct serving *s)
{
    serving_stop_fetching(s);
    control_close(s->control);
    console_close(s->console);
    followed_exports_end(s->follow);
    start_warm_end(s->start_warm);
    metrics_server_close(s->metrics);
    takeover_end(s->takeover);
    peers_close(s->peers);
    added_exports_close(s->added);
    reports_free(s->reports);
    if (s->stack) {
        stack_counters(s->stack, debug_counter, NULL);
        log_debug("hit ratio %.4f", control_hit_ratio(s->stack));
        stack_close(s->stack);
    }
    stack_options_release(&s->options);
    free(s->handed);
}

/* ---- clients ---- */

/* Return -ENOENT with a sentence that lists the exports, as many as fit. */
static int say_unknown(struct serving *s, const char *name)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    int rc = 0;
    while (!rc && (e = stack_next(s->stack, e)))
        rc = bytes_printf(&known, "%s'%s'", known.len ? ", " : "", stack_export_name(e));
    return error_set(-ENOENT, "no export '%.100s' here; there are %.*s%s", name, (int)known.len,
                     (const char *)known.data, rc ? ", ..." : "");
}

/* The stack counts the connection before memory is allocated for it; on failure that is undone. */
int serving_connect(struct serving *s, const char *name, struct serving_export **out)
{
    struct stack_export *export = stack_connect(s->stack, name);
    struct serving_export *e = export ? calloc(1, sizeof *e) : NULL;
    if (!export && added_exports_waits(s->added, name))
        return error_set(-ENOENT, "the export '%.100s' waits for its keys; add it again with keys", name);
    if (!export)
        return say_unknown(s, name);
    if (!e) {
        stack_disconnect(export);
        return error_no_memory();
    }
    *e = (struct serving_export){
        .export = export, .image = stack_export_image(export), .followed = stack_followed_as(s->stack, name)};
    *out = e;
    return 0;
}

void serving_disconnect(struct serving_export *e)
{
    stack_disconnect(e->export);
    free(e);
}

int serving_request_failed(struct serving *s, int rc)
{
    log_limited(&s->failures, LOG_LEVEL_ERROR, "%s", error_text());
    return rc == -ENOMEM ? ENOMEM : EIO;
}
