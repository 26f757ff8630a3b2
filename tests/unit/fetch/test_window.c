/* What warming and readahead may have in flight, against a link of our own making, in simulated time. */
#include "unit/cmocka_all.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "fetch/fetch_internal.h"

enum { CHUNK = 128 << 10, SENT_MOST = 4096, RUN_MAX = 4 << 20, AHEAD_GET = 1 << 20, BURST_US = 50000 };

/* A get of one or more chunks, all of which the link has queued when it was asked for. */
struct sent {
    uint64_t sent_us, due_us; /* due: its next chunk is here */
    unsigned chunks;
    bool answered, demand;
};

/* The link carries what is asked for in the order of the asking, rtt_us later and at its rate. */
struct sim {
    struct window window;
    double us_per_byte;
    uint64_t rtt_us, base_us, now_us, free_us, warm_bytes, warmed, slowest_us;
    unsigned readers; /* each asks for its next chunk when it has one */
    bool ahead;       /* what is called warming is readahead */
    uint64_t offered; /* for warming, bytes a second, those of BURST_US at once; 0: without end */
    uint64_t asked;
    uint64_t most_at_once; /* was asked for, for warming, in one step of the simulation */
    struct sent sent[SENT_MOST];
    unsigned count;
};

static void sim_init(struct sim *s, unsigned rtt_ms, double bytes_per_ms)
{
    *s = (struct sim){
        .us_per_byte = 1000 / bytes_per_ms, .rtt_us = rtt_ms * 1000u, .base_us = rtt_ms * 1000u, .now_us = 1};
    s->base_us += (uint64_t)(CHUNK * s->us_per_byte);
    window_init(&s->window);
}

/* When the link has carried one more chunk of a get that was sent now. */
static uint64_t carry(struct sim *s)
{
    s->free_us = GR_MAX(s->free_us, s->now_us + s->rtt_us) + (uint64_t)(CHUNK * s->us_per_byte);
    return s->free_us;
}

static void ask(struct sim *s, bool demand, unsigned chunks)
{
    for (unsigned i = 0; i < chunks; i++) {
        assert_true(s->count < SENT_MOST);
        s->sent[s->count++] =
            (struct sent){.sent_us = s->now_us, .due_us = carry(s), .answered = i > 0, .demand = demand};
    }
    s->warm_bytes += demand ? 0 : (uint64_t)chunks * CHUNK;
    s->asked += demand ? 0 : (uint64_t)chunks * CHUNK;
}

static void land(struct sim *s, unsigned i)
{
    struct sent g = s->sent[i];
    const struct concurrency_arrival arrival = {
        .sent_us = g.sent_us, .now_us = s->now_us, .bytes = CHUNK, .first = !g.answered};
    s->sent[i] = s->sent[--s->count];
    s->warm_bytes -= g.demand ? 0 : CHUNK;
    s->warmed += g.demand ? 0 : CHUNK;
    window_arrived(&s->window, &arrival, s->base_us, s->ahead ? 0 : s->warm_bytes, s->ahead ? s->warm_bytes : 0);
    if (g.demand) {
        s->slowest_us = GR_MAX(s->slowest_us, s->now_us - g.sent_us);
        ask(s, true, 1);
    }
}

static void warm(struct sim *s)
{
    uint64_t asked_before = s->asked;
    while (s->ahead || s->now_us >= s->window.due_us) {
        uint64_t window = s->ahead     ? s->window.ahead.bytes
                          : s->readers ? s->window.beside.bytes
                                       : window_alone(&s->window, s->base_us);
        uint64_t get = s->ahead ? AHEAD_GET : s->readers ? window_get_beside(window) : (uint64_t)WINDOW_GET_ALONE;
        if (s->warm_bytes >= window ||
            (s->offered && s->asked * 1000000 > s->offered * (s->now_us / BURST_US * BURST_US)))
            break;
        unsigned chunks = (unsigned)GR_MAX(GR_MIN(get, (uint64_t)RUN_MAX) / CHUNK, UINT64_C(1));
        ask(s, false, chunks);
        window_sent(&s->window, (uint64_t)chunks * CHUNK, s->base_us, s->now_us);
    }
    s->most_at_once = GR_MAX(s->most_at_once, s->asked - asked_before);
}

