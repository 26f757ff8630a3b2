/* The operations of the client, one function each. webhdfs_ask.c sends the requests.
 *
 * Servers differ in how they report a read past the end of a file: some announce fewer bytes, some fail in a way that
 * looks temporary. webhdfs_read handles both, so that callers see the end of a file as a short read.
 */
#include "net/hdfs/webhdfs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

int webhdfs_new(const char *url, const struct webhdfs_config *config, struct webhdfs **out)
{
    struct webhdfs *w = calloc(1, sizeof *w);
    if (!w)
        return error_no_memory();
    pthread_mutex_init(&w->mutex, NULL);
    int rc = hdfs_address_parse(url, &w->address);
    if (!rc)
        rc = hdfs_address_identity(&w->address, config->token_file, &w->identity, &w->secret);
    if (!rc)
        rc = http_new(&config->http, &w->http);
    if (rc) {
        webhdfs_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void webhdfs_free(struct webhdfs *w)
{
    if (!w)
        return;
    http_free(w->http);
    hdfs_address_release(&w->address);
    text_wipe(&w->identity);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

const struct hdfs_address *webhdfs_address(const struct webhdfs *w)
{
    return &w->address;
}

/* ------------------------------------------------------------------ operations */

#define CLEANUP_RESPONSE CLEANUP(http_response_release) struct http_response

int webhdfs_stat(struct webhdfs *w, const char *path, size_t len, struct webhdfs_page **out)
{
    CLEANUP_RESPONSE resp = {0};
    const struct webhdfs_question q = {
        .method = "GET", .op = "GETFILESTATUS", .path = path, .path_len = len, .query = ""};
    int rc = webhdfs_perform(w, &q, &resp);
    return rc ? rc : webhdfs_named(w, &q, webhdfs_status_decode(resp.body.data, resp.body.len, out));
}

int webhdfs_list(struct webhdfs *w, const char *path, size_t len, const char *start_after, struct webhdfs_page **out)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP_BYTES query = BYTES_INIT(WEBHDFS_URL_MAX);
    int rc = start_after ? bytes_printf(&query, "&startAfter=") : 0;
    if (!rc && start_after)
        rc = http_percent_encode(&query, start_after, strlen(start_after), false);
    if (!rc)
        rc = bytes_append(&query, "", 1);
    if (rc)
        return rc == -EMSGSIZE ? error_set(-EINVAL, "%s: a name is too long", w->address.name) : rc;
    const struct webhdfs_question q = {.method = "GET",
                                       .op = "LISTSTATUS_BATCH",
                                       .path = path,
                                       .path_len = len,
                                       .query = (const char *)query.data,
                                       .body_max = WEBHDFS_BODY_MAX};
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    rc = webhdfs_perform(w, &q, &resp);
    if (!rc)
        rc = webhdfs_named(w, &q, webhdfs_list_decode(resp.body.data, resp.body.len, &page));
    if (rc)
        return rc;
    /* A server that ignores startAfter would send the same page for ever. */
    size_t count = webhdfs_page_count(page);
    if (start_after && count && !strcmp(webhdfs_page_status(page, count - 1)->name, start_after))
        return webhdfs_named(w, &q, error_set(-EBADMSG, "the server's listing does not end"));
    *out = steal_ptr(&page);
    return 0;
}

/* Did a failed read begin past the end of the file? Keeps the read's error. */
static bool behind_end(struct webhdfs *w, const struct webhdfs_question *q, uint64_t off)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    struct error failed;
    error_take(&failed, -EAGAIN);
    int rc = webhdfs_stat(w, q->path, q->path_len, &page);
    (void)error_restore(&failed);
    return !rc && webhdfs_page_status(page, 0)->size <= off;
}

/* A length of UINT64_MAX leaves length= out, and the server sends all that follows. */
int webhdfs_read(struct webhdfs *w, const char *path, size_t path_len, const struct http_part *part, http_sink *sink,
                 void *arg, uint64_t *out_done)
{
    CLEANUP_RESPONSE resp = {0};
    char query[96];
    uint64_t off = part->off, len = part->len;
    struct webhdfs_flow flow = {.sink = sink, .arg = arg, .most = len, .resp = &resp};
    int used = snprintf(query, sizeof query, "&offset=%llu", (unsigned long long)off);
    if (len != UINT64_MAX)
        snprintf(query + used, sizeof query - (size_t)used, "&length=%llu", (unsigned long long)len);
    const struct webhdfs_question q = {.method = "GET",
                                       .op = "OPEN",
                                       .path = path,
                                       .path_len = path_len,
                                       .query = query,
                                       .flow = &flow,
                                       .datanode = true,
                                       .fresh = part->fresh};
    /* HDFS has no offsets above 63 bits: past every end, so nothing to read. */
    int rc = off > INT64_MAX || (len != UINT64_MAX && len > INT64_MAX) ? 0 : webhdfs_perform(w, &q, &resp);
    *out_done = flow.done;
    if (flow.ends_early)
        return 0;
    if (webhdfs_passing(rc) && !resp.sink_stopped && !flow.done && off && behind_end(w, &q, off))
        return 0;
    return rc;
}

/* Does a redirect lead back to the host that sent it? HttpFS does that for writes. */
static bool is_gateway(const struct bytes *url, const struct http_response *resp)
{
    char asked[WEBHDFS_HOST_MAX], told[WEBHDFS_HOST_MAX];
    webhdfs_host_of((const char *)url->data, asked);
    webhdfs_host_of(resp->location ? resp->location : "", told);
    return !strcmp(asked, told);
}

/* Two requests by hand and not by webhdfs_perform: the data goes only to the DataNode, and a failed write is not
 * repeated on another one. */
int webhdfs_create(struct webhdfs *w, const char *path, const void *data, size_t n)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP(bytes_wipe) struct bytes url = BYTES_INIT(WEBHDFS_URL_MAX);
    const struct webhdfs_question q = {.method = "PUT",
                                       .op = "CREATE",
                                       .path = path,
                                       .path_len = strlen(path),
                                       .query = "&overwrite=false",
                                       .datanode = true,
                                       .body = n ? data : "",
                                       .body_len = n};
    bool again;
    int rc = webhdfs_ask(w, &q, &url, &resp);
    if (!rc && webhdfs_redirects(&resp) && is_gateway(&url, &resp))
        rc = webhdfs_named(w, &q,
                           error_set(-ENOTSUP, "HttpFS cannot replace a name in one step: write through the NameNode's "
                                               "own address (port 9870)"));
    else if (!rc && webhdfs_redirects(&resp))
        rc = webhdfs_follow(w, &q, &url, &resp, &again); /* not repeated: the file may exist now */
    else if (!rc)
        rc = webhdfs_named(w, &q, error_set(-EIO, "the NameNode names no DataNode to write to"));
    return rc;
}

