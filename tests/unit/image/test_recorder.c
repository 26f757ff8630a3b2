/* Each chunk that is read is listed once, whichever thread reads it first; a recorder that is behind loses entries,
 * which are counted, and a recording can end at any moment under its readers. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "image/image_internal.h"

enum { READERS = 4, CHUNKS = 40000, BATCH = 100 };

static void note(struct recorder_place *place, uint64_t chunk)
{
    const struct digest digest = {{(uint8_t)chunk, (uint8_t)(chunk >> 8), (uint8_t)(chunk >> 16)}};
    recorder_note(place, chunk, &digest);
}

static void check(const struct trace_entry *e)
{
    assert_true(e->id[0] == (uint8_t)e->chunk && e->id[1] == (uint8_t)(e->chunk >> 8) &&
                e->id[2] == (uint8_t)(e->chunk >> 16) && !e->id[3]);
}

static void test_recorder__first_touches_in_order(void **state)
{
    static const unsigned reads[] = {7, 3, 7, 199, 3, 0, 64, 63, 7};
    static const unsigned listed[] = {7, 3, 199, 0, 64, 63};
    struct recorder_place place = {.current = NULL};
    struct recorder *r, *second;
    struct trace_entry out[BATCH];
    note(&place, 1); /* before it begins */
    assert_int_equal(recorder_start(&place, 200, &r), 0);
    assert_int_equal(recorder_start(&place, 200, &second), -EBUSY);
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        note(&place, reads[i]);
    recorder_stop(&place, r);
    note(&place, 2); /* after its end */
    assert_int_equal(recorder_take(r, out, 4), 4);
    assert_int_equal(recorder_take(r, out + 4, BATCH - 4), 2);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(out[i].chunk, listed[i]);
        check(&out[i]);
    }
    assert_int_equal(recorder_dropped(r), 0);
    recorder_free(r);
}

static void test_recorder__what_does_not_fit_is_dropped_and_comes_again(void **state)
{
    static struct trace_entry out[RECORDER_RING];
    struct recorder_place place = {.current = NULL};
    struct recorder *r;
    assert_int_equal(recorder_start(&place, RECORDER_RING + 10, &r), 0);
    for (uint64_t i = 0; i < RECORDER_RING + 10; i++)
        note(&place, i);
    assert_int_equal(recorder_dropped(r), 10);
    assert_int_equal(recorder_take(r, out, RECORDER_RING), RECORDER_RING);
    assert_int_equal(out[RECORDER_RING - 1].chunk, RECORDER_RING - 1);
    for (uint64_t i = 0; i < RECORDER_RING + 10; i++)
        note(&place, i);
    assert_int_equal(recorder_take(r, out, RECORDER_RING), 10);
    assert_int_equal(out[0].chunk, RECORDER_RING);
    recorder_stop(&place, r);
    recorder_free(r);
}

static void test_recorder__the_end_is_asked_for_once_a_recording(void **state)
{
    struct recorder_place place = {.current = NULL};
    struct recorder *r;
    assert_false(recorder_end(&place));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(recorder_start(&place, 1, &r), 0);
        assert_false(recorder_ending(&place));
        assert_true(recorder_end(&place));
        assert_true(recorder_ending(&place));
        recorder_stop(&place, r);
        recorder_free(r);
    }
}

struct crowd {
    struct recorder_place place;
    _Atomic bool end;
    _Atomic unsigned done;
};

static void *read_all(void *arg)
{
    struct crowd *c = arg;
    for (uint64_t i = 0; i < CHUNKS; i++)
        note(&c->place, i * 7919 % CHUNKS);
    atomic_fetch_add(&c->done, 1);
    return NULL;
}

static void test_recorder__many_readers_list_each_chunk_once(void **state)
{
    static struct crowd c;
    static unsigned char seen[CHUNKS];
    struct recorder *r;
    struct trace_entry out[BATCH];
    pthread_t threads[READERS];
    uint64_t total = 0;
    assert_int_equal(recorder_start(&c.place, CHUNKS, &r), 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &c), 0);
    for (bool last = false; !last;) {
        last = atomic_load(&c.done) == READERS; /* before the ring is emptied */
        for (size_t n; (n = recorder_take(r, out, BATCH)); total += n)
            for (size_t i = 0; i < n; i++) {
                check(&out[i]);
                assert_int_equal(seen[out[i].chunk]++, 0);
            }
    }
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_true(total + recorder_dropped(r) >= CHUNKS); /* a chunk that was dropped may have come again */
    recorder_stop(&c.place, r);
    recorder_free(r);
}

static void *read_for_ever(void *arg)
{
    struct crowd *c = arg;
    for (uint64_t i = 0; !atomic_load(&c->end); i++)
        note(&c->place, i * 7919 % CHUNKS);
    return NULL;
}

static void test_recorder__ends_under_its_readers(void **state)
{
    static struct crowd c;
    pthread_t threads[READERS];
    struct trace_entry out[BATCH];
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_for_ever, &c), 0);
    for (int i = 0; i < 50; i++) {
        struct recorder *r;
        assert_int_equal(recorder_start(&c.place, CHUNKS, &r), 0);
        while (!recorder_take(r, out, 1))
            ;
        check(out);
        recorder_stop(&c.place, r);
        recorder_free(r);
    }
    atomic_store(&c.end, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorder__first_touches_in_order),
        cmocka_unit_test(test_recorder__what_does_not_fit_is_dropped_and_comes_again),
        cmocka_unit_test(test_recorder__the_end_is_asked_for_once_a_recording),
        cmocka_unit_test(test_recorder__many_readers_list_each_chunk_once),
        cmocka_unit_test(test_recorder__ends_under_its_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
