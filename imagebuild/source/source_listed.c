/* The thread that lists reads paths into slots, workers look at them, and the entries they copied come back to be
 * handed on: the visitor is only ever called by the thread that lists. A slot is owned by whoever took it out of a
 * queue. */
#include "imagebuild/source/source_listed.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "imagebuild/source/look_ahead.h"

enum { MISSING_NAMED = 20 };

struct source_listed {
    struct source base;
    struct source *inner;
    struct path_list *list;
    struct source_listed_config config;
};

static struct source_listed *listed_of(struct source *s)
{
    return (struct source_listed *)s;
}

struct looking {
    struct source_listed *s;
    source_visit *visit;
    void *arg;
    uint64_t missing;
};

static int look_at_listed(void *arg, struct look *look)
{
    struct source *inner = ((struct looking *)arg)->s->inner;
    return source_look(inner, &look->ask, look_keep, look);
}

static void note_missing(struct looking *l, const struct look *look)
{
    if (!l->s->config.ignore_missing && l->missing < MISSING_NAMED)
        log_warning("source: %s names '%.*s', which is not there", path_list_name(l->s->list),
                    (int)GR_MIN(look->ask.path_len, (size_t)400), look->ask.path);
    l->missing++;
}

static int source_listed_hand_on(void *arg, struct look *look)
{
    struct looking *l = arg;
    int rc = look->error.code;
    if (rc == -ENOENT) {
        note_missing(l, look);
        return 0;
    }
    rc = rc ? error_restore(&look->error) : 0;
    for (size_t i = 0; !rc && i < look->entries.len; i++)
        rc = l->visit(l->arg, look->entries.items[i]);
    return rc;
}

static int source_listed_look_at_all(struct source_listed *s, struct look_ahead *looks)
{
    const volatile int *cancel = s->config.cancel;
    struct source_ask ask;
    int rc;
    while ((rc = path_list_next(s->list, &ask)) == 1) {
        if (cancel && *cancel)
            return error_set(-ECANCELED, "source: the build was stopped while it read %s", path_list_name(s->list));
        rc = look_ahead_ask(looks, &ask, 0);
        if (rc)
            return rc;
    }
    for (bool taken = true; !rc && taken;)
        rc = look_ahead_wait(looks, &taken);
    return rc;
}

static int listed_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_listed *s = listed_of(base);
    struct looking l = {.s = s, .visit = visit, .arg = arg};
    struct look_ahead_config config = {
        .threads = s->config.threads, .work = look_at_listed, .answer = source_listed_hand_on, .arg = &l};
    CLEANUP(cleanup_look_ahead) struct look_ahead *looks = NULL;
    int rc = look_ahead_start(&config, &looks);
    if (!rc)
        rc = source_listed_look_at_all(s, looks);
    if (!rc && l.missing && !s->config.ignore_missing)
        return error_set(-ENOENT,
                         "source: %llu of the paths that %s names are not there; --ignore-missing leaves them out",
                         (unsigned long long)l.missing, path_list_name(s->list));
    return rc;
}

/* ------------------------------------------------------------------ the rest */

/* The list said all there is to know of it, so that nobody has looked: it has not vanished, it was never there. */
static bool never_seen(const struct source_read *r)
{
    size_t prefix = strlen(SOURCE_VALIDATOR_SHA256);
    return r->validator_len > prefix && !memcmp(r->validator, SOURCE_VALIDATOR_SHA256, prefix);
}

static int listed_read(struct source *base, const struct source_read *r)
{
    struct source_listed *s = listed_of(base);
    int rc = source_read(s->inner, r);
    if (rc != -ENOENT || s->config.ignore_missing || !never_seen(r))
        return rc;
    return error_set(-EBADMSG, "source: %s names '%.*s', which is not there; --ignore-missing leaves it out",
                     path_list_name(s->list), (int)GR_MIN(r->path_len, (size_t)300), r->path);
}

static void listed_counts(struct source *base, struct source_counts *out)
{
    source_ask_counts(listed_of(base)->inner, out);
}

static int listed_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    struct source *inner = listed_of(base)->inner;
    return source_stat(inner, path, len, out);
}

static void listed_cancel(struct source *base)
{
    source_cancel(listed_of(base)->inner);
}

static void listed_close(struct source *base)
{
    struct source_listed *s = listed_of(base);
    source_close(s->inner);
    path_list_close(s->list);
    free(s);
}

int source_listed_open(struct source *inner, struct path_list *list, const struct source_listed_config *config,
                       struct source **out)
{
    static const struct source_ops ops = {.list = listed_list,
                                          .counts = listed_counts,
                                          .read = listed_read,
                                          .stat = listed_stat,
                                          .cancel = listed_cancel,
                                          .close = listed_close};
    struct source_listed *s = source_can_look(inner) ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        int rc = source_can_look(inner)
                     ? error_no_memory()
                     : error_set(-ENOTSUP, "--files-from: %s can only be listed as a whole; choose by --include",
                                 inner->url);
        source_close(inner);
        path_list_close(list);
        return rc;
    }
    *s = (struct source_listed){
        .base = {.ops = &ops, .url = inner->url, .near = inner->near}, .inner = inner, .list = list, .config = *config};
    *out = &s->base;
    return 0;
}