/* Do an operation that changes names, without data. */
static int change(struct webhdfs *w, const char *method, const char *op, const char *path, const char *query,
                  struct http_response *resp)
{
    const struct webhdfs_question q = {
        .method = method, .op = op, .path = path, .path_len = strlen(path), .query = query};
    return webhdfs_perform(w, &q, resp);
}

int webhdfs_mkdirs(struct webhdfs *w, const char *path)
{
    CLEANUP_RESPONSE resp = {0};
    return change(w, "PUT", "MKDIRS", path, "", &resp);
}

int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, bool replace)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP_BYTES query = BYTES_INIT(WEBHDFS_URL_MAX);
    int rc = bytes_printf(&query, "&renameoptions=%s&destination=", replace ? "OVERWRITE" : "NONE");
    if (!rc)
        rc = http_percent_encode(&query, to, strlen(to), false);
    if (rc || !bytes_string(&query))
        return error_no_memory();
    rc = change(w, "PUT", "RENAME", from, (const char *)query.data, &resp);
    /* A server that knows RENAME's options answers without a body. */
    if (!rc && resp.body.len)
        return error_set(-ENOTSUP, "%s%.200s: the server does not know RENAME with options", w->address.name, to);
    return rc;
}

int webhdfs_delete(struct webhdfs *w, const char *path)
{
    CLEANUP_RESPONSE resp = {0};
    int rc = change(w, "DELETE", "DELETE", path, "", &resp);
    return rc == -ENOENT ? 0 : rc;
}