/* What warming got, of the link's rate. */
static double run(struct sim *s, unsigned ms)
{
    s->warmed = s->slowest_us = 0;
    for (uint64_t end_us = s->now_us + ms * UINT64_C(1000); s->now_us < end_us; s->now_us += 100) {
        warm(s);
        for (unsigned i = s->count; i-- > 0;)
            if (s->sent[i].due_us <= s->now_us)
                land(s, i);
    }
    return (double)s->warmed * s->us_per_byte / (ms * 1000.0);
}

static void begin_reading(struct sim *s, unsigned readers)
{
    s->readers = readers;
    for (unsigned i = 0; i < readers; i++)
        ask(s, true, 1);
}

#define GBIT 125000.0 /* bytes a millisecond */

static void test_window__alone_warming_fills_a_link_near_and_far_and_has_no_more_there_than_that_takes(void **state)
{
    struct sim s;
    sim_init(&s, 10, GBIT);
    (void)run(&s, 2000);
    assert_true(run(&s, 5000) >= 0.98);
    assert_in_range(s.warm_bytes, 0, 24 << 20);
    sim_init(&s, 200, GBIT);
    (void)run(&s, 5000);
    assert_true(run(&s, 5000) >= 0.98);
    assert_in_range(s.warm_bytes, 24 << 20, 40 << 20);
    /* a small link: what was thought of it at first is forgotten */
    sim_init(&s, 200, GBIT / 100);
    (void)run(&s, 120000);
    assert_true(run(&s, 60000) >= 0.98);
    assert_in_range(s.warm_bytes, 0, 20 << 20);
}

static void test_window__far_away_gets_for_warming_are_spread(void **state)
{
    struct sim s;
    sim_init(&s, 200, GBIT);
    assert_true(run(&s, 10000) >= 0.9); /* filled from the first round trip on */
    assert_in_range(s.most_at_once, CHUNK, RUN_MAX);
    sim_init(&s, 10, GBIT); /* near, all that may be in flight is asked for at once */
    (void)run(&s, 1000);
    assert_in_range(s.most_at_once, 16 << 20, 128 << 20);
}

/* Nor are the chunks whose delay is measured the smallest that have come, nor does the queue hold this link's bytes
 * alone: the base latency is that of a small object, and all answers are later than it from some time on. */
static void test_window__far_away_the_pace_is_that_of_what_arrives_however_late(void **state)
{
    static const double rates[] = {GBIT / 100, GBIT / 10, GBIT};
    for (size_t i = 0; i < GR_ARRAY_SIZE(rates); i++) {
        struct sim s;
        sim_init(&s, 200, rates[i]);
        s.base_us = 200000;
        (void)run(&s, 20000);
        s.rtt_us += 40000;
        (void)run(&s, 60000);
        assert_true(run(&s, 20000) >= 0.98);
        assert_true(s.window.rate >= 0.9 * rates[i]);
    }
}

static void test_window__after_a_slow_time_warming_is_soon_tried_again(void **state)
{
    struct sim s;
    sim_init(&s, 200, GBIT / 1000);
    (void)run(&s, 150000);
    window_sent(&s.window, RUN_MAX, s.base_us, s.now_us);
    assert_in_range(s.window.due_us, 0, s.now_us + 1000000);
}

static void test_window__beside_readers_warming_leaves_them_quick_and_uses_the_rest(void **state)
{
    static const unsigned readers[] = {1, 8};
    for (size_t i = 0; i < GR_ARRAY_SIZE(readers); i++) {
        struct sim s;
        sim_init(&s, 10, GBIT);
        begin_reading(&s, readers[i]);
        (void)run(&s, 2000);
        double share = run(&s, 20000);
        assert_in_range(s.slowest_us, s.base_us, 2 * s.base_us);
        assert_true(share >= (readers[i] == 1 ? 0.8 : 0.3));
    }
}

