/* A path of the image belongs to the part whose directory is the longest prefix of it. The listing enforces that no
 * part lists a path that belongs to another, so a read finds its part by the path alone.
 *
 * Reads strip the part's directory from the path. A listing adds it, and renumbers the archives: each part counts its
 * archives from 1, while the image needs numbers that are unique.
 */
#include "imagebuild/source/source_wrappers.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"

struct part {
    struct source *source;
    char *dir; /* without slashes around it */
    size_t dir_len;
};

/* Immutable once it is open, so any thread may use it. */
struct source_join {
    struct source base;
    size_t count;
    struct part parts[];
};

static struct source_join *join_of(struct source *s)
{
    return (struct source_join *)s;
}

/* Return the part that a path of the image belongs to, or NULL. */
static const struct part *part_of(const struct source_join *s, const char *path, size_t len)
{
    const struct part *best = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const struct part *p = &s->parts[i];
        bool inside = !p->dir_len || (len >= p->dir_len && !memcmp(path, p->dir, p->dir_len) &&
                                      (len == p->dir_len || path[p->dir_len] == '/'));
        if (inside && (!best || p->dir_len > best->dir_len))
            best = p;
    }
    return best;
}

/* ------------------------------------------------------------------ listing */

/* One listing in progress. */
struct joining {
    const struct source_join *s;
    const struct part *part;
    source_visit *visit;
    void *arg;
    struct bytes path;
    uint32_t archives, archives_before; /* number of archives: of all parts so far; of the parts before this one */
};

/* Make l->path the entry's path in the image. */
static int source_join_place(struct joining *l, const struct source_entry *e)
{
    bytes_clear(&l->path);
    int rc = bytes_append(&l->path, l->part->dir, l->part->dir_len);
    if (!rc && l->part->dir_len && e->path_len)
        rc = bytes_append(&l->path, "/", 1);
    if (!rc)
        rc = bytes_append(&l->path, e->path, e->path_len);
    return rc ? error_set(rc, "source: %s: no memory for a path of %zu bytes", l->part->source->url, e->path_len) : 0;
}

/* Pass on an entry of the current part. A source_visit. */
static int join_entry(void *arg, const struct source_entry *in)
{
    struct joining *l = arg;
    struct source_entry e = *in;
    int rc = source_join_place(l, &e);
    if (rc)
        return rc;
    e.path = l->path.len ? (const char *)l->path.data : "";
    e.path_len = l->path.len;
    if (e.archive) {
        e.archive += l->archives_before;
        l->archives = e.archive;
    }
    const struct part *owner = part_of(l->s, e.path, e.path_len);
    if (owner == l->part)
        return l->visit(l->arg, &e);
    /* the other part has its own entry for its root */
    if (S_ISDIR(e.mode) && e.path_len == owner->dir_len)
        return 0;
    return error_set(-EINVAL,
                     "source: %s lists '%.*s', where --add puts %s; name another directory, or leave it out with "
                     "--exclude",
                     l->part->source->url, (int)GR_MIN(e.path_len, 200u), e.path, owner->source->url);
}

static int join_list(struct source *base, source_visit *visit, void *arg)
{
    const struct source_join *s = join_of(base);
    struct joining l = {.s = s, .visit = visit, .arg = arg, .path = BYTES_INIT(1 << 20)};
    int rc = 0;
    for (size_t i = 0; !rc && i < s->count; i++) {
        l.part = &s->parts[i];
        l.archives_before = l.archives;
        rc = source_list(l.part->source, join_entry, &l);
    }
    bytes_release(&l.path);
    return rc;
}

/* ------------------------------------------------------------------ the rest */

/* Find the part of *path, and make *path the path within that part. -ENOENT: no part has it. */
static int source_join_find(const struct source_join *s, const char **path, size_t *len, struct source **out)
{
    const struct part *p = part_of(s, *path, *len);
    if (!p)
        return error_set(-ENOENT, "source: no source has '%.*s'", (int)GR_MIN(*len, (size_t)300), *path);
    /* skip the directory and the slash after it, if any */
    size_t n = p->dir_len + (p->dir_len && *len > p->dir_len);
    *path += n;
    *len -= n;
    *out = p->source;
    return 0;
}

