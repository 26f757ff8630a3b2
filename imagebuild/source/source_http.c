/* The files of a web server as a source: found through its index pages (http_index.h), or named by a list
 * (source_listed.c). Each file costs a HEAD request, unless its page shows size and time, or the list size and digest.
 *
 * The validator of a file is the first of these that the server or the list gives:
 *   sha256:HEX     the list's digest; the build compares it with the bytes read
 *   "..."          the strong ETag, with its quotes
 *   t:MTIME-SIZE   Last-Modified in seconds since 1970, and the length
 *   (empty)        nothing is known; only the size is checked
 *
 * Reads are ranged and conditional (RFC 9110, sections 13 and 14). Some servers ignore conditions, so the validator of
 * the answer is compared too. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "format/catalog.h"
#include "imagebuild/source/http_index.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source_internal.h"
#include "net/http.h"

/* ------------------------------------------------------------------ credentials */

/* Credentials for web servers: a bearer token from a file, or the path of a netrc file, which libcurl reads. Tokens
 * are erased from memory after use, and no message contains one. */

enum { HTTP_LOGIN_TOKEN_MAX = 16 << 10 }; /* bytes in a token file */

static const char bearer[] = "Authorization: Bearer ";

/* Return whether the text is one token: printable ASCII without blanks. A newline within it would add a header line. */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return len > 0;
}

/* Make the header line from the file's contents. */
static int take_token(const struct bytes *text, const char *file, char **out)
{
    static const char around[] = " \t\r\n";
    const char *token = (const char *)text->data;
    size_t len = text->len;
    for (; len && memchr(around, *token, sizeof around - 1); len--)
        token++;
    while (len && memchr(around, token[len - 1], sizeof around - 1))
        len--;
    /* the sentence must not quote the token, not even a malformed one */
    if (!is_token(token, len))
        return error_set(
            -EBADMSG, "--http-token-file: %s holds no token: one line of printable characters, without blanks", file);
    char *line = malloc(sizeof bearer + len);
    if (!line)
        return error_no_memory();
    memcpy(line, bearer, sizeof bearer - 1);
    memcpy(line + sizeof bearer - 1, token, len);
    line[sizeof bearer - 1 + len] = 0;
    *out = line;
    return 0;
}

/* Make the header line "Authorization: Bearer TOKEN" from the contents of a file, without the blanks and newlines
 * around the token. *out is a secret: free it with http_login_free. -EIO: the file cannot be read; -EBADMSG: it holds
 * no token; -ENOMEM. The sentence names the file and nothing of its contents. */
static int http_login_read(const char *token_file, char **out)
{
    CLEANUP_BYTES text = BYTES_INIT(HTTP_LOGIN_TOKEN_MAX);
    int rc = io_read_file(token_file, &text);
    if (rc)
        return error_set(rc == -ENOMEM ? rc : -EIO, "--http-token-file: the token cannot be read from %s: %s",
                         token_file, rc == -EMSGSIZE ? "the file is too long for one" : strerror(-rc));
    rc = take_token(&text, token_file, out);
    explicit_bzero(text.data, text.len);
    return rc;
}

/* Erase and free the line. NULL is allowed. */
static void http_login_free(char *line)
{
    if (line)
        explicit_bzero(line, strlen(line));
    free(line);
}

/* No netrc file is the normal case, not an error: requests then carry no credentials. */
static char *http_login_netrc(void)
{
    const char *set = getenv("NETRC"), *home = getenv("HOME");
    char *path = NULL;
    if (set ? asprintf(&path, "%s", set) < 0 : !home || asprintf(&path, "%s/.netrc", home) < 0)
        return NULL;
    if (!access(path, R_OK))
        return path;
    free(path);
    return NULL;
}

/* ------------------------------------------------------------------ the source */

/* URL_MAX: bytes; an escaped byte of a path takes three. DEPTH_MAX: of directories, since a link may lead back. */
enum { URL_MAX = 4 * CATALOG_PATH_MAX, LIST_THREADS = 8, DEPTH_MAX = 128 };
/* Memory for index pages: PAGE_BYTES each, while up to 64 threads of a walk hold one. A larger page is requested again
 * as the only one, and may then use the memory of all, PAGES_BYTES. */
