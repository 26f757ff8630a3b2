/* The fetch scheduler over the fake store: how many gets there are, who waits for what, and what
 * each fault does. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "unit/fetch_world.h"

static void *reader(void *arg)
{
    struct world *w = arg;
    expect_bytes(w, start_one(w, 5, PRIORITY_DEMAND), 5);
    return NULL;
}

static void test_fetch__many_readers_of_one_chunk_make_one_get(void **state)
{
    enum { READERS = 32 };
    struct world w;
    pthread_t threads[READERS];
    world_init(&w, &(struct fetch_config){.workers = 4}, 16);
    store_fake_hold(w.fake, FAKE_GET);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &w), 0);
    wait_for(&w, "joins_total", READERS - 1);
    store_fake_release(w.fake);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    assert_int_equal(count_of(&w, "joins_total"), READERS - 1);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_in_flight"); /* it is retired after it has landed */
    world_release(&w);
}

static void test_fetch__neighbours_come_by_one_get_whatever_their_order(void **state)
{
    struct world w;
    const unsigned chunks[] = {3, 0, 2, 1};
    struct inflight *inflights[4];
    world_init(&w, &(struct fetch_config){.workers = 4}, 16);
    start(&w, chunks, 4, PRIORITY_DEMAND, inflights);
    for (int i = 0; i < 4; i++)
        expect_bytes(&w, inflights[i], chunks[i]);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    assert_int_equal(count_of(&w, "bytes_total"), count_of(&w, "chunk_bytes_total"));
    world_release(&w);
}

static void test_fetch__a_gap_is_read_through_up_to_gap_max(void **state)
{
    for (int wide = 0; wide <= 1; wide++) {
        struct world w;
        struct inflight *inflights[2];
        const unsigned chunks[] = {0, 2};
        world_init(&w, &(struct fetch_config){.workers = 1, .gap_max = wide ? CHUNK : 1024}, 16);
        start(&w, chunks, 2, PRIORITY_DEMAND, inflights);
        expect_bytes(&w, inflights[0], 0);
        expect_bytes(&w, inflights[1], 2);
        assert_int_equal(store_fake_calls(w.fake, FAKE_GET), wide ? 1 : 2);
        assert_int_equal(count_of(&w, "bytes_total") - count_of(&w, "chunk_bytes_total"),
                         wide ? w.img.refs[1].stored_len : 0);
        world_release(&w);
    }
}

static void test_fetch__a_run_ends_at_run_max_and_at_its_pack(void **state)
{
    struct world w;
    unsigned chunks[CHUNKS];
    struct inflight *inflights[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    /* Two packs of 16 chunks; a run has at most four of up to CHUNK stored bytes, and at least four
     * because they are compressed. */
    world_init(&w, &(struct fetch_config){.workers = 1, .run_max = 4 * CHUNK}, 16);
    start(&w, chunks, CHUNKS, PRIORITY_DEMAND, inflights);
    for (unsigned i = 0; i < CHUNKS; i++)
        expect_bytes(&w, inflights[i], i);
    uint64_t runs = 2 * ((16 * (uint64_t)w.img.refs[0].stored_len + 4 * CHUNK - 1) / (4 * CHUNK));
    assert_true(store_fake_calls(w.fake, FAKE_GET) >= runs && store_fake_calls(w.fake, FAKE_GET) <= 8);
    world_release(&w);
}

static void test_fetch__wrong_bytes_once_are_healed(void **state)
{
    struct world w;
    const unsigned chunks[] = {0, 1, 2};
    struct inflight *inflights[3];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){
                                     .op = FAKE_GET, .kind = FAKE_FLIP, .count = 1, .bytes = w.img.refs[1].offset + 9});
    start(&w, chunks, 3, PRIORITY_DEMAND, inflights);
    for (int i = 0; i < 3; i++)
        expect_bytes(&w, inflights[i], chunks[i]);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 2);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    assert_int_equal(count_of(&w, "verify_failures_total"), 1);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    world_release(&w);
}

