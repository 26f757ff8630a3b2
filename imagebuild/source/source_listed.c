/* Lookups run on the threads of a walk (walk.h), although a list is no tree. The walk has a single place: "the next
 * line". A thread that pops it reads one line, pushes the place again for another thread, and then looks up the path.
 * So exactly one thread at a time reads the list, lookups overlap, and no line is kept. */
#include "imagebuild/source/source_listed.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/log.h"
#include "imagebuild/source/walk.h"

enum { MISSING_NAMED = 20, LOOK_THREADS = 8 };

/* `list` is used only by the thread that holds the walk's place. */
struct source_listed {
    struct source base;
    struct source *inner;
    struct path_list *list;
    struct source_listed_config config;
    _Atomic uint64_t missing; /* paths that the source does not have */
};

static struct source_listed *listed_of(struct source *s)
{
    return (struct source_listed *)s;
}

/* Count a path that is not there, and name the first ones if that is an error. */
static void note_missing(struct source_listed *s, const struct source_ask *ask)
{
    if (atomic_fetch_add(&s->missing, 1) < MISSING_NAMED && !s->config.ignore_missing)
        log_warning("source: %s names '%.*s', which is not there", path_list_name(s->list),
                    (int)GR_MIN(ask->path_len, (size_t)400), ask->path);
}

/* List the walk's place: read the next line and look up its path. At the end of the list the place is not pushed
 * again, which ends the walk. */
static int look_at_next(void *arg, struct walker *w, const struct walk_place *next_line)
{
    struct source_listed *s = arg;
    struct source_ask ask;
    if (cancel_asked(s->config.cancel))
        return error_set(-ECANCELED, "source: the build was stopped while it read %s", path_list_name(s->list));
    int rc = path_list_next(s->list, &ask);
    if (rc <= 0)
        return rc;
    CLEANUP_FREE char *path = strndup(ask.path, ask.path_len); /* the list reuses its buffer for the next line */
    if (!path)
        return error_no_memory();
    ask.path = path;
    /* from here on another thread may read the list */
    rc = walk_push(w, next_line);
    if (!rc)
        rc = source_look(s->inner, &ask, walk_emit, w);
    if (rc != -ENOENT)
        return rc;
    note_missing(s, &ask);
    return 0;
}

static int listed_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_listed *s = listed_of(base);
    const struct walk walk = {.url = base->url,
                              .threads = s->config.threads ? s->config.threads : LOOK_THREADS,
                              .list = look_at_next,
                              .arg = s,
                              .visit = visit,
                              .visit_arg = arg};
    int rc = walk_run(&walk);
    uint64_t missing = atomic_load(&s->missing);
    if (!rc && missing && !s->config.ignore_missing)
        return error_set(-ENOENT,
                         "source: %llu of the paths that %s names are not there; --ignore-missing leaves them out",
                         (unsigned long long)missing, path_list_name(s->list));
    return rc;
}

/* ------------------------------------------------------------------ the rest */

/* Return whether the list gave size and digest of the file, so that nothing was requested for it before the read. Such
 * a file has not vanished: it was never there. */
static bool never_seen(const struct source_read *r)
{
    size_t prefix = strlen(SOURCE_VALIDATOR_SHA256);
    return r->validator_len > prefix && !memcmp(r->validator, SOURCE_VALIDATOR_SHA256, prefix);
}

/* A file that was never there is an error of the list: -EBADMSG, since with -ENOENT it would count as vanished. */
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