/* Bursts with pauses between: the window does not grow in the pauses beyond what a burst may bring. */
static void test_window__beside_readers_bursts_stay_short(void **state)
{
    struct sim s;
    sim_init(&s, 10, GBIT);
    begin_reading(&s, 1);
    s.offered = 95000000;
    (void)run(&s, 2000);
    assert_true(run(&s, 20000) >= 0.75);
    assert_in_range(s.slowest_us, 0, 5 * s.base_us / 2);
}

static void test_window__a_reader_who_comes_finds_the_link_free_soon(void **state)
{
    struct sim s;
    sim_init(&s, 10, GBIT);
    (void)run(&s, 5000);
    begin_reading(&s, 1);
    (void)run(&s, 500);
    assert_in_range(s.slowest_us, 0, 250000);
    (void)run(&s, 5000);
    assert_in_range(s.slowest_us, 0, 2 * s.base_us);
}

/* Near and far, and on a small link, where no window is small enough to keep its queue short. */
static void test_window__readahead_fills_the_link_and_delays_readers_little(void **state)
{
    static const struct {
        unsigned rtt_ms;
        double rate;
        unsigned times; /* of the base: a read at most */
    } links[] = {{10, GBIT, 3}, {200, GBIT, 2}, {10, GBIT / 10, 5}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(links); i++) {
        struct sim s;
        sim_init(&s, links[i].rtt_ms, links[i].rate);
        s.ahead = true;
        begin_reading(&s, 1);
        (void)run(&s, 5000);
        assert_true(run(&s, 20000) >= 0.85); /* and the reader has his part */
        assert_in_range(s.slowest_us, s.base_us, links[i].times * s.base_us);
    }
}

/* Where other work fills the link, warming goes on. */
static void test_window__beside_readers_who_fill_the_link_warming_goes_on(void **state)
{
    struct sim s;
    sim_init(&s, 10, GBIT);
    begin_reading(&s, 64);
    (void)run(&s, 2000);
    assert_true(run(&s, 20000) >= 0.02);
}

/* Chunks of 4 MiB at 1 MB/s: each takes longer than a round, and than what counts as a pause between two. */
static void test_window__a_link_slower_than_a_chunk_a_round_is_measured(void **state)
{
    enum { BIG = 4 << 20, CHUNKS = 100 };
    const uint64_t base_us = 50000, takes_us = 4 * UINT64_C(1048576);
    struct window window;
    uint64_t now_us = 1;
    window_init(&window);
    for (unsigned i = 0; i < CHUNKS; i++) {
        struct concurrency_arrival arrival = {.sent_us = now_us, .bytes = BIG, .first = true};
        now_us += takes_us;
        arrival.now_us = now_us;
        window_arrived(&window, &arrival, base_us, BIG, 0);
    }
    assert_true(window.rate < 1.5 * BIG * 1000 / (double)takes_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window__a_link_slower_than_a_chunk_a_round_is_measured),
        cmocka_unit_test(test_window__alone_warming_fills_a_link_near_and_far_and_has_no_more_there_than_that_takes),
        cmocka_unit_test(test_window__far_away_gets_for_warming_are_spread),
        cmocka_unit_test(test_window__far_away_the_pace_is_that_of_what_arrives_however_late),
        cmocka_unit_test(test_window__after_a_slow_time_warming_is_soon_tried_again),
        cmocka_unit_test(test_window__beside_readers_warming_leaves_them_quick_and_uses_the_rest),
        cmocka_unit_test(test_window__beside_readers_bursts_stay_short),
        cmocka_unit_test(test_window__a_reader_who_comes_finds_the_link_free_soon),
        cmocka_unit_test(test_window__readahead_fills_the_link_and_delays_readers_little),
        cmocka_unit_test(test_window__beside_readers_who_fill_the_link_warming_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
