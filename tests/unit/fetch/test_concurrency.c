/* The number of gets in flight against links of our own making, in simulated time. */
#include "unit/cmocka_all.h"

#include "base/compiler.h"
#include "fetch/fetch_internal.h"

enum { STEP_US = 100, GETS_MOST = 256, QUEUE_MS = 40, CHUNK = 128 << 10, CONNECTION_WINDOW = 2 << 20 };

/* Gets share what the link carries evenly; none is faster than its connection's window allows; what is sent beyond the
 * link's rate stands in a queue of QUEUE_MS. */
struct link {
    double rtt_ms, bytes_per_ms;
    uint32_t get_bytes;
    unsigned offered; /* gets wanted at a time; 0: without end */
    unsigned burst;   /* 0: none; else the number of gets at once; the next ones pause_ms after all have ended */
    unsigned pause_ms;
    bool shaped;        /* nothing stands in a queue: a client that sends too often is slowed down */
    double slow_start;  /* round trips that a get's first chunk takes beyond the first */
    unsigned spread_us; /* between two gets, as window.c spaces them for a far store */
};

struct get {
    uint64_t sent_us;
    bool answered;
    double silent_ms, left;
};

struct sim {
    struct link link;
    struct concurrency c;
    uint64_t now_us, pause_until_us, spread_until_us;
    struct get gets[GETS_MOST];
    unsigned in_flight, to_send, peak;
    double delivered;
};

static double queue_ms(const struct sim *s)
{
    double windows = (double)s->in_flight * GR_MIN((uint32_t)CONNECTION_WINDOW, s->link.get_bytes);
    double waiting = windows / s->link.bytes_per_ms - s->link.rtt_ms;
    return waiting < 0 || s->link.shaped ? 0 : GR_MIN(waiting, (double)QUEUE_MS);
}

static bool is_offered(const struct sim *s, unsigned in_flight)
{
    return s->link.burst ? s->to_send > 0 : !s->link.offered || in_flight < s->link.offered;
}

static void send_what_may(struct sim *s)
{
    if (s->link.burst && !s->to_send && !s->in_flight && s->now_us >= s->pause_until_us)
        s->to_send = s->link.burst;
    while (s->in_flight < s->c.limit && is_offered(s, s->in_flight) && s->now_us >= s->spread_until_us) {
        s->spread_until_us = s->now_us + s->link.spread_us;
        s->gets[s->in_flight++] = (struct get){.sent_us = s->now_us,
                                               .silent_ms = s->link.rtt_ms * (1 + s->link.slow_start) + queue_ms(s),
                                               .left = s->link.get_bytes};
        s->to_send -= s->link.burst > 0;
    }
    s->peak = GR_MAX(s->peak, s->in_flight);
    if (s->in_flight < s->c.limit)
        concurrency_starved(&s->c);
}

static void end_get(struct sim *s, unsigned i)
{
    s->gets[i] = s->gets[--s->in_flight];
    if (!s->in_flight && !s->to_send)
        s->pause_until_us = s->now_us + s->link.pause_ms * 1000;
}

static void arrive(struct sim *s, struct get *g, uint32_t bytes)
{
    const struct concurrency_arrival arrival = {.sent_us = g->sent_us,
                                                .now_us = s->now_us,
                                                .bytes = bytes,
                                                .first = !g->answered,
                                                .waiting = is_offered(s, GR_MAX(s->in_flight, s->c.limit))};
    g->answered = true;
    (void)concurrency_arrived(&s->c, &arrival);
}

/* One step of get g, at most so many bytes. */
static void carry(struct sim *s, struct get *g, double most)
{
    if (g->silent_ms > 0) {
        g->silent_ms -= STEP_US / 1000.0;
        return;
    }
    uint32_t chunk = GR_MIN(s->link.get_bytes, (uint32_t)CHUNK);
    double bytes = GR_MIN(most, g->left), had = s->link.get_bytes - g->left;
    g->left -= bytes;
    s->delivered += bytes;
    for (unsigned due = (unsigned)((had + bytes) / chunk) - (unsigned)(had / chunk); due; due--)
        arrive(s, g, chunk);
}

