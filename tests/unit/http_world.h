/* An HTTP server that gives one answer to every request, and a client of it. */
#ifndef GRANARY_TESTS_UNIT_HTTP_WORLD_H
#define GRANARY_TESTS_UNIT_HTTP_WORLD_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "fake/http_fake.h"
#include "net/http.h"
#include "unit/cmocka_all.h"

/* One answer for every request, and what the last request said. */
struct script {
    const char *answer;
    enum http_fake_next next;
    pthread_mutex_t mutex;
    char last[4096];
};

static inline enum http_fake_next answer_script(void *arg, const struct http_fake_request *r, int fd)
{
    struct script *s = arg;
    pthread_mutex_lock(&s->mutex);
    snprintf(s->last, sizeof s->last, "%.4000s", r->head);
    const char *answer = s->answer;
    enum http_fake_next next = s->next;
    pthread_mutex_unlock(&s->mutex);
    http_fake_send(fd, answer, strlen(answer));
    return next;
}

struct fixture {
    struct script script;
    struct http_fake *server;
    struct http *http;
    char url[128];
};

static inline void set_answer(struct fixture *f, const char *answer)
{
    SCOPED_LOCK(&f->script.mutex);
    f->script.answer = answer;
}

static inline void set_next(struct fixture *f, enum http_fake_next next)
{
    SCOPED_LOCK(&f->script.mutex);
    f->script.next = next;
}

/* The head of the last request; no request is under way. */
static inline const char *last_request(struct fixture *f)
{
    SCOPED_LOCK(&f->script.mutex);
    return f->script.last;
}

static inline struct http *new_http(unsigned connections)
{
    struct http *h = NULL;
    const struct http_config config = {.connections = connections, HTTP_FAKE_TIMEOUTS};
    assert_int_equal(http_new(&config, &h), 0);
    return h;
}

static inline int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    pthread_mutex_init(&f->script.mutex, NULL);
    f->server = http_fake_start(answer_script, &f->script);
    f->http = new_http(4);
    snprintf(f->url, sizeof f->url, "%s/x", http_fake_url(f->server));
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    http_free(f->http);
    http_fake_stop(f->server);
    pthread_mutex_destroy(&f->script.mutex);
    free(f);
    return 0;
}

static inline int collect(void *arg, const void *data, size_t len)
{
    return bytes_append(arg, data, len);
}

/* No proxy is between the test and its server. */
static inline void unset_proxies(void)
{
    static const char *const proxies[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(proxies); i++)
        unsetenv(proxies[i]);
}

/* A test in that world. */
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

#endif