static void join_counts(struct source *base, struct source_counts *out)
{
    struct source_join *s = join_of(base);
    for (size_t i = 0; i < s->count; i++)
        source_ask_counts(s->parts[i].source, out);
}

/* One part that streams makes the whole a stream. Entries of other parts have no `content` and are read as usual. */
static bool join_streams(const struct source *base)
{
    const struct source_join *s = (const struct source_join *)base;
    for (size_t i = 0; i < s->count; i++)
        if (source_streams(s->parts[i].source))
            return true;
    return false;
}

static int join_set_known(struct source *base, const struct source_known *known)
{
    struct source_join *s = join_of(base);
    int rc = 0;
    for (size_t i = 0; !rc && i < s->count; i++)
        rc = source_set_known(s->parts[i].source, known);
    return rc;
}

static bool join_name_origin(struct source *base, const struct source_entry *e, char *out, size_t size)
{
    struct source_join *s = join_of(base);
    for (size_t i = 0; i < s->count; i++)
        if (source_name_origin(s->parts[i].source, e, out, size))
            return true;
    return false;
}

static int join_read(struct source *base, const struct source_read *r)
{
    struct source_read inner = *r;
    struct source *source = NULL;
    int rc = source_join_find(join_of(base), &inner.path, &inner.path_len, &source);
    return rc ? rc : source_read(source, &inner);
}

static int join_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    struct source *source = NULL;
    int rc = source_join_find(join_of(base), &path, &len, &source);
    return rc ? rc : source_stat(source, path, len, out);
}

static void join_cancel(struct source *base)
{
    struct source_join *s = join_of(base);
    for (size_t i = 0; i < s->count; i++)
        source_cancel(s->parts[i].source);
}

static void join_close(struct source *base)
{
    struct source_join *s = join_of(base);
    for (size_t i = 0; i < s->count; i++) {
        source_close(s->parts[i].source);
        free(s->parts[i].dir);
    }
    free(s);
}

/* Return whether a filesystem can hold the name: 1 to 255 bytes, neither "." nor "..". */
static bool component_fits(const char *c, size_t len)
{
    return len && len <= 255 && !(len <= 2 && !memcmp(c, "..", len));
}

/* Set part i's directory, and check it against the parts before. */
static int set_dir(struct source_join *s, size_t i, const char *dir)
{
    struct part *p = &s->parts[i];
    dir += strspn(dir, "/");
    p->dir_len = strlen(dir);
    while (p->dir_len && dir[p->dir_len - 1] == '/')
        p->dir_len--;
    p->dir = strndup(dir, p->dir_len);
    if (!p->dir)
        return error_no_memory();
    for (size_t at = 0; p->dir_len && at <= p->dir_len;) {
        size_t n = strcspn(p->dir + at, "/");
        if (!component_fits(p->dir + at, n))
            return error_set(-EINVAL, "'%s' cannot be a directory of the image; write for example data/train", dir);
        at += n + 1;
    }
    for (size_t j = 0; j < i; j++)
        if (!strcmp(s->parts[j].dir, p->dir))
            return error_set(-EINVAL, "two sources would be put at '/%s' of the image; name different directories",
                             p->dir);
    return 0;
}

int source_join_open(const struct source_part *parts, size_t count, struct source **out)
{
    static const struct source_ops ops = {.list = join_list,
                                          .counts = join_counts,
                                          .streams = join_streams,
                                          .set_known = join_set_known,
                                          .name_origin = join_name_origin,
                                          .read = join_read,
                                          .stat = join_stat,
                                          .cancel = join_cancel,
                                          .close = join_close};
    struct source_join *s = calloc(1, sizeof *s + count * sizeof *s->parts);
    if (!s) {
        for (size_t i = 0; i < count; i++)
            source_close(parts[i].source);
        return error_no_memory();
    }
    /* near: all parts are; one part over a network decides the number of concurrent reads for all */
    s->base = (struct source){.ops = &ops, .url = parts[0].source->url, .near = true};
    s->count = count;
    for (size_t i = 0; i < count; i++) {
        s->parts[i].source = parts[i].source;
        s->base.near &= parts[i].source->near;
    }
    int rc = 0;
    for (size_t i = 0; !rc && i < count; i++)
        rc = set_dir(s, i, parts[i].dir);
    if (rc)
        join_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
