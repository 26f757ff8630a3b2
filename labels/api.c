/* Two requests of Kubernetes' API: GET and PATCH of one node. Both ask for the node's metadata alone, since its status
 * has kilobytes of image names.
 *
 * kubelet replaces a pod's token while the pod runs, and may replace the certificates, so both are read for each
 * request. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "labels/labels.h"
#include "net/http.h"

enum { TOKEN_MAX = 64 << 10, ANSWER_MAX = 4 << 20, URL_MAX = 2048, DEADLINE_MS = 10000 };

DEFINE_CLEANUP(http, struct http *, http_free)

/* Make the node's address. */
static int node_url(const struct label_api *api, struct bytes *out)
{
    const char *host = text_of_environment("KUBERNETES_SERVICE_HOST");
    const char *port = text_of_environment("KUBERNETES_SERVICE_PORT");
    if (!host || !port)
        return error_set(-EINVAL,
                         "KUBERNETES_SERVICE_HOST or _PORT is not set: this is no pod; outside of one use --nfd");
    bool v6 = strchr(host, ':');
    int rc = bytes_printf(out, "https://%s%s%s:%s/api/v1/nodes/", v6 ? "[" : "", host, v6 ? "]" : "", port);
    if (!rc)
        rc = http_percent_encode(out, api->node, strlen(api->node), false);
    return rc || !bytes_string(out) ? error_set(-EINVAL, "the node's address is too long") : 0;
}

/* Make the header with the token. */
static int make_authorization(const char *path, struct bytes *out)
{
    int rc = bytes_printf(out, "Authorization: Bearer ");
    if (!rc)
        rc = io_read_file(path, out);
    if (rc)
        return rc;
    while (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    if (memchr(out->data, '\n', out->len) || memchr(out->data, '\r', out->len) || memchr(out->data, 0, out->len))
        return error_set(-EINVAL, "%s has no token", path);
    return bytes_string(out) ? 0 : error_no_memory();
}

/* Return the error for a status that is no success, with the server's reason. */
static int refuse(const struct label_api *api, const char *method, const struct http_response *resp)
{
    CLEANUP_JSON json_t *status = json_loadb((const char *)resp->body.data, resp->body.len, 0, NULL);
    const char *why = json_string_value(json_object_get(status, "message"));
    int rc = http_status_errno(resp->status);
    const char *remedy = "";
    why = why ? why : "no reason given";
    if (resp->status == 401)
        remedy = "; the pod's token is not valid (any more)";
    else if (resp->status == 403)
        remedy = "; the service account needs get and patch on nodes, and its policy allows its own node only";
    else if (resp->status == 404)
        remedy = "; --node is the node's name in Kubernetes";
    else if (resp->status == 409)
        rc = -EAGAIN; /* changed by another at that moment */
    else if (resp->status == 422)
        remedy = "; the policy refuses other labels, and more of them than it allows";
    rc =
        error_set(rc ? rc : -EIO, "%s node %s: HTTP status %d: %.250s%s", method, api->node, resp->status, why, remedy);
    return resp->retry_after_s > 0 ? error_retry_after(rc, (unsigned)resp->retry_after_s) : rc;
}

/* Take the labels out of a node, or of its metadata. */
static int take_labels(const struct http_response *resp, json_t **out)
{
    CLEANUP_JSON json_t *node = json_loadb((const char *)resp->body.data, resp->body.len, 0, NULL);
    json_t *metadata = json_object_get(node, "metadata"), *labels = json_object_get(metadata, "labels");
    if (!metadata)
        return error_set(-EIO, "the answer of the API server is not a node");
    *out = labels ? json_incref(labels) : json_object();
    return *out ? 0 : error_no_memory();
}

static int request(const struct label_api *api, const char *method, const json_t *patch, json_t **out)
{
    char token[PATH_MAX], ca[PATH_MAX];
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    struct bytes authorization CLEANUP(bytes_wipe) = BYTES_INIT(TOKEN_MAX);
    CLEANUP_FREE char *body = patch ? json_dumps(patch, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    CLEANUP(cleanup_http) struct http *http = NULL;
    struct http_response resp CLEANUP(http_response_release) = {.body.max = ANSWER_MAX};
    *out = NULL;
    if (patch && !body)
        return error_no_memory();
    snprintf(token, sizeof token, "%s/token", api->credentials);
    snprintf(ca, sizeof ca, "%s/ca.crt", api->credentials);
    int rc = node_url(api, &url);
    if (!rc)
        rc = make_authorization(token, &authorization);
    if (!rc)
        rc = http_new(&(struct http_config){.connections = 1, .ca_bundle = ca, .no_proxy = true}, &http);
    if (rc)
        return rc;
    struct http_request q = {.method = method,
                             .url = (const char *)url.data,
                             .headers = {(const char *)authorization.data,
                                         "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                                         patch ? "Content-Type: application/merge-patch+json" : NULL},
                             .body = body,
                             .body_len = body ? strlen(body) : 0,
                             .deadline_ms = clock_now_ms() + DEADLINE_MS};
    rc = http_do(http, &q, &resp);
    if (rc)
        return error_prefix(rc, "the API server");
    return resp.status / 100 == 2 ? take_labels(&resp, out) : refuse(api, method, &resp);
}

int label_api_get(const struct label_api *api, json_t **out)
{
    return request(api, "GET", NULL, out);
}

int label_api_patch(const struct label_api *api, const json_t *patch, json_t **out)
{
    return request(api, "PATCH", patch, out);
}