enum { PAGE_BYTES = 4 << 20, PAGES_BYTES = 64 * PAGE_BYTES };

/* Immutable while it is open, except for retry, the counts of the walk, and files. */
struct source_http {
    struct source base;
    struct http *http;
    char *url;   /* without slashes at its end */
    char *login; /* header line with a token, secret; NULL: credentials come from netrc */
    char *netrc; /* path of a file; NULL: none */
    struct source_retry retry;
    unsigned connections;
    const struct rules *rules;
    struct source_counts counts;
    _Atomic uint64_t files; /* found by the last listing */
};

static struct source_http *http_of(struct source *s)
{
    return (struct source_http *)s;
}

static void http_source_cancel(struct source *base)
{
    source_retry_cancel(&http_of(base)->retry);
}

/* ------------------------------------------------------------------ one request */

/* Return the error that a status outside 2xx means. name: the address, and where it was redirected. */
static int source_http_refusal(const char *name, const struct http_response *resp)
{
    int status = resp->status, rc = http_status_errno(status);
    const char *meaning = http_status_meaning(status);
    if (rc == -ENOENT)
        return error_set(rc, "source: %s is not there", name);
    if (rc == -ESTALE || rc == -EBADMSG)
        return error_set(-ESTALE, "source: %s changed", name);
    if (rc == -EAGAIN)
        return error_retry_after(error_set(rc, "source: the server failed on %s (status %d)", name, status),
                                 (unsigned)GR_MAX(resp->retry_after_s, 0));
    if (*meaning)
        return error_set(rc, "source: %s: %s (status %d)", name, meaning, status);
    if (rc == -EACCES || rc == -ENOKEY)
        return error_set(rc,
                         "source: the server refuses to show %s (status %d); check its access rules, and what "
                         "--http-token-file or ~/.netrc say",
                         name, status);
    return error_set(rc, "source: the server answered %s with status %d", name, status);
}

/* Make the address of a path. An empty path is the base, whose address always ends with a slash. */
static int source_http_url(const struct source_http *s, const char *path, size_t len, bool directory, struct bytes *out)
{
    int rc = bytes_printf(out, "%s/", s->url);
    if (!rc)
        rc = http_percent_encode(out, path, len, true);
    if (!rc && directory && len)
        rc = bytes_append(out, "/", 1);
    if (!rc && !bytes_string(out))
        rc = -ENOMEM;
    return rc ? error_set(rc, "source: %s: no memory for the address of a path of %zu bytes", s->url, len) : 0;
}

/* Send one request, with credentials, following redirects. Answers outside 2xx become errors. `asked` has a url and one
 * header at most. *out_url, if not NULL: the final address after redirects, else NULL; the caller frees it. */
static int ask_once(struct source_http *s, const struct http_request *asked, struct http_response *resp, char **out_url)
{
    CLEANUP_FREE char *to = NULL;
    char name[400];
    struct http_request req = *asked;
    /* the slot after the caller's header; http_follow sends it to the server of the address only */
    req.headers[req.headers[0] != NULL] = s->login;
    req.netrc = s->netrc;
    int rc = http_follow(s->http, &req, resp, &to);
    snprintf(name, sizeof name, to ? "%.190s (redirected to %.190s)" : "%.300s", req.url, to);
    /* an error of the sink has its own sentence */
    if (rc && !resp->sink_stopped)
        rc = error_prefix(rc, "source: %.300s", req.url);
    if (!rc && (resp->status < 200 || resp->status > 299))
        rc = source_http_refusal(name, resp);
    if (out_url)
        *out_url = steal_ptr(&to);
    return rc;
}

/* ------------------------------------------------------------------ versions */

/* Write the validator "t:MTIME-SIZE" and return its length. */
static size_t print_time_and_size(int64_t mtime, uint64_t size, char out[SOURCE_VALIDATOR_MAX + 1])
{
    return (size_t)snprintf(out, SOURCE_VALIDATOR_MAX + 1, "t:%lld-%llu", (long long)mtime, (unsigned long long)size);
}

