/* A small HTTP server on 127.0.0.1 whose every answer is the test's own: it may be wrong, short,
 * slow or none. One thread a connection.
 */
#ifndef GRANARY_TESTS_FAKE_HTTP_FAKE_H
#define GRANARY_TESTS_FAKE_HTTP_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_fake;

/* For who asks one: a machine that is busy for seconds is no server that is not there. */
enum { HTTP_FAKE_TIMEOUT_S = 60 };
#define HTTP_FAKE_TIMEOUTS                                                                                             \
    .connect_timeout_ms = HTTP_FAKE_TIMEOUT_S * 1000, .stall_timeout_s = HTTP_FAKE_TIMEOUT_S /* of http_config */

struct http_fake_request {
    char head[16384]; /* request line and headers */
    char method[16], target[8192];
    uint8_t *body;
    size_t body_len;
    unsigned number;     /* of the request in the server's life, from 0 */
    unsigned connection; /* likewise */
};

enum http_fake_next { HTTP_FAKE_KEEP, HTTP_FAKE_CLOSE, HTTP_FAKE_RESET };

/* Answer by http_fake_send. Called by several threads at once when there are several connections. */
typedef enum http_fake_next http_fake_handler(void *arg, const struct http_fake_request *request, int fd);

/* Aborts the test when it cannot start. */
struct http_fake *http_fake_start(http_fake_handler *handler, void *arg);
const char *http_fake_url(const struct http_fake *f); /* "http://127.0.0.1:PORT" */
unsigned http_fake_requests(struct http_fake *f);
unsigned http_fake_connections(struct http_fake *f);
void http_fake_stop(struct http_fake *f);

void http_fake_send(int fd, const void *data, size_t len);
/* printf; a bare text is sent as it is. */
void http_fake_text(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The value of a request's header (without blanks before it) in out, or false. */
bool http_fake_header(const struct http_fake_request *r, const char *name, char *out, size_t size);

#endif
