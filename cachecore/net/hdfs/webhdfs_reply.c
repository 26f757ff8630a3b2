/* The answers of WebHDFS: pages of files and directories, and refusals.
 *
 * Answers are decoded with jansson. A page owns the parsed document, and the strings of its entries point into it, so
 * no string is copied. Names come from outside: a component that could lead out of its directory is refused.
 *
 * The name of the exception in a refusal decides the error. The status alone says little: 403 stands for a missing
 * permission as well as for a DataNode that is down. An unknown exception with status 403 or 5xx counts as temporary,
 * since most failures inside a cluster are; retries are bounded.
 */

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "net/hdfs/webhdfs_internal.h"

DEFINE_CLEANUP(json, json_t *, json_decref)
#define CLEANUP_JSON CLEANUP(cleanup_json)

struct webhdfs_page {
    json_t *root;
    VEC(struct webhdfs_status) statuses;
    bool more;
};

/* Set the sentence for an answer that WebHDFS does not send. */
static int strange(const char *what)
{
    return error_set(-EBADMSG, "the server's answer is not what WebHDFS sends: %s", what);
}

static int webhdfs_reply_parse(const void *data, size_t len, json_t **out)
{
    json_error_t error;
    if (len > WEBHDFS_BODY_MAX)
        return strange("it is too long");
    *out = json_loadb(data, len, JSON_REJECT_DUPLICATES, &error);
    if (!*out && json_error_code(&error) == json_error_out_of_memory)
        return error_no_memory();
    return *out ? 0 : strange("no valid JSON");
}

/* Return the string under key, owned by the document; "" if there is none. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Get the integer under key, at least min; 0 if it is missing and not required. */
static int number_of(const json_t *object, const char *key, bool required, int64_t min, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = 0;
    if (!value && !required)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < min)
        return strange(key);
    *out = json_integer_value(value);
    return 0;
}

static int webhdfs_type_of(const json_t *object, enum webhdfs_type *out)
{
    static const char *const types[] = {
        [WEBHDFS_FILE] = "FILE", [WEBHDFS_DIRECTORY] = "DIRECTORY", [WEBHDFS_SYMLINK] = "SYMLINK"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(types); i++)
        if (!strcmp(text_of(object, "type"), types[i])) {
            *out = (enum webhdfs_type)i;
            return 0;
        }
    return strange("type");
}

static int permission_of(const json_t *object, uint32_t *out)
{
    const char *text = text_of(object, "permission");
    size_t digits = strspn(text, "01234567");
    if (!digits || text[digits] || digits > 5)
        return strange("permission");
    *out = (uint32_t)strtoul(text, NULL, 8) & 07777;
    return 0;
}

/* Is this a plain name? A listing must not be able to name anything outside its directory. */
static bool name_ok(const struct webhdfs_status *s, bool listed)
{
    if (!listed)
        return true;
    return s->name_len && strcmp(s->name, ".") && strcmp(s->name, "..") && !strchr(s->name, '/');
}

/* Append a FileStatus to the page. listed: it is a directory's entry, so it must have a name. */
static int take_status(struct webhdfs_page *page, const json_t *object, bool listed)
{
    struct webhdfs_status s = {.name = text_of(object, "pathSuffix"),
                               .owner = text_of(object, "owner"),
                               .group = text_of(object, "group"),
                               .target = text_of(object, "symlink")};
    int64_t size = 0, id = 0;
    s.name_len = strlen(s.name);
    if (!name_ok(&s, listed))
        return strange("pathSuffix");
    int rc = webhdfs_type_of(object, &s.type);
    if (!rc)
        rc = permission_of(object, &s.permission);
    if (!rc)
        rc = number_of(object, "length", true, 0, &size);
    if (!rc)
        rc = number_of(object, "modificationTime", true, INT64_MIN, &s.mtime_ms);
    if (!rc)
        rc = number_of(object, "fileId", false, 0, &id);
    s.size = (uint64_t)size;
    s.file_id = (uint64_t)id;
    if (!rc)
        rc = vec_push(&page->statuses, s);
    return rc;
}

