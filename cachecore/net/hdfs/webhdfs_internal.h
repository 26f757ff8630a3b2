/* What webhdfs.c and webhdfs_ask.c share; nobody else includes it. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H
#define GRANARY_NET_HDFS_WEBHDFS_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/hdfs/webhdfs.h"

enum { WEBHDFS_URL_MAX = 512 << 10, WEBHDFS_DEAD_MAX = 8, WEBHDFS_HOST_MAX = 272 };

struct dead_datanode {
    char host[WEBHDFS_HOST_MAX]; /* "HOST:PORT" */
    uint64_t until_ms;
};

struct webhdfs {
    struct hdfs_address address;
    struct http *http;
    char *identity; /* user.name=… or delegation=… */
    bool secret;    /* the latter */
    _Atomic size_t current;
    pthread_mutex_t mutex; /* guards dead */
    struct dead_datanode dead[WEBHDFS_DEAD_MAX];
};

/* Where the bytes of an answer go. */
struct webhdfs_flow {
    http_sink *sink;
    void *arg;
    uint64_t done, most; /* bytes handed on; no more than so many are */
    const struct http_response *resp;
    bool ends_early; /* the file has fewer bytes, as the answer's length says: none was handed on */
};

/* Its answer's bytes go to the flow, when there is one, else into the response. */
struct webhdfs_question {
    const char *method, *op;
    const char *path;
    size_t path_len;
    const char *query;         /* further parameters with their '&', escaped; "" */
    struct webhdfs_flow *flow; /* may be NULL */
    bool datanode;             /* the answer may be, or come from, a DataNode */
    bool fresh;                /* over new connections */
    size_t body_max;           /* of an answer without flow */
    const void *body;          /* for the DataNode */
    size_t body_len;
};

static inline bool webhdfs_passing(int rc)
{
    return rc == -EAGAIN || rc == -ETIMEDOUT;
}

static inline bool webhdfs_redirects(const struct http_response *resp)
{
    return resp->status == 307 || resp->status == 302;
}

/* "HOST:PORT" of an http(s) URL. */
void webhdfs_host_of(const char *url, char out[WEBHDFS_HOST_MAX]);

/* All NameNodes in turn, until one answers. url: where the answer came from; it may hold a token. */
GR_MUST_CHECK int webhdfs_ask(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url,
                              struct http_response *resp);

/* The second request, to a DataNode, where the answer resp of the first one leads. *out_again: it is of no use, another
 * may be. */
GR_MUST_CHECK int webhdfs_follow(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url,
                                 struct http_response *resp, bool *out_again);

/* A whole question with its redirect. */
GR_MUST_CHECK int webhdfs_perform(struct webhdfs *w, const struct webhdfs_question *q, struct http_response *resp);

/* A failure rc gets address and path before its sentence; returns rc. */
int webhdfs_named(const struct webhdfs *w, const struct webhdfs_question *q, int rc);

#endif