/* Write the validator of an answer and return its length; 0: the answer has no version. A weak ETag ("W/...") is
 * none: it does not promise equal bytes. */
static size_t print_validator(const struct http_response *resp, char out[SOURCE_VALIDATOR_MAX + 1])
{
    if (*resp->etag == '"' && strlen(resp->etag) <= SOURCE_VALIDATOR_MAX)
        return (size_t)snprintf(out, SOURCE_VALIDATOR_MAX + 1, "%s", resp->etag);
    if (resp->last_modified >= 0)
        return print_time_and_size(resp->last_modified, (uint64_t)resp->content_length, out);
    return 0;
}

/* An http_sink that ends a GET at its first byte. */
static int hang_up(void *arg, const void *data, size_t len)
{
    return -ECANCELED;
}

/* Return whether a HEAD request failed where GET may work. Targets of redirects are often signed for GET only. */
static bool refuses_head(const struct http_response *resp, bool redirected)
{
    return resp->status == 405 || resp->status == 501 || (redirected && resp->status == 403);
}

/* Request the version of a file by HEAD. Where the server refuses HEAD, or gives no length (Apache for empty files),
 * use GET and close at the first byte. */
static int ask_version(struct source_http *s, const char *url, struct source_version *out)
{
    CLEANUP(http_response_release) struct http_response resp = {0};
    CLEANUP_FREE char *to = NULL;
    const struct http_request head = {.method = "HEAD", .url = url},
                              get = {.method = "GET", .url = url, .sink = hang_up};
    int rc = ask_once(s, &head, &resp, &to);
    if (rc ? refuses_head(&resp, to) : resp.content_length < 0) {
        rc = ask_once(s, &get, &resp, NULL);
        /* not one byte came, so the file is empty */
        if (!rc)
            resp.content_length = 0;
        rc = resp.sink_stopped ? 0 : rc;
    }
    if (!rc && resp.content_length < 0)
        rc = error_set(-EIO, "source: the server does not say how long %.300s is", url);
    if (rc)
        return rc;
    *out = (struct source_version){.size = (uint64_t)resp.content_length, .mtime = GR_MAX(resp.last_modified, 0)};
    out->validator_len = print_validator(&resp, out->validator);
    return 0;
}

static int http_source_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    struct source_http *s = http_of(base);
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    struct source_try try = {0};
    int rc = source_http_url(s, path, len, false, &url);
    if (rc)
        return rc;
    while ((rc = ask_version(s, (const char *)url.data, out)) && !(rc = source_retry_wait(&s->retry, &try, rc)))
        ;
    return rc;
}

/* ------------------------------------------------------------------ one path */

static int http_source_look(struct source *base, const struct source_ask *ask, source_visit *visit, void *arg)
{
    char hex[DIGEST_HEX_SIZE];
    struct source_version now = {.size = ask->size};
    /* size and digest are all that the entry needs: no request */
    int rc = ask->have_size && ask->have_sha256 ? 0 : http_source_stat(base, ask->path, ask->path_len, &now);
    if (rc)
        return rc;
    if (ask->have_size && now.size != ask->size)
        return error_set(-EBADMSG, "source: %s/%.*s has %llu bytes, the list says %llu; correct the list", base->url,
                         (int)GR_MIN(ask->path_len, (size_t)300), ask->path, (unsigned long long)now.size,
                         (unsigned long long)ask->size);
    struct digest empty = digest_of("", 0);
    /* empty files are never read, so the build would not notice a wrong digest */
    if (ask->have_sha256 && !now.size && !digest_equal(&ask->sha256, &empty))
        return error_set(-EBADMSG, "source: %s/%.*s is empty, the list has another SHA-256; correct the list",
                         base->url, (int)GR_MIN(ask->path_len, (size_t)300), ask->path);
    if (ask->have_sha256)
        now.validator_len = (size_t)snprintf(now.validator, sizeof now.validator, SOURCE_VALIDATOR_SHA256 "%s",
                                             digest_hex(&ask->sha256, hex));
    return source_tell(ask, &now, visit, arg);
}

