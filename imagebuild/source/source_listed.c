/* Lookups run on the threads of a walk (walk.c), although a list is no tree. The walk has a single place: "the next
 * line". A thread that pops it reads one line, pushes the place again for another thread, and then looks up the path.
 * So exactly one thread at a time reads the list, lookups overlap, and no line is kept. */
#include "imagebuild/source/source_wrappers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "format/catalog.h"
#include "imagebuild/source/source_internal.h"
#include "net/http.h"

/* ------------------------------------------------------------------ the list */

/* Each line is read into one buffer and turned into a path in place: columns are cut off, an address is decoded, and
 * the path is cleaned. Each step only shortens the text, so no second buffer is needed. */

enum { LINE_MAX_BYTES = 3 * CATALOG_PATH_MAX + 4096 }; /* a percent-encoded path, and the source's address before it */

struct path_list {
    FILE *file;
    off_t begin; /* where the list begins in the file; -1: it is no regular file */
    struct path_list_config config;
    char *line;
    size_t cap, len;         /* bytes: of the buffer, of the current line */
    uint64_t number;         /* of the current line, from 1 */
    bool pending;            /* the current line was read by path_list_absolute and not returned yet */
    bool one_kind, absolute; /* one_kind: all paths must begin with a slash, or none (absolute) */
};

const char *path_list_name(const struct path_list *l)
{
    return strcmp(l->config.file, "-") != 0 ? l->config.file : "standard input";
}

int path_list_open(const struct path_list_config *config, struct path_list **out)
{
    struct path_list *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->config = *config;
    l->file = strcmp(config->file, "-") != 0 ? fopen(config->file, "re") : stdin;
    if (!l->file) {
        free(l);
        return error_set(-errno, "cannot read the list of files %s: %s", config->file, strerror(errno));
    }
    l->begin = ftello(l->file);
    *out = l;
    return 0;
}

int path_list_again(struct path_list *l)
{
    if (l->begin < 0 || fseeko(l->file, l->begin, SEEK_SET))
        return error_set(-ESPIPE, "%s cannot be read twice: give the list as a regular file, or --parent none",
                         path_list_name(l));
    l->number = 0;
    l->pending = false;
    return 0;
}

void path_list_close(struct path_list *l)
{
    if (l && l->file != stdin)
        fclose(l->file);
    if (l)
        free(l->line);
    free(l);
}

/* Return -EINVAL for the current line. */
static int path_list_refuse(const struct path_list *l, const char *why)
{
    return error_set(-EINVAL, "%s:%llu: %s", path_list_name(l), (unsigned long long)l->number, why);
}

/* Read the next line that is neither empty nor a comment, without its delimiter. Return 1, or 0 at the end. */
static int read_line(struct path_list *l)
{
    int delimiter = l->config.nul ? 0 : '\n';
    if (l->pending) {
        l->pending = false;
        return 1;
    }
    for (;;) {
        errno = 0;
        ssize_t n = getdelim(&l->line, &l->cap, delimiter, l->file);
        if (n < 0 && ferror(l->file))
            return error_set(-EIO, "cannot read %s: %s", path_list_name(l), strerror(errno));
        if (n < 0)
            return errno == ENOMEM ? error_no_memory() : 0;
        l->number++;
        l->len = (size_t)n - (l->line[n - 1] == delimiter);
        l->line[l->len] = 0;
        /* a list with the other delimiter looks like one huge line */
        if (l->len > LINE_MAX_BYTES)
            return path_list_refuse(l, l->config.nul ? "over 200 KB without a NUL; are the paths ended by newlines?"
                                                     : "over 200 KB without a newline; with -0 paths are ended by NUL");
        if (memchr(l->line, 0, l->len))
            return path_list_refuse(l, "a NUL byte within a line; with -0 paths are ended by NUL");
        if (l->len && !(l->config.web_base && *l->line == '#'))
            return 1;
    }
}

/* Read the first line ahead; path_list_next returns it later. */
int path_list_absolute(struct path_list *l, bool *out)
{
    int rc = read_line(l);
    if (rc < 0)
        return rc;
    if (!rc)
        return error_set(-EINVAL, "%s is empty: no file is named", path_list_name(l));
    l->pending = l->one_kind = true;
    *out = l->absolute = *l->line == '/';
    return 0;
}

