/* Clients of a server's connections: which descriptor is whose, what ends when one hangs up, and in what order his
 * requests are given back. */
#include "unit/cmocka_all.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/client.h"
#include "base/clock.h"
#include "plugin/plugin_internal.h"
#include "unit/counters.h"
#include "unit/scratch.h"
#include "unit/threads.h"

enum { LEAVERS = 16, TURN_MS = 5000 /* client.c: nobody waits longer for another one's end */ };

static char scratch[SCRATCH_MAX];
static struct plugin_clients *clients;

static void name_it(struct sockaddr_un *a, const char *name)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(a->sun_path, sizeof a->sun_path, "%.80s/%.20s", scratch, name);
}

static int listen_at(const char *name)
{
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    name_it(&a, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

/* Both ends of a connection, and what the server is told of it. */
struct pair {
    int client, server;
    struct plugin_client_peer peer;
};

static void describe(struct pair *p)
{
    p->peer = (struct plugin_client_peer){.address_len = sizeof p->peer.address, .pid = getpid()};
    assert_int_equal(getpeername(p->server, (struct sockaddr *)&p->peer.address, &p->peer.address_len), 0);
}

static struct pair connect_unix(int listener, const char *name)
{
    struct pair p;
    struct sockaddr_un a;
    name_it(&a, name);
    p.client = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(p.client, (struct sockaddr *)&a, sizeof a), 0);
    p.server = accept(listener, NULL, NULL);
    describe(&p);
    return p;
}

static struct pair connect_tcp(int listener)
{
    struct pair p;
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
    p.client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(p.client, (struct sockaddr *)&a, len), 0);
    p.server = accept(listener, NULL, NULL);
    describe(&p);
    return p;
}

static void close_pair(struct pair *p)
{
    close(p->client);
    close(p->server);
}

static struct plugin_client *client_of(const struct pair *p)
{
    struct plugin_client *c;
    assert_int_equal(plugin_client_new(clients, &p->peer, &c), 0);
    return c;
}

/* Has the socket been found? Then keepalive probes are on, which a unix socket, too, says of itself. */
static bool is_watched(const struct pair *p)
{
    int on;
    socklen_t len = sizeof on;
    assert_int_equal(getsockopt(p->server, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
    return on;
}

static _Atomic unsigned running; /* threads whose request was given back and that have not ended */
static _Atomic uint64_t hung_up_ms;
static pthread_key_t ended; /* made before the clients' own, and so looked at before it when a thread ends */

static void note_end(void *arg)
{
    running--;
}

static int begin(void **state)
{
    char control[SCRATCH_MAX + 16];
    scratch_make(scratch);
    snprintf(control, sizeof control, "%s/control", scratch);
    assert_int_equal(pthread_key_create(&ended, note_end), 0);
    assert_int_equal(plugin_clients_open(control, &clients), 0);
    return plugin_clients_start(clients);
}

static int end(void **state)
{
    plugin_clients_close(clients);
    pthread_key_delete(ended);
    scratch_remove(scratch);
    return 0;
}

/* ---- which one ---- */

static void test_plugin_client__one_at_a_time_is_found(void **state)
{
    int listener = listen_at("s");
    struct pair a = connect_unix(listener, "s");
    struct plugin_client *first = client_of(&a);
    assert_true(is_watched(&a));
    struct pair b = connect_unix(listener, "s");
    struct plugin_client *second = client_of(&b);
    assert_true(is_watched(&b));
    plugin_client_free(first);
    plugin_client_free(second);
    close_pair(&a);
    close_pair(&b);
    close(listener);
}

static void test_plugin_client__of_two_that_could_be_it_none_is_taken(void **state)
{
    int listener = listen_at("s");
    struct pair a = connect_unix(listener, "s"), b = connect_unix(listener, "s");
    struct plugin_client *c = client_of(&a), *other = client_of(&b);
    assert_false(is_watched(&a));
    assert_false(is_watched(&b)); /* it is not known yet which of them the first one is */
    close(a.client);
    plugin_client_begin(c);
    assert_true(plugin_client_end(c));
    plugin_client_free(c);
    plugin_client_free(other);
    close(a.server);
    close_pair(&b);
    close(listener);
}

static void test_plugin_client__other_processes_and_the_control_socket_are_not_it(void **state)
{
    int listener = listen_at("s"), control = listen_at("control");
    struct pair a = connect_unix(listener, "s"), other = connect_unix(control, "control");
    struct plugin_client_peer of_another = a.peer;
    struct plugin_client *c;
    of_another.pid = 1;
    assert_int_equal(plugin_client_new(clients, &of_another, &c), 0);
    assert_false(is_watched(&a));
    plugin_client_free(c);
    c = client_of(&a);
    assert_true(is_watched(&a));
    assert_false(is_watched(&other));
    plugin_client_free(c);
    close_pair(&a);
    close_pair(&other);
    close(listener);
    close(control);
}

static void test_plugin_client__of_tcp_the_address_says_which(void **state)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(listener, 16), 0);
    struct pair a = connect_tcp(listener), b = connect_tcp(listener);
    struct plugin_client *c = client_of(&a);
    assert_true(is_watched(&a));
    assert_false(is_watched(&b));
    plugin_client_free(c);
    close_pair(&a);
    close_pair(&b);
    close(listener);
}

