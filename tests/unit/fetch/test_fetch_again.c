/* What arrived wrong or short is asked for again: over another connection, then of the store behind the shared cache
 * proxy, then it is an error. Real connections, counted at the servers. */
#include "unit/fetch_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "fake/http_fake.h"
#include "fake/l2_fake.h"
#include "store/store.h"

/* A web server of what a fake store holds, whose first `bad` connections spoil every answer. */
struct server {
    struct http_fake *http;
    struct store_fake *objects;
    unsigned bad;
    bool is_short;            /* they end in the middle, as their Content-Length says; else one bit is wrong */
    bool is_empty;            /* it has nothing */
    struct store_proxies *l2; /* a proxy alone: its list */
};

static enum http_fake_next answer(void *arg, const struct http_fake_request *r, int fd)
{
    struct server *s = arg;
    CLEANUP_BYTES body = BYTES_INIT(64 << 20);
    char range[128];
    unsigned long long first, last;
    if (s->is_empty) {
        http_fake_text(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return HTTP_FAKE_KEEP;
    }
    assert_true(http_fake_header(r, "range", range, sizeof range));
    assert_int_equal(sscanf(range, "bytes=%llu-%llu", &first, &last), 2);
    assert_true(store_fake_get(s->objects, r->target + 1, &body) && last < body.len);
    bool bad = r->connection < s->bad;
    size_t len = (size_t)(last - first + 1), sent = bad && s->is_short ? len / 2 : len;
    if (bad && !s->is_short)
        body.data[first + len / 2] ^= 1;
    http_fake_text(fd,
                   "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %llu-%llu/%zu\r\nContent-Length: %zu\r\n\r\n",
                   first, last, body.len, sent);
    http_fake_send(fd, body.data + first, sent);
    return HTTP_FAKE_KEEP;
}

static void begin(struct server *s, struct store_fake *objects)
{
    s->objects = objects;
    s->http = http_fake_start(answer, s);
}

/* The world's store from now on: the origin over HTTP, behind a proxy where there is one. */
static struct store *serve(struct world *w, struct server *origin, struct server *proxy)
{
    static const struct store_options patient = {.request_s = HTTP_FAKE_TIMEOUT_S};
    struct store *store = NULL, *first;
    begin(origin, w->fake);
    assert_int_equal(store_open(http_fake_url(origin->http), &patient, &store), 0);
    if (proxy) { /* store_proxies_open, but for the patience */
        begin(proxy, w->fake);
        assert_int_equal(store_http_open(http_fake_url(proxy->http), &patient, &first), 0);
        assert_int_equal(l2_fake_open(store, &first, 1, &store, &proxy->l2), 0);
    }
    w->store = store;
    return store;
}

static void end(struct world *w, struct store *store, struct server *origin, struct server *proxy)
{
    fetch_free(w->fetch);
    w->fetch = NULL;
    store_close(store);
    http_fake_stop(origin->http);
    if (proxy) {
        store_proxies_close(proxy->l2);
        http_fake_stop(proxy->http);
    }
    world_release(w);
}

#define begin_world(w) world_init(w, &(struct fetch_config){.workers = 1}, 16)

static void test_fetch_again__wrong_bytes_heal_over_another_connection(void **state)
{
    struct world w;
    struct server origin = {.bad = 1};
    begin_world(&w);
    struct store *store = serve(&w, &origin, NULL);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    assert_int_equal(http_fake_connections(origin.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 2);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    assert_int_equal(count_of(&w, "healed_total"), 1);
    assert_int_equal(count_of(&w, "verify_failures_total"), 1);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    expect_bytes(&w, start_one(&w, 2, PRIORITY_DEMAND), 2);
    assert_int_equal(http_fake_connections(origin.http), 2); /* the good one is kept */
    end(&w, store, &origin, NULL);
}

static void test_fetch_again__short_bytes_heal_over_another_connection(void **state)
{
    struct world w;
    struct server origin = {.bad = 1, .is_short = true};
    begin_world(&w);
    struct store *store = serve(&w, &origin, NULL);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    assert_int_equal(http_fake_connections(origin.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 2);
    assert_int_equal(counter_value(store_counters, store, "granary_store_retries_total"), 1);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    end(&w, store, &origin, NULL);
}

static void test_fetch_again__bytes_wrong_everywhere_are_an_error_after_two_connections(void **state)
{
    struct world w;
    struct server origin = {.bad = UINT32_MAX};
    begin_world(&w);
    struct store *store = serve(&w, &origin, NULL);
    expect_error(start_one(&w, 1, PRIORITY_DEMAND), -EBADMSG, "packs/");
    assert_int_equal(http_fake_connections(origin.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 2);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    assert_int_equal(count_of(&w, "origin_refetches_total"), 0);
    assert_int_equal(count_of(&w, "verify_failures_total"), 2);
    assert_int_equal(count_of(&w, "healed_total"), 0);
    assert_int_equal(count_of(&w, "errors_total"), 1);
    end(&w, store, &origin, NULL);
}

static void test_fetch_again__a_proxys_broken_line_heals_without_the_store(void **state)
{
    struct world w;
    struct server origin = {0}, proxy = {.bad = 1};
    begin_world(&w);
    struct store *store = serve(&w, &origin, &proxy);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    assert_int_equal(http_fake_connections(proxy.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 0);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    assert_int_equal(count_of(&w, "origin_refetches_total"), 0);
    assert_int_equal(count_of(&w, "healed_total"), 1);
    assert_int_equal(counter_value(store_proxies_counters, proxy.l2, "granary_l2_wrong_total"), 1);
    end(&w, store, &origin, &proxy);
}

static void test_fetch_again__a_proxy_that_keeps_wrong_bytes_is_asked_over_two_connections_then_the_store(void **state)
{
    struct world w;
    struct server origin = {0}, proxy = {.bad = UINT32_MAX};
    begin_world(&w);
    struct store *store = serve(&w, &origin, &proxy);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    assert_int_equal(http_fake_connections(proxy.http), 2);
    assert_int_equal(http_fake_requests(proxy.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 1);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    assert_int_equal(count_of(&w, "origin_refetches_total"), 1);
    assert_int_equal(count_of(&w, "verify_failures_total"), 2);
    assert_int_equal(count_of(&w, "healed_total"), 1);
    assert_int_equal(counter_value(store_proxies_counters, proxy.l2, "granary_l2_wrong_total"), 2);
    end(&w, store, &origin, &proxy);
}

static void test_fetch_again__proxy_and_store_wrong_are_an_error_that_blames_nobody(void **state)
{
    struct world w;
    struct server origin = {.bad = UINT32_MAX}, proxy = {.bad = UINT32_MAX};
    begin_world(&w);
    struct store *store = serve(&w, &origin, &proxy);
    expect_error(start_one(&w, 1, PRIORITY_DEMAND), -EBADMSG, "packs/");
    assert_int_equal(http_fake_requests(proxy.http), 2);
    assert_int_equal(http_fake_requests(origin.http), 1);
    assert_int_equal(count_of(&w, "verify_failures_total"), 3);
    assert_int_equal(count_of(&w, "errors_total"), 1);
    assert_int_equal(counter_value(store_proxies_counters, proxy.l2, "granary_l2_wrong_total"), 0);
    end(&w, store, &origin, &proxy);
}

static void test_fetch_again__a_proxy_that_had_nothing_is_not_blamed_for_what_the_store_gave(void **state)
{
    struct world w;
    struct server origin = {.bad = 1}, proxy = {.is_empty = true};
    begin_world(&w);
    struct store *store = serve(&w, &origin, &proxy);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    assert_int_equal(http_fake_connections(origin.http), 2);
    assert_int_equal(count_of(&w, "healed_total"), 1);
    assert_int_equal(counter_value(store_proxies_counters, proxy.l2, "granary_l2_wrong_total"), 0);
    end(&w, store, &origin, &proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_again__wrong_bytes_heal_over_another_connection),
        cmocka_unit_test(test_fetch_again__short_bytes_heal_over_another_connection),
        cmocka_unit_test(test_fetch_again__bytes_wrong_everywhere_are_an_error_after_two_connections),
        cmocka_unit_test(test_fetch_again__a_proxys_broken_line_heals_without_the_store),
        cmocka_unit_test(test_fetch_again__a_proxy_that_keeps_wrong_bytes_is_asked_over_two_connections_then_the_store),
        cmocka_unit_test(test_fetch_again__proxy_and_store_wrong_are_an_error_that_blames_nobody),
        cmocka_unit_test(test_fetch_again__a_proxy_that_had_nothing_is_not_blamed_for_what_the_store_gave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
