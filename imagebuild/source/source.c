/* The only callers of the operations of sources (tests/style/banned.sh checks it). What is the same for all kinds is
 * here once: defaults for operations that a kind lacks, and small helpers for implementations. */
#include "imagebuild/source/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "imagebuild/source/source_internal.h"

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

bool source_name_shard(struct source *s, const char *validator, size_t len, char *out, size_t size)
{
    return s->ops->name_shard && s->ops->name_shard(s, validator, len, out, size);
}

int source_read(struct source *s, const struct source_read *read)
{
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