/* ------------------------------------------------------------------ index pages */

/* Get the index page of a directory, with retries, and its final address. -EMSGSIZE: it is over resp->body.max. */
static int get_page(struct source_http *s, const struct walk_place *place, struct bytes *out_url,
                    struct http_response *resp)
{
    CLEANUP_FREE char *to = NULL;
    const size_t limit = resp->body.max;
    struct source_try try = {0};
    int rc = source_http_url(s, place->path, place->path_len, true, out_url);
    if (rc)
        return rc;
    const struct http_request req = {.method = "GET", .url = (const char *)out_url->data};
    while ((rc = ask_once(s, &req, resp, &to)) && !(rc = source_retry_wait(&s->retry, &try, rc))) {
        http_response_release(resp);
        *resp = (struct http_response){.body.max = limit};
        free(to);
    }
    if (rc || !to)
        return rc;
    bytes_clear(out_url); /* links are relative to the final address */
    return bytes_printf(out_url, "%.*s", (int)(strrchr(to, '/') + 1 - to), to);
}

/* walk_place.kind. PLACE_FILE: a file whose page gives only its name, so size and version must be requested. */
enum { PLACE_PAGE, PLACE_FILE };

/* An index page that is being decoded. */
struct page {
    struct source_http *s;
    struct walker *walker;
    const struct walk_place *place;
    struct bytes path; /* of the current child */
    bool directories;  /* this pass takes directories, otherwise files */
};

/* Push a directory, unless the rules leave it out. It is emitted only if its mtime is known: the listing makes the
 * missing parents of files anyway. */
static int take_directory(struct page *p, const struct source_entry *e, bool exact)
{
    unsigned depth = 0;
    for (size_t i = 0; i < e->path_len; i++)
        depth += e->path[i] == '/';
    if (!rules_take(p->s->rules, e->path, e->path_len, true))
        return 0;
    if (depth >= DEPTH_MAX)
        return error_set(-EINVAL,
                         "source: %s: directories nest over %d deep at '%.*s': a link there may lead back; leave it "
                         "out with --exclude",
                         p->s->base.url, DEPTH_MAX, (int)GR_MIN(e->path_len, (size_t)200), e->path);
    int rc = exact ? walk_emit(p->walker, e) : 0;
    return rc ? rc : walk_push(p->walker, &(struct walk_place){.path = e->path, .path_len = e->path_len});
}

/* Emit a file whose size and time the page gives; otherwise push it, to be looked up. The rules are asked before
 * that request; source_shape would come too late to save it. */
static int take_file(struct page *p, struct source_entry *e, const struct http_index_entry *child)
{
    char validator[SOURCE_VALIDATOR_MAX + 1];
    if (!child->exact && !rules_take(p->s->rules, e->path, e->path_len, false))
        return 0;
    if (!child->exact)
        return walk_push(p->walker, &(struct walk_place){.path = e->path, .path_len = e->path_len, .kind = PLACE_FILE});
    e->mode = S_IFREG | 0644;
    e->size = child->size;
    e->validator = validator;
    e->validator_len = print_time_and_size(child->mtime, child->size, validator);
    atomic_fetch_add(&p->s->files, 1);
    return walk_emit(p->walker, e);
}

/* Take one child of the page, in the pass for its type. An http_index_visit. */
static int take_child(void *arg, const struct http_index_entry *child)
{
    struct page *p = arg;
    if (child->directory != p->directories)
        return 0;
    bytes_clear(&p->path);
    int rc = bytes_append(&p->path, p->place->path, p->place->path_len);
    if (!rc && p->path.len)
        rc = bytes_append(&p->path, "/", 1);
    if (!rc)
        rc = bytes_append(&p->path, child->name, child->name_len);
    if (rc)
        return error_set(-EINVAL, "source: a path that begins with '%.100s' is over 65535 bytes", p->place->path);
    struct source_entry e = {
        .path = (const char *)p->path.data, .path_len = p->path.len, .mode = S_IFDIR | 0755, .mtime = child->mtime};
    return child->directory ? take_directory(p, &e, child->exact) : take_file(p, &e, child);
}

