/* What http.c and http_answer.c share; nobody else includes it. */
#ifndef GRANARY_NET_HTTP_TRANSFER_H
#define GRANARY_NET_HTTP_TRANSFER_H

#include <curl/curl.h>

#include "net/http.h"

enum { HTTP_SIGV4_MAX = 128 };

/* A request under way: where the callbacks keep what they saw. */
struct http_transfer {
    const struct http_request *req;
    struct http_response *resp;
    size_t body_max;                  /* of a 2xx answer without sink */
    uint64_t received;                /* body bytes of the final answer */
    uint64_t range_first, range_last; /* of Content-Range */
    bool has_range;
    bool judged; /* judge_range has run for this answer */
    bool enough; /* the rest of the body is not wanted: hang up */
    int failed;  /* -errno of a callback, sentence set; 0: none */
    struct curl_slist *headers;
    struct rate *rate; /* NULL: no limit */
    const volatile int *cancel;
    uint64_t cancel_from_ms; /* on clock_now_ms: cancel is not heeded before; 0: always */
    long version;            /* of HTTP that the answer came by: CURL_HTTP_VERSION_... */
    curl_off_t sent;         /* of the request's body, so far as the rate has been told */
    char host[128], text[CURL_ERROR_SIZE], sigv4[HTTP_SIGV4_MAX];
};

/* Forget what came so far: a status line (empty before the first one) begins an answer. */
void http_answer_begin(struct http_transfer *t, const char *line);

/* n bytes are passing: wait as the rate says. 0, or http_transfer_cancelled. */
int http_transfer_pay(struct http_transfer *t, uint64_t n);
/* -EAGAIN, with its sentence. */
int http_transfer_cancelled(struct http_transfer *t);

/* Callbacks of curl, arg: the transfer. */
size_t http_answer_header(char *data, size_t one, size_t len, void *arg);
size_t http_answer_body(char *data, size_t one, size_t len, void *arg);

/* The transfer ended as curl thinks it should. 0, or t->failed, set when the range asked for did not come whole. */
int http_answer_end(struct http_transfer *t);

#endif
