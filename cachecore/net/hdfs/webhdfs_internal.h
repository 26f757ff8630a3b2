/* What the client consists of: addresses and identities, requests, and the decoding of answers. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H
#define GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/hdfs/webhdfs.h"

/* ---- requests (webhdfs.c, webhdfs_ask.c) ---- */

enum { WEBHDFS_URL_MAX = 512 << 10, WEBHDFS_DEAD_MAX = 8, WEBHDFS_HOST_MAX = 272 };

/* A DataNode that could not be reached. */
struct dead_datanode {
    char host[WEBHDFS_HOST_MAX]; /* "HOST:PORT"; empty: a free entry */
    uint64_t until_ms;           /* on clock_now_ms: excluded until then */
};

struct webhdfs {
    struct hdfs_address address;
    struct http *http;
    char *identity;         /* user.name=… or delegation=… */
    bool secret;            /* identity is a token */
    _Atomic size_t current; /* number of the NameNode that answered last */
    pthread_mutex_t mutex;  /* guards dead */
    struct dead_datanode dead[WEBHDFS_DEAD_MAX];
};

/* Passes an answer's bytes to the caller's sink. */
struct webhdfs_flow {
    http_sink *sink;
    void *arg;
    uint64_t done, most;              /* bytes passed to the sink, and the most that may be */
    const struct http_response *resp; /* of the request in flight */
    bool ends_early; /* the answer's length shows that the file has fewer bytes; none was passed to the sink */
};

/* One operation. The answer's bytes go to the flow if there is one, else into the response. */
struct webhdfs_question {
    const char *method, *op;
    const char *path;
    size_t path_len;
    const char *query;         /* further parameters with their '&', escaped; "" */
    struct webhdfs_flow *flow; /* may be NULL */
    bool datanode;             /* the answer may be, or come from, a DataNode */
    bool fresh;                /* use new connections */
    size_t body_max;           /* bytes of an answer without a flow; 0: http_do's default */
    const void *body;          /* sent to the DataNode */
    size_t body_len;
};

/* Is a failure worth a retry? */
static inline bool webhdfs_passing(int rc)
{
    return rc == -EAGAIN || rc == -ETIMEDOUT;
}

static inline bool webhdfs_redirects(const struct http_response *resp)
{
    return resp->status == 307 || resp->status == 302;
}

/* Write "HOST:PORT" of an http(s) URL to out. */
void webhdfs_host_of(const char *url, char out[WEBHDFS_HOST_MAX]);

/* Send the question to the NameNodes in turn until one answers. url: the address that answered; it may contain a token,
 * so the caller wipes it. */
GR_MUST_CHECK int webhdfs_ask(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url,
                              struct http_response *resp);

/* Send the second request, to the DataNode that the redirect in resp names; resp then has its answer. Sets *out_again
 * if that DataNode failed and another may not. */
GR_MUST_CHECK int webhdfs_follow(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url,
                                 struct http_response *resp, bool *out_again);

/* Do a whole operation: ask a NameNode, follow its redirect, try other DataNodes. */
GR_MUST_CHECK int webhdfs_perform(struct webhdfs *w, const struct webhdfs_question *q, struct http_response *resp);

/* Put address and path before the sentence of a failure; returns rc. 0 stays 0. */
int webhdfs_named(const struct webhdfs *w, const struct webhdfs_question *q, int rc);

/* ---- addresses and identities (hdfs_address.c) ---- */

/* Parse an address; the caller releases *out. -EINVAL or -ENOMEM, with a sentence; *out is empty then. */
GR_MUST_CHECK int hdfs_address_parse(const char *url, struct hdfs_address *out);
void hdfs_address_release(struct hdfs_address *a);

/* Make the parameter that identifies us in each request, escaped: "delegation=TOKEN" with a token from token_file
 * (NULL: from the file that HADOOP_TOKEN_FILE_LOCATION names), or, if neither names a file, "user.name=NAME" with
 * HADOOP_USER_NAME or this process's user. The caller wipes and frees *out. *out_secret: it is a token. -errno of
 * reading the file, or of hadoop_token_decode; -ENOENT: the user has no name; all with a sentence. */
GR_MUST_CHECK int hdfs_address_identity(const struct hdfs_address *a, const char *token_file, char **out,
                                        bool *out_secret);

/* ---- token files (hadoop_token.c) ----
 *
 * Extract a delegation token from the contents of the file that HADOOP_TOKEN_FILE_LOCATION names, in the form used in
 * WebHDFS URLs. A pure decoder without I/O. Any thread. */

enum { HADOOP_TOKEN_FILE_MAX = 1 << 20, HADOOP_TOKEN_TEXT_MAX = 64 << 10 };

/* Decode a token file: either Hadoop's own format (Credentials, "HDTS" and version 0), or text with the URL form of one
 * token. services: the NameNodes as "HOST:PORT", count of them. Of several HDFS tokens, one for a service is preferred,
 * then one for the host of a service, then the first. *out: the URL form (base64url); the caller wipes and frees it.
 * -ENOENT: there is no HDFS token; -EBADMSG: damaged or an unknown format; -ENOMEM. No sentence shows a token. */
GR_MUST_CHECK int hadoop_token_decode(const void *data, size_t len, const char *const *services, size_t count,
                                      char **out);

/* ---- answers (webhdfs_reply.c) ----
 *
 * Decode the JSON answers of WebHDFS and HttpFS. No I/O; every input is bounded and may be hostile. Failures are
 * -EBADMSG or -ENOMEM, with a sentence. Any thread. */

enum { WEBHDFS_BODY_MAX = 16 << 20 }; /* bytes of a page: some 50,000 entries */

/* Decode the answer to LISTSTATUS_BATCH. Entries are in the server's order, that of signed bytes. A page that is empty
 * although more follow is -EBADMSG too: no next page could be requested. */
GR_MUST_CHECK int webhdfs_list_decode(const void *data, size_t len, struct webhdfs_page **out);
/* Decode the answer to GETFILESTATUS into a page of one. */
GR_MUST_CHECK int webhdfs_status_decode(const void *data, size_t len, struct webhdfs_page **out);

/* A RemoteException. */
struct webhdfs_exception {
    char name[64];     /* letters and digits, as in FileNotFoundException */
    char message[200]; /* the first line of its message, cut */
};
/* Decode a RemoteException; out->name is empty when the body is something else. */
void webhdfs_exception_decode(const void *data, size_t len, struct webhdfs_exception *out);

struct webhdfs_refusal {
    const char *what;     /* address and path, for the sentence */
    const char *host;     /* "http://HOST:PORT" that answered */
    const char *identity; /* from hdfs_address_identity; a token is never shown */
    bool secret;          /* identity is a token */
};

/* Return the -errno of an answer that is not 2xx, with a sentence. *out_standby: this NameNode is standby; another may
 * be active. */
GR_MUST_CHECK int webhdfs_error(const struct webhdfs_refusal *q, const struct http_response *resp, bool *out_standby);

#endif