static void test_fetch__wrong_bytes_for_good_are_an_error_that_names_the_object(void **state)
{
    struct world w;
    const unsigned chunks[] = {0, 1, 2};
    struct inflight *inflights[3];
    char key[OBJECT_KEY_MAX];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    object_key(OBJECT_PACK, &w.img.refs[1].object, key);
    assert_true(store_fake_flip(w.fake, key, w.img.refs[1].offset + 9));
    start(&w, chunks, 3, PRIORITY_DEMAND, inflights);
    expect_bytes(&w, inflights[0], 0);
    expect_error(inflights[1], -EBADMSG, key);
    expect_bytes(&w, inflights[2], 2);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 2);
    assert_int_equal(count_of(&w, "verify_failures_total"), 2);
    assert_int_equal(count_of(&w, "errors_total"), 1);
    assert_int_equal(count_of(&w, "in_flight"), 0);
    world_release(&w);
}

static void test_fetch__a_run_that_broke_is_finished_chunk_by_chunk(void **state)
{
    static const int codes[] = {-EIO, -EBADMSG};
    for (size_t k = 0; k < 2; k++) {
        struct world w;
        const unsigned chunks[] = {0, 1, 2, 3};
        struct inflight *inflights[4];
        world_init(&w, &(struct fetch_config){.workers = 1}, 16);
        store_fake_add_fault(
            w.fake,
            &(struct store_fake_fault){
                .op = FAKE_GET, .kind = FAKE_CUT, .count = 1, .code = codes[k], .bytes = w.img.refs[2].offset + 9});
        start(&w, chunks, 4, PRIORITY_DEMAND, inflights);
        for (int i = 0; i < 4; i++)
            expect_bytes(&w, inflights[i], chunks[i]);
        assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 3);
        assert_int_equal(count_of(&w, "refetches_total"), 2);
        world_release(&w);
    }
}

static void test_fetch__a_pack_cut_short_fails_what_it_lacks_alone(void **state)
{
    struct world w;
    const unsigned chunks[] = {0, 1, 2};
    struct inflight *inflights[3];
    char key[OBJECT_KEY_MAX];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    object_key(OBJECT_PACK, &w.img.refs[0].object, key);
    assert_true(store_fake_truncate(w.fake, key, w.img.refs[2].offset + 9));
    start(&w, chunks, 3, PRIORITY_DEMAND, inflights);
    expect_bytes(&w, inflights[0], 0);
    expect_bytes(&w, inflights[1], 1);
    expect_error(inflights[2], -EBADMSG, key);
    world_release(&w);
}

static void test_fetch__a_dead_store_fails_every_waiter_once_and_is_asked_again(void **state)
{
    struct world w;
    struct inflight *inflights[3];
    const unsigned chunks[] = {0, 1, 2};
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    start(&w, chunks, 3, PRIORITY_DEMAND, inflights);
    for (int i = 0; i < 3; i++)
        expect_error(inflights[i], -ETIMEDOUT, "injected fault");
    /* Its deadline was spent in one get: it is not spent again for each chunk. */
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    assert_int_equal(count_of(&w, "refetches_total"), 0);
    store_fake_set_dead(w.fake, 0);
    expect_bytes(&w, start_one(&w, 1, PRIORITY_DEMAND), 1);
    world_release(&w);
}

/* The world's fake behind a store that tries again for an hour: only the fetch's deadline ends it before. */
static struct store *patient_store(struct world *w)
{
    struct store *store = NULL;
    assert_int_equal(store_retry_open(w->store, 3600 * 1000, NULL, &store), 0);
    w->store = store;
    return store;
}

/* Each before what it reads from. */
static void end_patient(struct world *w, struct store *store)
{
    fetch_free(w->fetch);
    w->fetch = NULL;
    store_close(store);
    world_release(w);
}