/* List one index page, in two passes: directories first, then files. The files are then on top of the stack and are
 * looked up before more pages are fetched, so names do not pile up. */
static int source_http_list_page(struct source_http *s, struct walker *w, const struct walk_place *place)
{
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    const size_t limit = place->alone ? PAGES_BYTES : PAGE_BYTES;
    CLEANUP(http_response_release) struct http_response resp = {.body.max = limit};
    struct page page = {.s = s, .walker = w, .place = place, .path = BYTES_INIT(CATALOG_PATH_MAX)};
    int rc = get_page(s, place, &url, &resp);
    if (rc == -EMSGSIZE && place->alone)
        return error_set(-EFBIG, "source: the index of %s/%.*s takes more than %d MiB; name its files by --files-from",
                         s->base.url, (int)GR_MIN(place->path_len, (size_t)200), place->path, PAGES_BYTES >> 20);
    if (rc == -EMSGSIZE) {
        struct walk_place again = *place;
        again.alone = true;
        return walk_push(w, &again);
    }
    for (int i = 0; !rc && i < 2; i++) {
        page.directories = i == 0;
        rc = http_index_decode(resp.body.data, resp.body.len, (const char *)url.data, take_child, &page);
    }
    bytes_release(&page.path);
    return rc;
}

static int source_http_list_place(void *arg, struct walker *w, const struct walk_place *place)
{
    struct source_http *s = arg;
    if (place->kind == PLACE_PAGE)
        return source_http_list_page(s, w, place);
    const struct source_ask ask = {.path = place->path, .path_len = place->path_len};
    int rc = http_source_look(&s->base, &ask, walk_emit, w);
    if (!rc)
        atomic_fetch_add(&s->files, 1);
    return rc;
}

static int http_source_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_http *s = http_of(base);
    const struct walk walk = {.url = s->url,
                              .threads = s->connections ? s->connections : LIST_THREADS,
                              .list = source_http_list_place,
                              .arg = s,
                              .visit = visit,
                              .visit_arg = arg,
                              .counts = &s->counts};
    s->counts = (struct source_counts){0};
    atomic_store(&s->files, 0);
    int rc = walk_run(&walk);
    /* a page that looks like an index but names no file is more likely a wrong address than an empty dataset */
    if (!rc && !atomic_load(&s->files))
        return error_set(-ENOENT, "source: the index of %s/ names no file; check the address", s->url);
    return rc;
}

static void http_source_counts(struct source *base, struct source_counts *out)
{
    source_counts_add(out, &http_of(base)->counts);
}

/* ------------------------------------------------------------------ reading */

enum version_kind { VERSION_NONE, VERSION_ETAG, VERSION_TIME, VERSION_SHA256 };

/* A version as it was listed, parsed from its validator. */
struct version {
    enum version_kind kind;
    char text[SOURCE_VALIDATOR_MAX + 1];
    long long mtime;
    unsigned long long size;
};

/* Parse the validator of a read. */
static struct version version_of(const struct source_read *r)
{
    struct version v = {0};
    memcpy(v.text, r->validator_len ? r->validator : "", r->validator_len);
    if (*v.text == '"')
        v.kind = VERSION_ETAG;
    else if (sscanf(v.text, "t:%lld-%llu", &v.mtime, &v.size) == 2)
        v.kind = VERSION_TIME;
    else if (!strncmp(v.text, SOURCE_VALIDATOR_SHA256, strlen(SOURCE_VALIDATOR_SHA256)))
        v.kind = VERSION_SHA256;
    return v;
}

/* Write the header line that makes a request conditional; "" if the version allows none. */
static void print_condition(const struct version *v, char *out, size_t size)
{
    time_t mtime = (time_t)v->mtime;
    struct tm utc;
    *out = 0;
    if (v->kind == VERSION_ETAG)
        snprintf(out, size, "If-Match: %s", v->text);
    else if (v->kind == VERSION_TIME && gmtime_r(&mtime, &utc))
        strftime(out, size, "If-Unmodified-Since: %a, %d %b %Y %H:%M:%S GMT", &utc);
}