void webhdfs_page_free(struct webhdfs_page *page)
{
    vec_release(&page->statuses);
    json_decref(page->root);
    free(page);
}

size_t webhdfs_page_count(const struct webhdfs_page *page)
{
    return page->statuses.len;
}

const struct webhdfs_status *webhdfs_page_status(const struct webhdfs_page *page, size_t i)
{
    return &page->statuses.items[i];
}

bool webhdfs_page_more(const struct webhdfs_page *page)
{
    return page->more;
}

/* Parse an answer into a page without entries. */
static int new_page(const void *data, size_t len, struct webhdfs_page **out)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = calloc(1, sizeof *page);
    int rc = page ? webhdfs_reply_parse(data, len, &page->root) : error_no_memory();
    if (!rc)
        *out = steal_ptr(&page);
    return rc;
}

/* Take the entries of a DirectoryListing. */
static int take_list(struct webhdfs_page *page)
{
    const json_t *listing = json_object_get(page->root, "DirectoryListing");
    const json_t *statuses = json_object_get(json_object_get(listing, "partialListing"), "FileStatuses"), *item;
    const json_t *items = json_object_get(statuses, "FileStatus");
    int64_t remaining;
    size_t i;
    if (!json_is_array(items))
        return strange("FileStatus");
    int rc = number_of(listing, "remainingEntries", true, 0, &remaining);
    if (rc)
        return rc;
    json_array_foreach(items, i, item)
    {
        rc = take_status(page, item, true);
        if (rc)
            return rc;
    }
    page->more = remaining > 0;
    return page->more && !page->statuses.len ? strange("an empty page") : 0;
}

int webhdfs_list_decode(const void *data, size_t len, struct webhdfs_page **out)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    int rc = new_page(data, len, &page);
    if (!rc)
        rc = take_list(page);
    if (!rc)
        *out = steal_ptr(&page);
    return rc;
}

int webhdfs_status_decode(const void *data, size_t len, struct webhdfs_page **out)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    int rc = new_page(data, len, &page);
    if (!rc)
        rc = take_status(page, json_object_get(page->root, "FileStatus"), false);
    if (!rc)
        *out = steal_ptr(&page);
    return rc;
}

void webhdfs_exception_decode(const void *data, size_t len, struct webhdfs_exception *out)
{
    CLEANUP_JSON json_t *root = len ? json_loadb(data, len, 0, NULL) : NULL;
    const json_t *exception = json_object_get(root, "RemoteException");
    const char *name = text_of(exception, "exception"), *message = text_of(exception, "message");
    *out = (struct webhdfs_exception){.name = ""};
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || name[n] == '$')
        n++;
    if (!n || name[n] || n >= sizeof out->name) /* not a Java class name: do not show it */
        return;
    memcpy(out->name, name, n);
    snprintf(out->message, sizeof out->message, "%.*s", (int)strcspn(message, "\r\n"), message);
}

/* ------------------------------------------------------------------ refusals */

static const struct known {
    const char *name;
    int rc;
    const char *meaning;
} known[] = {
    {"FileNotFoundException", -ENOENT, "it is not there"},
    {"FileAlreadyExistsException", -EEXIST, "it exists already"},
    {"PathIsNotEmptyDirectoryException", -EEXIST, "a directory with entries is there"},
    {"ParentNotDirectoryException", -ENOENT, "what is above it is no directory"},
    {"AccessControlException", -EACCES, "permission denied"},
    {"AuthorizationException", -EACCES, "permission denied"},
    {"SecurityException", -ENOKEY, "the server does not accept the user's identity"},
    {"AuthenticationException", -ENOKEY, "the server does not accept the user's identity"},
    {"InvalidToken", -ENOKEY, "the delegation token is not valid or has expired; fetch a new one (hdfs fetchdt)"},
    {"NSQuotaExceededException", -ENOSPC, "the quota of names is used up"},
    {"DSQuotaExceededException", -ENOSPC, "the quota of space is used up"},
    {"QuotaByStorageTypeExceededException", -ENOSPC, "the quota of space is used up"},
    {"IllegalArgumentException", -EINVAL, "the server does not take this request"},
    {"InvalidPathException", -EINVAL, "HDFS has no such names"},
    {"PathComponentTooLongException", -EINVAL, "a name is longer than HDFS allows"},
    {"MaxDirectoryItemsExceededException", -ENOSPC, "a directory is full"},
    {"UnsupportedOperationException", -ENOTSUP, "the server does not support this request"},
};