static void test_fetch__what_is_asked_for_once_more_has_the_same_deadline_and_so_has_who_joins(void **state)
{
    bool again = false;
    for (uint64_t timeout_ms = 1000; !again;
         timeout_ms *= 2) { /* a busy machine may have no time for asking once more */
        struct world w;
        assert_true(timeout_ms < 600 * 1000);
        world_init(&w, &(struct fetch_config){.workers = 1, .timeout_ms = timeout_ms}, 16);
        struct store *store = patient_store(&w);
        store_fake_add_fault(w.fake,
                             &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FLIP, .count = 1, .bytes = 9});
        store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FAIL, .code = -EAGAIN});
        store_fake_hold(w.fake, FAKE_GET);
        struct inflight *inflight = start_one(&w, 1, PRIORITY_DEMAND);
        store_fake_wait_held(w.fake, 1);
        struct inflight *joined = start_one(&w, 1, PRIORITY_DEMAND);
        store_fake_release(w.fake);
        CLEANUP_BUF struct buf *plain = NULL;
        again = inflight_wait(inflight, &plain) != -EBADMSG;
        expect_error(inflight, again ? -EAGAIN : -EBADMSG, again ? "gave up after" : "");
        expect_error(joined, again ? -EAGAIN : -EBADMSG, again ? "gave up after" : "");
        end_patient(&w, store);
    }
}

static void test_fetch__the_time_in_the_queue_counts(void **state)
{
    struct world w;
    world_init(&w, &(struct fetch_config){.workers = 1, .timeout_ms = 50}, 1);
    struct store *store = patient_store(&w);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *first = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    struct inflight *queued = start_one(&w, 1, PRIORITY_DEMAND);
    uint64_t deadline_ms = clock_now_ms() + 51;
    while (clock_now_ms() < deadline_ms)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    store_fake_set_dead(w.fake, -EAGAIN);
    store_fake_release(w.fake);
    expect_error(first, -EAGAIN, "gave up after 1 tries");
    expect_error(queued, -EAGAIN, "gave up after 1 tries");
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 2);
    end_patient(&w, store);
}

static void test_fetch__a_missing_pack_is_absent(void **state)
{
    struct world w;
    char key[OBJECT_KEY_MAX];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    assert_true(store_fake_remove(w.fake, object_key(OBJECT_PACK, &w.img.refs[0].object, key)));
    expect_error(start_one(&w, 0, PRIORITY_DEMAND), -ENOENT, key);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    world_release(&w);
}

static void test_fetch__a_dead_store_delays_nobody_who_reads_the_chunk_from_another(void **state)
{
    struct world w, other;
    world_init(&w, &(struct fetch_config){.workers = 2}, 16);
    world_init(&other, &(struct fetch_config){.workers = 1}, 16);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *stuck = start_one(&w, 0, PRIORITY_DEMAND), *inflight = NULL;
    const struct chunk_ref *ref = &other.img.refs[0];
    assert_int_equal(fetch_start(w.fetch, other.store, &ref, 1, 1, PRIORITY_DEMAND, 0, &inflight), 0);
    expect_bytes(&w, inflight, 0);
    store_fake_release(w.fake);
    expect_bytes(&w, stuck, 0);
    /* An in-flight fetch lands inside its get: the other's store is in use until the get has returned. */
    fetch_free(w.fetch);
    w.fetch = NULL;
    world_release(&other);
    world_release(&w);
}

struct holder {
    pthread_mutex_t lock;
    struct inflight *kept;
    bool warm;
};

static void keep_inflight(void *arg, struct inflight *inflight, bool warm)
{
    struct holder *holder = arg;
    SCOPED_LOCK(&holder->lock);
    holder->kept = inflight;
    holder->warm = warm;
}

static void test_fetch__late_comers_get_the_bytes_until_the_flight_is_retired(void **state)
{
    struct world w;
    struct holder holder = {.lock = PTHREAD_MUTEX_INITIALIZER};
    world_init(&w, &(struct fetch_config){.workers = 1, .on_landed = keep_inflight, .arg = &holder}, 16);
    expect_bytes(&w, start_one(&w, 4, PRIORITY_WARM), 4);
    expect_bytes(&w, start_one(&w, 4, PRIORITY_DEMAND), 4);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    counter_wait(fetch_counters, w.fetch, "granary_fetch_in_flight", 1);
    for (bool landed = false; !landed;) {
        SCOPED_LOCK(&holder.lock);
        landed = holder.kept != NULL;
    }
    assert_true(holder.warm);
    assert_true(digest_equal(&inflight_chunk(holder.kept)->digest, &w.img.refs[4].digest));
    fetch_retire(w.fetch, holder.kept);
    holder.kept = NULL;
    expect_bytes(&w, start_one(&w, 4, PRIORITY_DEMAND), 4);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 2);
    for (bool landed = false; !landed;) {
        SCOPED_LOCK(&holder.lock);
        landed = holder.kept != NULL;
    }
    fetch_retire(w.fetch, holder.kept);
    world_release(&w);
}