/* The share of the link that was used. */
static double run(struct sim *s, unsigned ms)
{
    double step_ms = STEP_US / 1000.0;
    s->delivered = s->peak = 0;
    for (uint64_t end_us = s->now_us + ms * UINT64_C(1000); s->now_us < end_us; s->now_us += STEP_US) {
        send_what_may(s);
        unsigned active = 0;
        for (unsigned i = 0; i < s->in_flight; i++)
            active += s->gets[i].silent_ms <= 0;
        double window = CONNECTION_WINDOW / s->link.rtt_ms, share = s->link.bytes_per_ms / GR_MAX(active, 1u);
        for (unsigned i = s->in_flight; i-- > 0;) {
            carry(s, &s->gets[i], GR_MIN(window, share) * step_ms);
            if (s->gets[i].left <= 0)
                end_get(s, i);
        }
        assert_in_range(s->c.limit, GR_MIN(s->c.most, (unsigned)CONCURRENCY_LEAST), s->c.most);
    }
    return s->delivered / (s->link.bytes_per_ms * ms);
}

/* A reader that opens an image reads one node of its index first. */
static void sim_init(struct sim *s, struct link link, unsigned most)
{
    *s = (struct sim){.link = link, .now_us = 1};
    concurrency_init(&s->c, most, 1);
    s->link.offered = 1;
    s->link.burst = 0;
    (void)run(s, 2 * (unsigned)link.rtt_ms + 200);
    s->link = link;
}

#define GBIT 125000.0 /* bytes a millisecond */

static void test_concurrency__a_fast_link_is_filled_soon_near_and_far(void **state)
{
    static const struct link links[] = {
        {.rtt_ms = 10, .bytes_per_ms = GBIT, .get_bytes = 64 << 10},
        {.rtt_ms = 10, .bytes_per_ms = GBIT, .get_bytes = 4 << 20},
        {.rtt_ms = 200, .bytes_per_ms = GBIT, .get_bytes = 4 << 20, .spread_us = 32000},
        {.rtt_ms = 200, .bytes_per_ms = GBIT, .get_bytes = 1 << 20, .spread_us = 8000},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(links); i++) {
        struct sim s;
        sim_init(&s, links[i], 64);
        assert_true(run(&s, 5000) >= 0.9);
        assert_true(run(&s, 60000) >= 0.9);
    }
}

/* Before any further GET has answered: those that have deliver enough. */
static void test_concurrency__a_far_store_soon_gets_as_many_as_the_link_carries(void **state)
{
    static const unsigned rtts_ms[] = {100, 200};
    for (size_t i = 0; i < GR_ARRAY_SIZE(rtts_ms); i++) {
        struct sim s;
        sim_init(&s, (struct link){.rtt_ms = rtts_ms[i], .bytes_per_ms = GBIT, .get_bytes = 1 << 20, .offered = 1}, 64);
        assert_int_equal(s.c.limit, CONCURRENCY_FIRST);
        s.link.offered = 0;
        s.link.slow_start = 2.5; /* new connections */
        (void)run(&s, 5 * rtts_ms[i]);
        assert_in_range(s.c.limit, 40, 64);
    }
}

/* What is requested at once stands before each read that comes later. */
static void test_concurrency__a_slow_link_gets_few_however_far_it_seems(void **state)
{
    static const double rates[] = {250, 625, 1250}; /* 2, 5 and 10 Mbit/s */
    static const double rtts_ms[] = {10, 20, 200};
    static const uint32_t firsts[] = {0, 30000};
    for (size_t i = 0; i < GR_ARRAY_SIZE(rates) * GR_ARRAY_SIZE(rtts_ms) * GR_ARRAY_SIZE(firsts); i++) {
        struct sim s = {.now_us = 1};
        s.link = (struct link){.rtt_ms = rtts_ms[i % 3], .bytes_per_ms = rates[i / 3 % 3]};
        concurrency_init(&s.c, 64, 1);
        s.link.get_bytes = firsts[i / 9];
        s.link.offered = 1;
        if (s.link.get_bytes) /* nodes of the index; else the first answers are those of 16 GETs at once */
            (void)run(&s, 1500);
        s.link.offered = 0;
        s.link.get_bytes = 1 << 20;
        unsigned peak = 0;
        for (unsigned seconds = 0; seconds < 30; seconds++) {
            (void)run(&s, 1000);
            peak = GR_MAX(peak, s.peak);
        }
        assert_in_range(peak, 1, CONCURRENCY_FIRST + 2);
    }
}

/* A new connection needs several round trips for its first chunk. That is no queue. */
static void test_concurrency__far_away_new_connections_do_not_keep_it_down(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 200, .bytes_per_ms = GBIT, .get_bytes = 1 << 20, .offered = 1}, 64);
    s.c.limit = CONCURRENCY_FIRST; /* as after a time in which fewer were enough */
    s.link.offered = 0;
    s.link.slow_start = 2.5;
    (void)run(&s, 6000);
    assert_int_equal(s.c.limit, 64);
}

