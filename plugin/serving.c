#include "plugin/serving.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

void serving_init(struct serving *s)
{
    *s = (struct serving){.failures = LOG_LIMIT_INIT};
    options_init(&s->options);
}

/* ---- opening ---- */

static int describe_exports(struct serving *s)
{
    char root[DIGEST_HEX_SIZE], digest[DIGEST_HEX_SIZE];
    for (size_t i = 0; i < stack_image_count(s->stack); i++) {
        struct serving_export e = {.name = stack_export_name(s->stack, i), .image = stack_image_at(s->stack, i)};
        const struct manifest *m = image_manifest(e.image);
        snprintf(e.description, sizeof e.description,
                 "granary content-root sha256:%s image sha256:%s metadata %llu+%llu front %llu",
                 digest_hex(&m->content_root, root), digest_hex(image_digest(e.image), digest),
                 (unsigned long long)m->metadata_offset, (unsigned long long)m->metadata_len,
                 (unsigned long long)m->front_len);
        if (vec_push(&s->exports, e))
            return error_set(-ENOMEM, "out of memory");
        log_info("export '%s': %llu bytes, %s", e.name, (unsigned long long)m->size, e.description);
    }
    return 0;
}

/* A start that is a supervisor's restart goes on with tags that were resolved when it began. */
static int64_t resolved_when(void)
{
    const char *text = getenv("GRANARY_RESOLVED");
    long long when = text ? strtoll(text, NULL, 10) : 0;
    return when > 0 ? when : 0;
}

static int open_metrics(struct serving *s)
{
    int rc = metrics_server_open(s->options.metrics, s->stack, &s->metrics);
    if (!rc)
        log_info("metrics at %s, port %u", s->options.metrics, metrics_server_port(s->metrics));
    return rc;
}

int serving_open(struct serving *s)
{
    s->options.stack.resolved = resolved_when();
    s->options.stack.store.cancel = &s->ending;
    int rc = stack_open(&s->options.stack, &s->stack);
    if (!rc)
        rc = describe_exports(s);
    if (!rc && s->options.metrics)
        rc = open_metrics(s);
    if (!rc && s->options.control)
        rc = control_open(s->options.control, s->stack, &s->control);
    return rc;
}

/* ---- starting ---- */

/* nbdkit's own parent-death signal is SIGTERM, which waits for idle connections, and a fork forgets the one that the
 * process was started with. */
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

int serving_start(struct serving *s)
{
    int rc = follow_supervisor();
    if (!rc)
        rc = stack_start_threads(s->stack);
    if (!rc && s->control)
        rc = control_start(s->control);
    if (!rc && s->metrics)
        rc = metrics_server_start(s->metrics);
    const struct cache_config *cache = &s->options.stack.cache;
    if (!rc && s->options.warm_metadata && (cache->dir_count || cache->memory))
        rc = start_warm_begin(s->stack, &s->start_warm);
    return rc;
}

/* ---- ending ---- */

static void debug_counter(void *arg, const struct counter_row *row)
{
    log_debug("%s %llu", row->name, (unsigned long long)row->value);
}

void serving_close(struct serving *s)
{
    __atomic_store_n(&s->ending, 1, __ATOMIC_RELAXED);
    start_warm_end(s->start_warm);
    metrics_server_close(s->metrics);
    control_close(s->control);
    if (s->stack) {
        stack_counters(s->stack, debug_counter, NULL);
        log_debug("hit ratio %.4f", control_hit_ratio(s->stack));
        stack_close(s->stack);
    }
    vec_release(&s->exports);
    options_release(&s->options);
}

/* ---- clients ---- */

static void say_unknown(const struct serving *s, const char *name)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    int rc = 0;
    for (size_t i = 0; i < s->exports.len && !rc; i++)
        rc = bytes_printf(&known, "%s'%s'", i ? ", " : "", s->exports.items[i].name);
    (void)error_set(-ENOENT, "no export '%.100s' here; there are %.*s%s", name, (int)known.len,
                    (const char *)known.data, rc ? ", ..." : "");
}

const struct serving_export *serving_find(const struct serving *s, const char *name)
{
    const struct image *image = stack_find(s->stack, name);
    for (size_t i = 0; i < s->exports.len && image; i++)
        if (s->exports.items[i].image == image)
            return &s->exports.items[i];
    say_unknown(s, name);
    return NULL;
}

int serving_request_failed(struct serving *s, int rc)
{
    log_limited(&s->failures, LOG_LEVEL_ERROR, "%s", error_text());
    return rc == -ENOMEM ? ENOMEM : EIO;
}
