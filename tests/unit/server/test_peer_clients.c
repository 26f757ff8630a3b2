/* What the addresses that ask a node may hold: no one so much that there is nothing for another. */
#include "unit/cmocka_all.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "server/peer_clients.h"

enum { REQUESTS = 100, BYTES = 3000 };

static struct peer_clients *clients;

static void init(void)
{
    static const size_t most[PEER_HOLDINGS] = {[PEER_REQUESTS] = REQUESTS, [PEER_BODY_BYTES] = BYTES};
    assert_int_equal(peer_clients_new(most, &clients), 0);
}

static struct peer_client *client_at(const char *address, unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
    struct peer_client *client = peer_client_get(clients, (const struct sockaddr *)&a);
    assert_non_null(client);
    return client;
}

static size_t take_all(struct peer_client *client, enum peer_holding what, size_t n)
{
    size_t held = 0;
    while (peer_client_take(client, what, n))
        held += n;
    return held;
}

static void test_peer_clients__an_address_is_one_client(void **state)
{
    init();
    struct peer_client *a = client_at("10.0.0.1", 1), *again = client_at("10.0.0.1", 2), *b = client_at("10.0.0.2", 1);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr), 1);
    struct peer_client *same = peer_client_get(clients, (const struct sockaddr *)&mapped);
    assert_ptr_equal(a, again);
    assert_ptr_equal(a, same);
    assert_ptr_not_equal(a, b);
    peer_client_unref(again);
    peer_client_unref(same);
    peer_client_unref(a);
    peer_client_unref(b);
    peer_clients_free(clients); /* asserts that none is left */
}

static void test_peer_clients__one_leaves_room_for_the_next(void **state)
{
    init();
    struct peer_client *a = client_at("10.0.0.1", 1), *b = client_at("10.0.0.2", 1), *c = client_at("10.0.0.3", 1);
    size_t of_a = take_all(a, PEER_BODY_BYTES, 10), of_b = take_all(b, PEER_BODY_BYTES, 10);
    assert_in_range(of_a, BYTES / 2, BYTES * 3 / 4);
    assert_true(of_b > BYTES / 10);
    assert_true(peer_client_take(c, PEER_BODY_BYTES, 10));
    assert_true(peer_client_take(c, PEER_REQUESTS, 1)); /* one is not the other */
    peer_client_give(a, PEER_BODY_BYTES, of_a);
    size_t more = take_all(b, PEER_BODY_BYTES, 10);
    assert_true(more > 0);
    peer_client_give(b, PEER_BODY_BYTES, of_b + more);
    peer_client_give(c, PEER_BODY_BYTES, 10);
    peer_client_give(c, PEER_REQUESTS, 1);
    peer_client_unref(a);
    peer_client_unref(b);
    peer_client_unref(c);
    peer_clients_free(clients);
}

static void test_peer_clients__no_more_than_there_is(void **state)
{
    init();
    struct peer_client *a = client_at("10.0.0.1", 1);
    assert_false(peer_client_take(a, PEER_BODY_BYTES, BYTES + 1));
    assert_true(peer_client_take(a, PEER_BODY_BYTES, BYTES)); /* it had nothing */
    struct peer_client *b = client_at("10.0.0.2", 1);
    assert_false(peer_client_take(b, PEER_BODY_BYTES, 1));
    peer_client_give(a, PEER_BODY_BYTES, BYTES);
    peer_client_unref(a);
    peer_client_unref(b);
    peer_clients_free(clients);
}

static void test_peer_clients__connections_leave_descriptors_to_others(void **state)
{
    assert_int_equal(peer_connections_max(0), 1);
    assert_int_equal(peer_connections_max(1024), 256);
    assert_int_equal(peer_connections_max(16384), 4096);
    assert_int_equal(peer_connections_max(UINT64_MAX), 4096); /* RLIM_INFINITY */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_clients__an_address_is_one_client),
        cmocka_unit_test(test_peer_clients__one_leaves_room_for_the_next),
        cmocka_unit_test(test_peer_clients__no_more_than_there_is),
        cmocka_unit_test(test_peer_clients__connections_leave_descriptors_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