static void test_concurrency__a_small_link_is_not_overloaded(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 10, .bytes_per_ms = 2500, .get_bytes = 4 << 20}, 64);
    assert_true(run(&s, 180000) >= 0.95);
    assert_in_range(s.peak, CONCURRENCY_FIRST, 25); /* chunks that take 50 ms make it seem far */
    assert_true(run(&s, 180000) >= 0.95);
    assert_in_range(s.peak, 1, 15);
    sim_init(&s, (struct link){.rtt_ms = 10, .bytes_per_ms = 2500, .get_bytes = 64 << 10}, 64);
    assert_true(run(&s, 60000) >= 0.85);
    assert_in_range(s.peak, CONCURRENCY_FIRST, 24);
}

static void test_concurrency__what_brings_no_more_is_given_back_though_gets_answer_promptly(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 20, .bytes_per_ms = 20000, .get_bytes = 1 << 20, .shaped = true}, 256);
    (void)run(&s, 5000);
    assert_true(run(&s, 60000) >= 0.95);
    assert_in_range(s.peak, 1, 100);
}

static void test_concurrency__a_link_that_changes_is_followed(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 200, .bytes_per_ms = GBIT, .get_bytes = 1 << 20}, 64);
    (void)run(&s, 10000);
    assert_in_range(s.c.limit, 40, 64);
    s.link.rtt_ms = 10;
    s.link.bytes_per_ms /= 20;
    (void)run(&s, 180000);
    assert_true(run(&s, 60000) >= 0.9);
    assert_in_range(s.peak, 1, 32);
    s.link.rtt_ms = 200;
    s.link.bytes_per_ms *= 20;
    s.link.spread_us = 8000;
    (void)run(&s, 120000);
    assert_true(run(&s, 60000) >= 0.9);
}

static void test_concurrency__fewer_than_the_limit_say_nothing_about_it(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 40, .bytes_per_ms = GBIT, .get_bytes = 4 << 20, .offered = 8}, 64);
    (void)run(&s, 60000);
    assert_int_equal(s.c.limit, CONCURRENCY_FIRST);
    s.link.offered = 0;
    (void)run(&s, 5000);
    assert_true(run(&s, 10000) >= 0.9);
}

static void test_concurrency__bursts_that_wait_make_it_rise(void **state)
{
    struct sim s;
    sim_init(&s, (struct link){.rtt_ms = 40, .bytes_per_ms = GBIT, .get_bytes = 64 << 10, .burst = 64, .pause_ms = 500},
             64);
    s.c.phase = CONCURRENCY_REST;
    (void)run(&s, 10000);
    assert_int_equal(s.peak, 64);
    /* they do not where it is the link that they wait for */
    sim_init(&s, (struct link){.rtt_ms = 10, .bytes_per_ms = 2500, .get_bytes = 1 << 20, .burst = 64, .pause_ms = 500},
             64);
    (void)run(&s, 120000);
    assert_in_range(s.peak, 1, 32);
}

static void test_concurrency__the_cap_is_kept_however_low(void **state)
{
    for (unsigned most = 1; most <= 5; most++) {
        struct sim s;
        sim_init(&s, (struct link){.rtt_ms = 10, .bytes_per_ms = GBIT, .get_bytes = 1 << 20}, most);
        assert_int_equal(s.c.limit, most);
        (void)run(&s, 20000);
        assert_in_range(s.c.limit, GR_MIN(most, (unsigned)CONCURRENCY_LEAST), most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concurrency__a_fast_link_is_filled_soon_near_and_far),
        cmocka_unit_test(test_concurrency__a_far_store_soon_gets_as_many_as_the_link_carries),
        cmocka_unit_test(test_concurrency__a_slow_link_gets_few_however_far_it_seems),
        cmocka_unit_test(test_concurrency__far_away_new_connections_do_not_keep_it_down),
        cmocka_unit_test(test_concurrency__a_small_link_is_not_overloaded),
        cmocka_unit_test(test_concurrency__what_brings_no_more_is_given_back_though_gets_answer_promptly),
        cmocka_unit_test(test_concurrency__a_link_that_changes_is_followed),
        cmocka_unit_test(test_concurrency__fewer_than_the_limit_say_nothing_about_it),
        cmocka_unit_test(test_concurrency__bursts_that_wait_make_it_rise),
        cmocka_unit_test(test_concurrency__the_cap_is_kept_however_low),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
