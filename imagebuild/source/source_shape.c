/* A listing and a read meet here from two sides. list gets paths of the inner source: rules judge those, then the
 * prefix is stripped. read and stat get paths of the image and put the prefix back.
 *
 * The verdict on a path depends on the verdicts on all directories above it (rules.h). Listings come directory by
 * directory, so the verdict on the last entry's directory is kept: nearly every entry then costs one judgement,
 * however deep it lies.
 */
#include "imagebuild/source/source_wrappers.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format/catalog.h"

struct source_shape_of {
    struct source base;
    struct source *inner;
    struct source_shape shape;
    char *strip; /* the prefix, without slashes around it; NULL: none */
    size_t strip_len;
};

static struct source_shape_of *shape_of(struct source *s)
{
    return (struct source_shape_of *)s;
}

/* ------------------------------------------------------------------ listing */

/* One listing in progress. */
struct shaping {
    struct source_shape_of *s;
    source_visit *visit;
    void *arg;
    struct bytes parent; /* the directory of the last entry, with its verdict; at first the root */
    enum rules_verdict parent_verdict;
};

/* Return the verdict on the directory that is the first len bytes of path. */
static enum rules_verdict judge_directory(const struct rules *rules, const char *path, size_t len)
{
    enum rules_verdict verdict = RULES_NONE;
    for (size_t at = 0; at <= len && len; at++)
        if (at == len || path[at] == '/')
            verdict = rules_judge(rules, verdict, path, at, true);
    return verdict;
}

/* Return 1 if the rules take the entry, 0 if not, or -errno. */
static int taken(struct shaping *l, const struct source_entry *e)
{
    const struct rules *rules = l->s->shape.rules;
    if (!rules || !e->path_len)
        return 1;
    const char *slash = memrchr(e->path, '/', e->path_len);
    size_t len = slash ? (size_t)(slash - e->path) : 0;
    if (len != l->parent.len || (len && memcmp(l->parent.data, e->path, len) != 0)) {
        bytes_clear(&l->parent);
        int rc = bytes_append(&l->parent, e->path, len);
        if (rc)
            return error_set(rc, "source: %s: no memory for a path of %zu bytes", l->s->base.url, len);
        l->parent_verdict = judge_directory(rules, e->path, len);
    }
    bool directory = S_ISDIR(e->mode);
    return rules_verdict_takes(rules, rules_judge(rules, l->parent_verdict, e->path, e->path_len, directory),
                               directory);
}

/* Return whether `other` is path itself or one of the directories that it lies in. */
static bool begins_with(const char *path, size_t len, const char *other, size_t other_len)
{
    return len >= other_len && !memcmp(path, other, other_len) && (len == other_len || path[other_len] == '/');
}

/* Strip the prefix from the entry's path. Return 1; 0: a directory above the prefix, which the image does not have; or
 * -EINVAL: another path. */
static int strip(const struct source_shape_of *s, struct source_entry *e)
{
    if (!s->strip)
        return 1;
    if (begins_with(e->path, e->path_len, s->strip, s->strip_len)) {
        size_t n = s->strip_len + (e->path_len > s->strip_len);
        e->path += n;
        e->path_len -= n;
        return 1;
    }
    if (S_ISDIR(e->mode) && (!e->path_len || begins_with(s->strip, s->strip_len, e->path, e->path_len)))
        return 0;
    return error_set(-EINVAL, "'%.*s' does not lie below '%s', the prefix to strip; leave it out with --exclude",
                     (int)GR_MIN(e->path_len, 300u), e->path, s->strip);
}

/* Replace the permissions; setuid, setgid and sticky bits of the source go with them. */
static void override_mode(const struct source_overrides *o, uint32_t *mode)
{
    if (S_ISREG(*mode) && o->have_file_mode)
        *mode = S_IFREG | o->file_mode;
    if (S_ISDIR(*mode) && o->have_directory_mode)
        *mode = S_IFDIR | o->directory_mode;
}

static void override_owner(const struct source_overrides *o, uint32_t *uid, uint32_t *gid)
{
    if (o->have_uid)
        *uid = o->uid;
    if (o->have_gid)
        *gid = o->gid;
}

static void override_time(const struct source_overrides *o, int64_t *mtime, uint32_t *nsec)
{
    if (o->have_mtime) {
        *mtime = o->mtime;
        *nsec = 0;
    }
}

