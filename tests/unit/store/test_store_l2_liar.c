/* Three nodes, of which one sends wrong bytes: it alone is counted, named and passed over, however much of its answers
 * is wrong, also if it says that it leaves, and also if what it sent was bases of deltas. Of plain proxies, nobody is
 * charged for a delta. */
#include "unit/cmocka_all.h"

#include "base/log.h"
#include "fake/image_fake.h"
#include "fetch/fetch.h"
#include "unit/counters.h"
#include "unit/l2_world.h"

enum { NODES = 3, LIAR = 0, SELF = 1, HONEST = 2, CHUNK = 64 << 10, PACK = 10, CHUNKS = 14 * PACK };

static char said[4096]; /* lines about nodes that are skipped */

static void note_skipped(enum log_level level, const char *line)
{
    if (strstr(line, "is skipped"))
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

struct lie {
    struct world w;
    struct image_fake img, bases;
    struct fetch *fetch;
};

/* All chunks of the image are wrong in the liar's copy. */
static void put_wrong(struct lie *l, const struct image_fake *img)
{
    char key[OBJECT_KEY_MAX];
    for (unsigned i = 0; i < CHUNKS; i++) {
        const struct chunk_ref *ref = &img->refs[i];
        assert_true(store_fake_flip(l->w.fakes[LIAR], object_key(ref->kind, &ref->object, key), ref->offset + 5));
    }
}

/* Put the image into the store and the other nodes, or all plain proxies. */
static void put_image(struct lie *l, struct image_fake *img)
{
    image_fake_put(img, l->w.origin, NULL);
    for (unsigned i = 0; i < NODES; i += l->w.weight[HONEST] ? HONEST - LIAR : 1) {
        image_fake_release(img);
        image_fake_put(img, l->w.fakes[i], NULL);
    }
}

/* weight: what the liar says; 0: none of them is a node. */
static void begin_lie(struct lie *l, int64_t weight, bool deltas)
{
    static const char *const lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces", "http://m2:80/faces"};
    *said = 0;
    log_to(note_skipped, LOG_LEVEL_WARNING);
    begin(&l->w, NODES);
    for (unsigned i = 0; i < NODES; i++)
        l->w.weight[i] = i == LIAR || !weight ? weight : 1;
    l->bases = (struct image_fake){.seed = 3, .size = CHUNKS * CHUNK, .chunk_size = CHUNK, .pack_chunks = PACK};
    if (deltas)
        put_image(l, &l->bases);
    l->img = l->bases;
    l->img.seed = 7;
    l->img.refs = NULL;
    l->img.deltas_of = deltas ? &l->bases : NULL;
    put_image(l, &l->img);
    put_wrong(l, deltas ? &l->bases : &l->img);
    open_followed(&l->w, &(struct follow_config){.lists = lists,
                                                 .n = NODES,
                                                 .node = {.address = weight ? "m1:80" : NULL},
                                                 .open = open_counted,
                                                 .open_arg = &l->w});
    assert_int_equal(fetch_new(&(struct fetch_config){.workers = 1}, &l->fetch), 0);
    assert_int_equal(fetch_start_threads(l->fetch), 0);
}

static void end_lie(struct lie *l)
{
    fetch_free(l->fetch);
    image_fake_release(&l->img);
    image_fake_release(&l->bases);
    end(&l->w);
    log_to(NULL, LOG_LEVEL_INFO);
}

/* Read a whole pack at once: all of it is right. */
static void read_pack(struct lie *l, unsigned pack)
{
    const struct chunk_ref *refs[PACK];
    struct inflight *inflights[PACK];
    for (unsigned i = 0; i < PACK; i++)
        refs[i] = &l->img.refs[pack * PACK + i];
    assert_int_equal(fetch_start(l->fetch, l->w.store, refs, PACK, PACK, PRIORITY_DEMAND, 0, inflights), 0);
    for (unsigned i = 0; i < PACK; i++) {
        CLEANUP_BUF struct buf *plain = NULL;
        uint8_t expected[CHUNK];
        assert_int_equal(inflight_wait(inflights[i], &plain), 0);
        image_fake_bytes(&l->img, (uint64_t)(pack * PACK + i) * CHUNK, expected, CHUNK);
        assert_memory_equal(plain->data, expected, CHUNK);
        inflight_unref(inflights[i]);
    }
}

static struct store_l2_report report_of(struct lie *l, unsigned node)
{
    CLEANUP(store_l2_reports_release) struct store_l2_reports reports;
    char url[64];
    snprintf(url, sizeof url, "http://m%u:80/faces", node);
    store_proxies_reports(l->w.proxies, &reports);
    for (size_t i = 0; i < reports.len; i++)
        if (!strcmp(reports.items[i].url, url))
            return reports.items[i];
    fail_msg("%s is gone", url);
    return (struct store_l2_report){0};
}

/* With a liar of that weight, read all packs; then the liar has been down, and it alone has been blamed. On a slow
 * machine it has come up again. */
static void expect_the_liar_alone_is_blamed(int64_t weight, bool deltas)
{
    static struct lie l;
    begin_lie(&l, weight, deltas);
    for (unsigned pack = 0; pack < CHUNKS / PACK; pack++)
        read_pack(&l, pack);
    const struct store_l2_report liar = report_of(&l, LIAR);
    assert_true(liar.wrong >= 3);
    assert_int_equal(liar.requests, liar.wrong);
    assert_int_equal(liar.leaving, weight < 0);
    assert_int_equal(counter_value(store_proxies_counters, l.w.proxies, "granary_l2_wrong_total"), liar.wrong);
    assert_non_null(strstr(said, "http://m0:80/faces"));
    for (unsigned i = SELF; i <= HONEST; i++) {
        assert_int_equal(report_of(&l, i).wrong, 0);
        assert_false(report_of(&l, i).down);
    }
    assert_null(strstr(said, "http://m1:80/faces"));
    assert_null(strstr(said, "http://m2:80/faces"));
    assert_int_equal(counter_value(fetch_counters, l.fetch, "granary_fetch_errors_total"), 0);
    end_lie(&l);
}

/* One GET of ten wrong chunks is one wrong answer, and so is the second one, for the first of them alone. */
static void test_liar__an_answer_counts_once(void **state)
{
    static struct lie l;
    begin_lie(&l, 1, false);
    unsigned pack = 0;
    for (; !report_of(&l, LIAR).requests; pack++)
        read_pack(&l, pack);
    assert_int_equal(report_of(&l, LIAR).requests, 2);
    assert_int_equal(report_of(&l, LIAR).wrong, 2);
    assert_false(report_of(&l, LIAR).down);
    assert_int_equal(counter_value(fetch_counters, l.fetch, "granary_fetch_refetches_total"), PACK);
    assert_int_equal(counter_value(fetch_counters, l.fetch, "granary_fetch_origin_refetches_total"), PACK);
    end_lie(&l);
}

static void test_liar__it_alone_is_passed_over(void **state)
{
    expect_the_liar_alone_is_blamed(1, false);
}

static void test_liar__one_that_leaves_is_passed_over(void **state)
{
    expect_the_liar_alone_is_blamed(-1, false);
}

static void test_liar__wrong_bases_are_charged_to_their_sender(void **state)
{
    expect_the_liar_alone_is_blamed(1, true);
}

/* A delta that the store sent wrong is not charged to the node that its base came from. */
static void test_liar__who_sent_a_base_is_not_charged_for_a_wrong_delta(void **state)
{
    static struct lie l;
    static char keys[CHUNKS / PACK][OBJECT_KEY_MAX];
    begin_lie(&l, 1, true);
    put_wrong(&l, &l.bases); /* right again */
    for (unsigned pack = 0; pack < CHUNKS / PACK; pack++) {
        const struct chunk_ref *ref = &l.img.refs[pack * PACK];
        store_fake_add_fault(l.w.origin,
                             &(struct store_fake_fault){.op = FAKE_GET,
                                                        .kind = FAKE_FLIP,
                                                        .key_prefix = object_key(ref->kind, &ref->object, keys[pack]),
                                                        .count = 1,
                                                        .bytes = 9});
        read_pack(&l, pack);
    }
    assert_int_equal(counter_value(fetch_counters, l.fetch, "granary_fetch_verify_failures_total"), CHUNKS / PACK);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(report_of(&l, i).wrong, 0);
    end_lie(&l);
}

/* The delta is one proxy's and its base another's, and that one is not charged either when the delta comes again. */
static void test_liar__wrong_deltas_of_a_plain_proxy_are_charged_to_nobody(void **state)
{
    static struct lie l;
    begin_lie(&l, 0, true);
    put_wrong(&l, &l.bases); /* right again */
    put_wrong(&l, &l.img);
    for (unsigned pack = 0; pack < CHUNKS / PACK; pack++)
        read_pack(&l, pack);
    assert_true(report_of(&l, LIAR).requests > 0);
    assert_true(counter_value(fetch_counters, l.fetch, "granary_fetch_origin_refetches_total") > 0);
    for (unsigned i = 0; i < NODES; i++) {
        assert_int_equal(report_of(&l, i).wrong, 0);
        assert_false(report_of(&l, i).down);
    }
    end_lie(&l);
}

/* Behind plain proxies as well, wrong bases are charged to the proxy that sent them, both times. */
static void test_liar__wrong_bases_of_a_plain_proxy_are_charged_to_it(void **state)
{
    static struct lie l;
    begin_lie(&l, 0, true);
    for (unsigned pack = 0; pack < CHUNKS / PACK && report_of(&l, LIAR).wrong < 2; pack++)
        read_pack(&l, pack);
    assert_true(report_of(&l, LIAR).wrong >= 2);
    assert_int_equal(report_of(&l, SELF).wrong, 0);
    assert_int_equal(report_of(&l, HONEST).wrong, 0);
    end_lie(&l);
}

/* What is fetched for others is not requested again, so nobody knows whose fault it is: perhaps theirs. */
static void test_liar__what_is_not_requested_again_is_charged_to_nobody(void **state)
{
    static struct lie l;
    begin_lie(&l, 1, false);
    fetch_free(l.fetch);
    assert_int_equal(fetch_new(&(struct fetch_config){.workers = 1, .no_again = true}, &l.fetch), 0);
    assert_int_equal(fetch_start_threads(l.fetch), 0);
    for (unsigned i = 0; i < CHUNKS; i += PACK) {
        CLEANUP_BUF struct buf *plain = NULL;
        const struct chunk_ref *ref = &l.img.refs[i];
        struct inflight *inflight;
        assert_int_equal(fetch_start(l.fetch, l.w.store, &ref, 1, 1, PRIORITY_DEMAND, 0, &inflight), 0);
        int rc = inflight_wait(inflight, &plain);
        assert_true(!rc || rc == -EBADMSG);
        inflight_unref(inflight);
    }
    assert_true(counter_value(fetch_counters, l.fetch, "granary_fetch_verify_failures_total") > 0);
    assert_int_equal(report_of(&l, LIAR).wrong, 0);
    end_lie(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_liar__an_answer_counts_once),
        cmocka_unit_test(test_liar__it_alone_is_passed_over),
        cmocka_unit_test(test_liar__one_that_leaves_is_passed_over),
        cmocka_unit_test(test_liar__wrong_bases_are_charged_to_their_sender),
        cmocka_unit_test(test_liar__who_sent_a_base_is_not_charged_for_a_wrong_delta),
        cmocka_unit_test(test_liar__wrong_deltas_of_a_plain_proxy_are_charged_to_nobody),
        cmocka_unit_test(test_liar__wrong_bases_of_a_plain_proxy_are_charged_to_it),
        cmocka_unit_test(test_liar__what_is_not_requested_again_is_charged_to_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