/* Return whether the answer is of the wanted version, as far as its headers tell. */
static bool is_version(const struct source_read *r, const struct version *v, const struct http_response *resp)
{
    int64_t total = resp->status == 206 ? resp->range_total : resp->content_length;
    if (r->size && total >= 0 && (uint64_t)total != r->size)
        return false;
    if (v->kind == VERSION_ETAG)
        return !*resp->etag || !strcmp(resp->etag, v->text);
    if (v->kind == VERSION_TIME)
        return (resp->last_modified < 0 || resp->last_modified == v->mtime) &&
               (total < 0 || (uint64_t)total == v->size);
    return true;
}

/* Try once to read the whole range. -ESTALE: the server has another version; -EAGAIN: the answer was cut short. */
static int read_once(struct source_http *s, const struct source_read *r, const char *url, const struct version *v)
{
    CLEANUP(http_response_release) struct http_response resp = {0};
    char condition[SOURCE_VALIDATOR_MAX + 32];
    struct source_target target = {.dst = r->dst, .len = r->len};
    print_condition(v, condition, sizeof condition);
    const struct http_request req = {.method = "GET",
                                     .url = url,
                                     .headers = {*condition ? condition : NULL},
                                     .sink = source_take,
                                     .sink_arg = &target,
                                     .range_off = r->offset,
                                     .range_len = r->len};
    int rc = ask_once(s, &req, &resp, NULL);
    if (!rc && !is_version(r, v, &resp))
        return error_set(-ESTALE, "source: %.300s changed", url);
    if (!rc && target.done < target.len)
        return error_set(-EAGAIN, "source: the answer for %.300s was cut short", url);
    return rc;
}

static int http_source_read(struct source *base, const struct source_read *r)
{
    struct source_http *s = http_of(base);
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    const struct version v = version_of(r);
    struct source_try try = {0};
    int rc = source_http_url(s, r->path, r->path_len, false, &url);
    if (rc)
        return rc;
    while ((rc = read_once(s, r, (const char *)url.data, &v)) && !(rc = source_retry_wait(&s->retry, &try, rc)))
        ;
    /* the list is wrong, rather than the file changing: trying again would not help */
    if (rc == -ESTALE && v.kind == VERSION_SHA256)
        return error_set(-EBADMSG, "source: %.300s is not what the list says: its size differs",
                         (const char *)url.data);
    return rc;
}

/* ------------------------------------------------------------------ life */

static void http_source_close(struct source *base)
{
    struct source_http *s = http_of(base);
    http_free(s->http);
    source_retry_release(&s->retry);
    http_login_free(s->login);
    free(s->netrc);
    free(s->url);
    free(s);
}

int source_http_open(const char *url, const struct source_options *options, struct source **out)
{
    static const struct source_ops ops = {.list = http_source_list,
                                          .counts = http_source_counts,
                                          .look = http_source_look,
                                          .read = http_source_read,
                                          .stat = http_source_stat,
                                          .cancel = http_source_cancel,
                                          .close = http_source_close};
    const struct http_config config = {
        .connections = options->connections, .rate = options->rate, .cancel = options->cancel};
    int rc = http_check_url("source", url, "put them into ~/.netrc, or a token into what --http-token-file names");
    if (rc)
        return rc;
    struct source_http *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    source_retry_init(&s->retry, url, options);
    s->connections = options->connections;
    s->rules = options->rules;
    s->base.ops = &ops;
    s->base.url = s->retry.url = s->url = strdup(url);
    /* make_url appends "/PATH" */
    for (size_t len = strlen(url); s->url && s->url[len - 1] == '/';)
        s->url[--len] = 0;
    rc = s->url ? 0 : error_no_memory();
    if (!rc && options->http_token_file)
        rc = http_login_read(options->http_token_file, &s->login);
    else if (!rc)
        s->netrc = http_login_netrc();
    if (!rc)
        rc = http_new(&config, &s->http);
    if (rc)
        http_source_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