/* A thread that waits until a fetch is retired. */
struct retirement {
    struct inflight *inflight;
    _Atomic bool begun, over;
};

static void *wait_retired(void *arg)
{
    struct retirement *r = arg;
    r->begun = true;
    inflight_wait_retired(r->inflight);
    r->over = true;
    return NULL;
}

static void test_fetch__one_can_wait_until_a_fetch_is_retired(void **state)
{
    struct world w;
    struct holder holder = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    world_init(&w, &(struct fetch_config){.workers = 1, .on_landed = keep_inflight, .arg = &holder}, 16);
    struct retirement r = {.inflight = start_one(&w, 4, PRIORITY_WARM)};
    assert_int_equal(pthread_create(&thread, NULL, wait_retired, &r), 0);
    expect_bytes(&w, inflight_ref(r.inflight), 4);
    for (bool landed = false; !landed || !r.begun;) {
        SCOPED_LOCK(&holder.lock);
        landed = holder.kept != NULL;
    }
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_false(r.over); /* it has landed */
    fetch_retire(w.fetch, holder.kept);
    pthread_join(thread, NULL);
    inflight_unref(r.inflight);

    store_fake_set_dead(w.fake, -EIO);
    r.inflight = start_one(&w, 5, PRIORITY_WARM);
    inflight_wait_retired(r.inflight); /* one that failed is retired, too */
    inflight_unref(r.inflight);
    world_release(&w);
}

/* Which of the chunks landed as warm. */
struct warm_note {
    struct world *w;
    _Atomic unsigned landed, warm;
};

static void note_warm(void *arg, struct inflight *inflight, bool warm)
{
    struct warm_note *n = arg;
    n->warm += warm;
    fetch_retire(n->w->fetch, inflight);
    n->landed++;
}

static void test_fetch__what_warming_waits_for_lands_as_warm_at_any_priority(void **state)
{
    struct world w;
    struct warm_note n = {.w = &w};
    world_init(&w, &(struct fetch_config){.workers = 1, .on_landed = note_warm, .arg = &n}, 1);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *first = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    struct inflight *warm = start_one(&w, 1, PRIORITY_WARM), *raised = start_one(&w, 1, PRIORITY_DEMAND);
    struct inflight *demand = start_one(&w, 2, PRIORITY_DEMAND), *joined = start_one(&w, 2, PRIORITY_WARM);
    assert_int_equal(count_of(&w, "raised_total"), 1);
    store_fake_release(w.fake);
    expect_bytes(&w, first, 0);
    expect_bytes(&w, warm, 1);
    expect_bytes(&w, raised, 1);
    expect_bytes(&w, demand, 2);
    expect_bytes(&w, joined, 2);
    while (n.landed < 3)
        usleep(100);
    assert_int_equal(n.warm, 2);
    world_release(&w);
}

static void *free_fetch(void *arg)
{
    fetch_free(arg);
    return NULL;
}

static void test_fetch__free_ends_running_gets_and_cancels_what_is_queued(void **state)
{
    struct world w;
    pthread_t thread;
    world_init(&w, &(struct fetch_config){.workers = 1}, 1);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *running = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    struct inflight *queued = start_one(&w, 1, PRIORITY_DEMAND);
    assert_int_equal(pthread_create(&thread, NULL, free_fetch, w.fetch), 0);
    expect_error(queued, -ECANCELED, "shutting down");
    store_fake_release(w.fake);
    expect_bytes(&w, running, 0);
    pthread_join(thread, NULL);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1);
    assert_int_equal(fetch_new(&(struct fetch_config){0}, &w.fetch), 0);
    world_release(&w);
}