/* ".." is refused rather than resolved: with a symbolic link before it, it would not mean what its text says. */
ssize_t path_clean(char *path, size_t len)
{
    size_t to = 0;
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - path) - at : len - at;
        if (n == 2 && !memcmp(path + at, "..", 2))
            return -EINVAL;
        if (n && !(n == 1 && path[at] == '.')) {
            if (to)
                path[to++] = '/';
            memmove(path + to, path + at, n);
            to += n;
        }
        at += n + 1;
    }
    return (ssize_t)to;
}

/* Return the path that an address below the source's means, decoded in place; NULL, with a sentence, if it is not
 * below it or malformed. */
static char *path_of_address(const struct path_list *l, char *text)
{
    const char *base = l->config.web_base;
    size_t n = strlen(base);
    while (n && base[n - 1] == '/')
        n--;
    /* http://host/ab is not below http://host/a */
    if (strncmp(text, base, n) != 0 || (text[n] && text[n] != '/')) {
        (void)error_set(-EINVAL, "%s:%llu: '%.300s' does not lie below %s", path_list_name(l),
                        (unsigned long long)l->number, text, base);
        return NULL;
    }
    /* unescaped, these begin a query or a fragment */
    if (strpbrk(text, "?#")) {
        (void)path_list_refuse(l, "an address with '?' or '#' names no file here; write its path, with %3F or %23");
        return NULL;
    }
    long len = http_percent_decode(text + n, strlen(text + n));
    if (len < 0 || memchr(text + n, 0, (size_t)len)) {
        (void)path_list_refuse(l, "the address has a wrong percent escape");
        return NULL;
    }
    text[n + (size_t)len] = 0;
    return text + n;
}

/* Read the columns after the path: size, which may be empty, and digest. */
static int take_columns(const struct path_list *l, char *size, struct source_ask *out)
{
    char *digest = strchr(size, '\t');
    if (digest)
        *digest++ = 0;
    if (*size && text_parse_uint("size", size, 0, INT64_MAX, &out->size))
        return path_list_refuse(l, "the second column is no size in bytes");
    out->have_size = *size != 0;
    if (!digest || !*digest)
        return 0;
    if (digest_parse(digest, strlen(digest), &out->sha256))
        return path_list_refuse(l, "the third column is no SHA-256 of 64 lower-case hex digits");
    out->have_sha256 = true;
    return 0;
}

int path_list_next(struct path_list *l, struct source_ask *out)
{
    int rc = read_line(l);
    *out = (struct source_ask){0};
    if (rc <= 0)
        return rc;
    char *path = l->line;
    /* only a web server's list has columns; elsewhere a tab is part of the name */
    char *tab = l->config.web_base ? strchr(path, '\t') : NULL;
    if (tab) {
        *tab = 0;
        rc = take_columns(l, tab + 1, out);
        if (rc)
            return rc;
    }
    if (l->one_kind && (*path == '/') != l->absolute)
        return path_list_refuse(l, "absolute and relative paths are mixed; write all of them one way");
    if (l->config.web_base && (!strncmp(path, "http://", 7) || !strncmp(path, "https://", 8)))
        path = path_of_address(l, path);
    if (!path)
        return -EINVAL;
    ssize_t len = path_clean(path, strlen(path));
    if (len < 0)
        return path_list_refuse(l, "a path with '..' is not followed; write it without");
    /* the path may be within the line, after the base's address */
    path[len] = 0;
    out->path = path;
    out->path_len = (size_t)len;
    return 1;
}

/* ------------------------------------------------------------------ the source */

enum { MISSING_NAMED = 20, LOOK_THREADS = 8 };

/* `list` is used only by the thread that holds the walk's place. */
struct source_listed {
    struct source base;
    struct source *inner;
    struct path_list *list;
    struct source_listed_config config;
    bool was_listed;
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
    int rc = s->was_listed ? path_list_again(s->list) : 0;
    s->was_listed = true;
    atomic_store(&s->missing, 0);
    if (!rc)
        rc = walk_run(&walk);
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
