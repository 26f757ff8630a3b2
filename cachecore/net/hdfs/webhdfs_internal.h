/* The client as shared by webhdfs.c, its operations, and webhdfs_ask.c, its requests. Private to these two. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H
#define GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/hdfs/webhdfs.h"

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

#endif