static void *random_reader(void *arg)
{
    struct world *w = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed >> 4;
    for (int i = 0; i < 60; i++) {
        unsigned first = (unsigned)rand_r(&seed) % (CHUNKS - 3), chunks[3] = {first, first + 1, first + 2};
        struct inflight *inflights[3];
        start(w, chunks, 3, (enum fetch_priority)((unsigned)rand_r(&seed) % PRIORITIES), inflights);
        start(w, chunks, 1, PRIORITY_READAHEAD, NULL);
        for (int k = 0; k < 3; k++)
            expect_bytes(w, inflights[k], chunks[k]);
    }
    return NULL;
}

static void test_fetch__random_readers_under_random_faults_get_right_bytes(void **state)
{
    enum { READERS = 8 };
    struct world w;
    pthread_t threads[READERS];
    world_init(&w, &(struct fetch_config){.workers = 4, .queue_max = 3}, 4);
    store_fake_add_fault(
        w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FLIP, .skip = 1, .count = 1, .bytes = 100});
    store_fake_set_piece(w.fake, 5000);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, random_reader, &w), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    assert_int_equal(count_of(&w, "refetches_total"), 1);
    world_release(&w);
}

static void test_fetch__stored_bytes_are_kept_when_told_to(void **state)
{
    for (int keep = 0; keep <= 1; keep++) {
        struct world w;
        world_init(&w, &(struct fetch_config){.workers = 1, .keep_stored = keep}, 16);
        assert_true(w.img.refs[3].flags & CHUNK_ZSTD);
        struct inflight *inflight = inflight_ref(start_one(&w, 3, PRIORITY_DEMAND));
        expect_bytes(&w, inflight, 3);
        CLEANUP_BUF struct buf *stored = inflight_stored(inflight);
        assert_int_equal(stored != NULL, keep);
        assert_int_equal(keep ? stored->len : 0, keep ? w.img.refs[3].stored_len : 0);
        assert_int_equal(keep ? crc32c(stored->data, stored->len) : 0, keep ? w.img.refs[3].stored_crc : 0);
        inflight_unref(inflight);
        world_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch__many_readers_of_one_chunk_make_one_get),
        cmocka_unit_test(test_fetch__neighbours_come_by_one_get_whatever_their_order),
        cmocka_unit_test(test_fetch__a_gap_is_read_through_up_to_gap_max),
        cmocka_unit_test(test_fetch__a_run_ends_at_run_max_and_at_its_pack),
        cmocka_unit_test(test_fetch__wrong_bytes_once_are_healed),
        cmocka_unit_test(test_fetch__wrong_bytes_for_good_are_an_error_that_names_the_object),
        cmocka_unit_test(test_fetch__a_run_that_broke_is_finished_chunk_by_chunk),
        cmocka_unit_test(test_fetch__a_pack_cut_short_fails_what_it_lacks_alone),
        cmocka_unit_test(test_fetch__a_dead_store_fails_every_waiter_once_and_is_asked_again),
        cmocka_unit_test(test_fetch__what_is_asked_for_once_more_has_the_same_deadline_and_so_has_who_joins),
        cmocka_unit_test(test_fetch__the_time_in_the_queue_counts),
        cmocka_unit_test(test_fetch__a_missing_pack_is_absent),
        cmocka_unit_test(test_fetch__a_dead_store_delays_nobody_who_reads_the_chunk_from_another),
        cmocka_unit_test(test_fetch__late_comers_get_the_bytes_until_the_flight_is_retired),
        cmocka_unit_test(test_fetch__one_can_wait_until_a_fetch_is_retired),
        cmocka_unit_test(test_fetch__what_warming_waits_for_lands_as_warm_at_any_priority),
        cmocka_unit_test(test_fetch__free_ends_running_gets_and_cancels_what_is_queued),
        cmocka_unit_test(test_fetch__random_readers_under_random_faults_get_right_bytes),
        cmocka_unit_test(test_fetch__stored_bytes_are_kept_when_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
