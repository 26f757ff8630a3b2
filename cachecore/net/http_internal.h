/* The transfer shared by http.c, which runs it, and http_answer.c, which receives the answer. Private to these two. */
#ifndef GRANARY_NET_HTTP_INTERNAL_H
#define GRANARY_NET_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "net/http.h"

enum { HTTP_SIGV4_MAX = 128 };

/* A request in flight: what curl's callbacks need and have seen. One thread. */
struct http_transfer {
    const struct http_request *req;
    struct http_response *resp;
    size_t body_max;                  /* bytes of a 2xx answer's body without a sink */
    uint64_t received;                /* body bytes of the final answer */
    uint64_t range_first, range_last; /* from Content-Range */
    bool has_range;                   /* range_first and range_last are set */
    bool judged;                      /* judge_range has run for this answer */
    bool enough;                      /* the rest of the body is not needed: close the connection */
    int failed;                       /* -errno of a callback, sentence set; 0: none */
    struct curl_slist *headers;
    struct rate *rate; /* NULL: no limit */
    const volatile int *cancel;
    uint64_t cancel_from_ms; /* on clock_now_ms: cancel is ignored before */
    bool among_nodes;        /* the certificates are the nodes' own */
    long version;            /* HTTP version of the answer: CURL_HTTP_VERSION_... */
    curl_off_t sent;         /* bytes of the request's body that the rate has counted */
    char host[128], text[CURL_ERROR_SIZE], sigv4[HTTP_SIGV4_MAX];
};

/* Begin an answer: forget what came before, and take the status from line, an empty string before the first answer. */
void http_answer_begin(struct http_transfer *t, const char *line);

/* Count n bytes against the rate and wait as it says. 0, or -EAGAIN if the request was cancelled meanwhile. */
int http_transfer_pay(struct http_transfer *t, uint64_t n);
/* Set the sentence of a cancelled request; returns -EAGAIN. */
int http_transfer_cancelled(struct http_transfer *t);

/* Callbacks for curl; arg is the transfer. */
size_t http_answer_header(char *data, size_t one, size_t len, void *arg);
size_t http_answer_body(char *data, size_t one, size_t len, void *arg);

/* End a transfer that curl considers complete. 0, or t->failed, which is set here when the requested range did not
 * arrive whole. */
int http_answer_end(struct http_transfer *t);

#endif