/* ---- hanging up ---- */

struct request {
    struct plugin_client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t answer; /* never comes */
    _Atomic bool waiting;
    bool there;
};

static void *wait_for_answer(void *arg)
{
    struct request *r = arg;
    struct client_wait wait;
    plugin_client_begin(r->client);
    client_wait_begin(&wait, &r->lock, &r->answer);
    pthread_mutex_lock(&r->lock);
    r->waiting = true;
    while (!client_wait_is_over(&wait))
        pthread_cond_wait(&r->answer, &r->lock);
    pthread_mutex_unlock(&r->lock);
    client_wait_end(&wait);
    r->there = plugin_client_end(r->client);
    must(!running++ || clock_now_ms() - hung_up_ms >= TURN_MS, "two at a time");
    pthread_setspecific(ended, r);
    return NULL;
}

static void test_plugin_client__his_requests_end_one_by_one_when_he_hangs_up(void **state)
{
    int listener = listen_at("s");
    struct pair a = connect_unix(listener, "s");
    struct plugin_client *c = client_of(&a);
    struct request requests[LEAVERS];
    for (int i = 0; i < LEAVERS; i++) {
        struct request *r = &requests[i];
        *r = (struct request){
            .client = c, .lock = PTHREAD_MUTEX_INITIALIZER, .answer = PTHREAD_COND_INITIALIZER, .there = true};
        assert_int_equal(pthread_create(&r->thread, NULL, wait_for_answer, r), 0);
        for (uint64_t since = 0; !r->waiting;)
            counter_pause(&since, "a request to wait");
    }
    hung_up_ms = clock_now_ms();
    close(a.client);
    for (int i = 0; i < LEAVERS; i++) {
        pthread_join(requests[i].thread, NULL);
        assert_false(requests[i].there);
    }
    plugin_client_free(c);
    close(a.server);
    close(listener);
}

static void test_plugin_client__who_sends_nothing_more_is_still_there(void **state)
{
    int listener = listen_at("s");
    struct pair a = connect_unix(listener, "s");
    struct plugin_client *c = client_of(&a);
    assert_int_equal(shutdown(a.client, SHUT_WR), 0);
    for (int i = 0; i < 3; i++) { /* one thread for all: nobody is waited for */
        plugin_client_begin(c);
        assert_true(plugin_client_end(c));
    }
    plugin_client_free(c);
    close_pair(&a);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plugin_client__one_at_a_time_is_found, begin, end),
        cmocka_unit_test_setup_teardown(test_plugin_client__of_two_that_could_be_it_none_is_taken, begin, end),
        cmocka_unit_test_setup_teardown(test_plugin_client__other_processes_and_the_control_socket_are_not_it, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_plugin_client__of_tcp_the_address_says_which, begin, end),
        cmocka_unit_test_setup_teardown(test_plugin_client__his_requests_end_one_by_one_when_he_hangs_up, begin, end),
        cmocka_unit_test_setup_teardown(test_plugin_client__who_sends_nothing_more_is_still_there, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