/* Pass on what the rules take, under its new path and with its new attributes. A source_visit. */
static int shape_entry(void *arg, const struct source_entry *in)
{
    struct shaping *l = arg;
    struct source_entry e = *in;
    const struct source_overrides *o = &l->s->shape.override;
    int rc = taken(l, &e);
    if (rc > 0)
        rc = strip(l->s, &e);
    if (rc <= 0)
        return rc;
    override_mode(o, &e.mode);
    override_owner(o, &e.uid, &e.gid);
    override_time(o, &e.mtime, &e.mtime_nsec);
    return l->visit(l->arg, &e);
}

static int shape_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_shape_of *s = shape_of(base);
    struct shaping l = {.s = s, .visit = visit, .arg = arg, .parent = BYTES_INIT(1 << 20)};
    int rc = source_list(s->inner, shape_entry, &l);
    bytes_release(&l.parent);
    return rc;
}

/* ------------------------------------------------------------------ the rest */

/* Make the path of the inner source from a path of the image. */
static int inner_path(const struct source_shape_of *s, const char *path, size_t len, struct bytes *out)
{
    int rc = bytes_append(out, s->strip, s->strip_len);
    if (!rc && len)
        rc = bytes_append(out, "/", 1);
    if (!rc)
        rc = bytes_append(out, path, len);
    return rc ? error_set(rc, "source: %s: no memory for a path of %zu bytes", s->base.url, len) : 0;
}

static void shape_counts(struct source *base, struct source_counts *out)
{
    source_ask_counts(shape_of(base)->inner, out);
}

static bool shape_streams(const struct source *base)
{
    return source_streams(((const struct source_shape_of *)base)->inner);
}

static int shape_set_known(struct source *base, const struct source_known *known)
{
    return source_set_known(shape_of(base)->inner, known);
}

static bool shape_name_origin(struct source *base, const struct source_entry *e, char *out, size_t size)
{
    return source_name_origin(shape_of(base)->inner, e, out, size);
}

static int shape_read(struct source *base, const struct source_read *r)
{
    struct source_shape_of *s = shape_of(base);
    if (!s->strip)
        return source_read(s->inner, r);
    CLEANUP_BYTES path = BYTES_INIT(2 * CATALOG_PATH_MAX);
    struct source_read inner = *r;
    int rc = inner_path(s, r->path, r->path_len, &path);
    inner.path = (const char *)path.data;
    inner.path_len = path.len;
    return rc ? rc : source_read(s->inner, &inner);
}

static int shape_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    struct source_shape_of *s = shape_of(base);
    const struct source_overrides *o = &s->shape.override;
    CLEANUP_BYTES inner = BYTES_INIT(2 * CATALOG_PATH_MAX);
    int rc = s->strip ? inner_path(s, path, len, &inner) : 0;
    if (!rc && s->strip)
        rc = source_stat(s->inner, (const char *)inner.data, inner.len, out);
    else if (!rc)
        rc = source_stat(s->inner, path, len, out);
    if (rc)
        return rc;
    override_time(o, &out->mtime, &out->mtime_nsec);
    if (out->have_owner) {
        override_mode(o, &out->mode);
        override_owner(o, &out->uid, &out->gid);
    }
    return 0;
}

static void shape_cancel(struct source *base)
{
    source_cancel(shape_of(base)->inner);
}

static void shape_close(struct source *base)
{
    struct source_shape_of *s = shape_of(base);
    source_close(s->inner);
    free(s->strip);
    free(s);
}

/* Return a copy of the path without slashes around it; NULL: out of memory. */
static char *bare(const char *path)
{
    path += strspn(path, "/");
    size_t len = strlen(path);
    while (len && path[len - 1] == '/')
        len--;
    return strndup(path, len);
}

int source_shape_open(struct source *inner, const struct source_shape *shape, struct source **out)
{
    static const struct source_ops ops = {.list = shape_list,
                                          .counts = shape_counts,
                                          .streams = shape_streams,
                                          .set_known = shape_set_known,
                                          .name_origin = shape_name_origin,
                                          .read = shape_read,
                                          .stat = shape_stat,
                                          .cancel = shape_cancel,
                                          .close = shape_close};
    CLEANUP_FREE char *prefix = shape->strip ? bare(shape->strip) : NULL;
    struct source_shape_of *s = calloc(1, sizeof *s);
    if (!s || (shape->strip && !prefix)) {
        free(s);
        source_close(inner);
        return error_no_memory();
    }
    *s = (struct source_shape_of){
        .base = {.ops = &ops, .url = inner->url, .near = inner->near}, .inner = inner, .shape = *shape};
    /* a prefix of slashes alone is the root: nothing to strip */
    if (prefix && *prefix) {
        s->strip_len = strlen(prefix);
        s->strip = steal_ptr(&prefix);
    }
    *out = &s->base;
    return 0;
}