/* Return the name without its outer class, as in FSLimitException$PathComponentTooLongException. */
static const char *simple_name(const char *name)
{
    const char *dollar = strrchr(name, '$');
    return dollar ? dollar + 1 : name;
}

/* Return the server's message for the sentence; empty if it repeats the token. */
static const char *message_of(const struct webhdfs_refusal *q, const struct webhdfs_exception *e)
{
    const char *token = q->secret ? strchr(q->identity, '=') + 1 : NULL;
    return (token && strstr(e->message, token)) || strstr(e->message, "delegation=") ? "" : e->message;
}

/* Judge by the exception: the table, then StandbyException, then the status. */
static int by_exception(const struct webhdfs_refusal *q, const struct http_response *resp,
                        const struct webhdfs_exception *e, bool *out_standby)
{
    const char *name = simple_name(e->name), *message = message_of(q, e);
    for (size_t i = 0; i < GR_ARRAY_SIZE(known); i++)
        if (!strcmp(known[i].name, name)) {
            bool refused = known[i].rc == -EACCES || known[i].rc == -ENOKEY;
            return error_set(known[i].rc, "%s: %s%s%s (%s from %s: %s)", q->what, known[i].meaning,
                             refused ? " for " : "", refused ? q->secret ? "this token" : q->identity : "", e->name,
                             q->host, message);
        }
    *out_standby = !strcmp(name, "StandbyException");
    bool passing = resp->status == 403 || http_status_errno(resp->status) == -EAGAIN;
    return error_set(passing ? -EAGAIN : -EIO, "%s: %s fails (%s: %s)", q->what, q->host, e->name, message);
}

/* Judge an answer without an exception by its status. */
static int by_status(const struct webhdfs_refusal *q, int status)
{
    if (status == 401)
        return error_set(-ENOKEY,
                         "%s: %s requires authentication (status 401); Kerberos is not supported: fetch a delegation "
                         "token (hdfs fetchdt) and set HADOOP_TOKEN_FILE_LOCATION",
                         q->what, q->host);
    int rc = http_status_errno(status);
    if (rc == -EAGAIN)
        return error_set(rc, "%s: %s fails (status %d)", q->what, q->host, status);
    if (*http_status_meaning(status))
        return error_set(rc, "%s: %s: %s (status %d)", q->what, q->host, http_status_meaning(status), status);
    return error_set(-EIO,
                     "%s: %s answered with status %d and no word of WebHDFS; check that the port is that of the "
                     "NameNode's web server (9870, or 9871 with TLS) or of HttpFS",
                     q->what, q->host, status);
}

/* Is the body the beginning of a JSON object? Then the exception is lost, and only a retry will tell. */
static bool cut_short(const struct http_response *resp)
{
    size_t len = resp->body.len;
    while (len && isspace(resp->body.data[len - 1]))
        len--;
    return len && resp->body.data[0] == '{' && resp->body.data[len - 1] != '}';
}

int webhdfs_error(const struct webhdfs_refusal *q, const struct http_response *resp, bool *out_standby)
{
    struct webhdfs_exception e;
    *out_standby = false;
    webhdfs_exception_decode(resp->body.data, resp->body.len, &e);
    int rc = *e.name ? by_exception(q, resp, &e, out_standby)
             : cut_short(resp)
                 ? error_set(-EAGAIN, "%s: the answer of %s was cut short (status %d)", q->what, q->host, resp->status)
                 : by_status(q, resp->status);
    return rc == -EAGAIN ? error_retry_after(rc, (unsigned)GR_MAX(resp->retry_after_s, 0)) : rc;
}
