/* Leases and the announcements of sweeps: who waits for whom, and when one has lapsed. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fake/store_fake.h"
#include "repository/lease.h"
#include "repository/nesting.h"
#include "repository/repository.h"

static unsigned warnings;

/* How much time has passed on every clock, beyond the true one, since a test began. */
static int64_t passed_ms;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = __real_clock_gettime(id, t);
    int64_t ns = t->tv_nsec + passed_ms % 1000 * 1000000;
    t->tv_sec += passed_ms / 1000 + ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return rc;
}

static void count_warning(enum log_level level, const char *line)
{
    warnings += level == LOG_LEVEL_WARNING;
}

static int setup(void **state)
{
    struct store_fake *f = store_fake_new();
    *state = f;
    warnings = 0;
    passed_ms = 0;
    log_to(count_warning, LOG_LEVEL_DEBUG);
    return repository_check(store_fake_store(f), true);
}

static int teardown(void **state)
{
    store_fake_free(*state);
    return 0;
}

static const struct nesting place = {.is_store = true};

static void test_lease__lives_while_it_is_renewed(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct lease_handle *l;
    uint64_t live;
    int64_t now = time(NULL);
    assert_int_equal(lease_begin(s, &place, "s3://b/faces", NULL, &l), 0);
    assert_int_equal(store_fake_count(f, "builds/"), 1);
    uint64_t puts = store_fake_calls(f, FAKE_PUT);
    assert_int_equal(lease_renew(l), 0);
    assert_int_equal(store_fake_calls(f, FAKE_PUT), puts);
    assert_int_equal(lease_renew_at(l, clock_boot_ms() + LEASE_RENEW_MS + 1), 0);
    assert_int_equal(store_fake_calls(f, FAKE_PUT), puts + 1);
    assert_int_equal(lease_lapses(l), 0);
    assert_int_equal(lease_count_live(s, now, 3600, true, &live), 0);
    assert_int_equal(live, 1);
    /* a grace period of nothing does not make a running build's lease dead */
    assert_int_equal(lease_count_live(s, now, 0, true, &live), 0);
    assert_int_equal(live, 1);
    assert_int_equal(lease_count_live(s, now + 4000, 3600, false, &live), 0);
    assert_int_equal(live, 0);
    assert_int_equal(store_fake_count(f, "builds/"), 1);
    lease_end(l);
    assert_int_equal(store_fake_count(f, "builds/"), 0);
    assert_int_equal(warnings, 0);

    assert_int_equal(lease_begin(s, &place, "s3://b/faces", NULL, &l), 0);
    store_fake_set_dead(f, -EACCES);
    (void)error_set(-EIO, "why the build failed");
    lease_end(l);
    assert_string_equal(error_text(), "why the build failed");
    assert_int_equal(warnings, 1);
    store_fake_set_dead(f, 0);
    assert_int_equal(lease_count_live(s, now + 4000, 3600, true, &live), 0);
    assert_int_equal(store_fake_count(f, "builds/"), 0);
}

static void test_lease__one_that_cannot_be_read_counts_by_the_clock(void **state)
{
    struct store_fake *f = *state;
    uint64_t live;
    store_fake_set_now(f, 100000);
    store_fake_put(f, "builds/strange", "{", 1);
    assert_int_equal(lease_count_live(store_fake_store(f), 101000, 3600, true, &live), 0);
    assert_int_equal(live, 1);
    assert_int_equal(lease_count_live(store_fake_store(f), 105000, 3600, true, &live), 0);
    assert_int_equal(live, 0);
    assert_int_equal(store_fake_count(f, "builds/"), 0);
    store_fake_put(f, "builds/strange", "{", 1);
    store_fake_add_fault(f, &(struct store_fake_fault){.op = FAKE_GET_SMALL, .code = -EACCES});
    assert_int_equal(lease_count_live(store_fake_store(f), 101000, 3600, true, &live), -EACCES);
}

struct sweeping {
    struct lease_handle *sweep;
    unsigned looks;
};

static void end_sweep_at_third_look(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct sweeping *s = arg;
    if (op == FAKE_GET_SMALL && !strcmp(key, "trash/sweeping") && s->sweep && ++s->looks == 3) {
        struct lease_handle *sweep = s->sweep;
        s->sweep = NULL;
        lease_end(sweep);
    }
}

static void test_lease__waits_for_a_sweep_but_not_for_a_dead_one(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct sweeping sweeping = {.looks = 0};
    struct lease_handle *l;
    assert_int_equal(lease_begin_sweep(s, &sweeping.sweep), 0);
    store_fake_set_hook(f, end_sweep_at_third_look, &sweeping);
    assert_int_equal(lease_begin(s, &place, "x", NULL, &l), 0);
    assert_int_equal(sweeping.looks, 3);
    assert_int_equal(store_fake_count(f, "builds/"), 1);
    lease_end(l);
    store_fake_set_hook(f, NULL, NULL);

    const struct lease dead = {.renewed = time(NULL) - LEASE_SWEEP_DEAD_S - 1, .host = "h", .image = ""};
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    assert_int_equal(lease_encode(&dead, &doc), 0);
    store_fake_put(f, "trash/sweeping", doc.data, doc.len);
    assert_int_equal(lease_begin(s, &place, "x", NULL, &l), 0);
    lease_end(l);
}

struct waiting {
    volatile int cancel;
    unsigned looks, told;
};

static struct waiting waiting;

static void count_told(enum log_level level, const char *line)
{
    waiting.told += level == LOG_LEVEL_INFO && strstr(line, "waits until a gc or unnest");
}

/* Each look at the announcement takes 700 ms, and it is live at each. */
static void interrupt_at_fifth_look(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    if (op != FAKE_GET_SMALL || strcmp(key, "trash/sweeping") != 0)
        return;
    passed_ms += 700;
    waiting.cancel = ++waiting.looks == 5;
}

static void test_lease__says_what_it_waits_for_and_can_be_interrupted(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct lease_handle *sweep, *l;
    waiting = (struct waiting){.looks = 0};
    log_to(count_told, LOG_LEVEL_INFO);
    assert_int_equal(lease_begin_sweep(s, &sweep), 0);
    store_fake_set_hook(f, interrupt_at_fifth_look, NULL);
    assert_int_equal(lease_begin(s, &place, "x", &waiting.cancel, &l), -ECANCELED);
    assert_int_equal(waiting.looks, 5);
    assert_int_equal(waiting.told, 1);
    assert_int_equal(store_fake_count(f, "builds/"), 0);
    lease_end(sweep);
}

/* The machine slept: what others did meanwhile was done as if the lease were not there. */
static void test_lease__that_was_not_renewed_in_time_has_lapsed(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct sweeping sweeping = {.looks = 0};
    struct lease_handle *l;
    const uint64_t too_long = LEASE_LIFE_MIN_S * 1000 + 1000;
    assert_int_equal(lease_begin(s, &place, "x", NULL, &l), 0);
    assert_int_equal(lease_begin_sweep(s, &sweeping.sweep), 0);
    store_fake_set_hook(f, end_sweep_at_third_look, &sweeping);
    assert_int_equal(lease_renew_at(l, clock_boot_ms() + too_long), 0);
    assert_int_equal(sweeping.looks, 3);
    assert_int_equal(lease_lapses(l), 1);
    lease_end(l);
    store_fake_set_hook(f, NULL, NULL);

    assert_int_equal(lease_begin_sweep(s, &sweeping.sweep), 0);
    uint64_t puts = store_fake_calls(f, FAKE_PUT);
    assert_int_equal(lease_renew_at(sweeping.sweep, clock_boot_ms() + too_long), -EAGAIN);
    assert_int_equal(store_fake_calls(f, FAKE_PUT), puts);
    lease_end(sweeping.sweep);
}

/* The store answers a put after ten minutes. */
static void answer_late(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strcmp(key, "trash/sweeping"))
        passed_ms += LEASE_LIFE_MIN_S * 1000;
}

/* Builds took the announcement for dead while it was written again. granary.json is gone, as in an unnest's last step.
 */
static void test_lease__a_sweep_that_was_renewed_too_late_ends(void **state)
{
    struct store_fake *f = *state;
    struct lease_handle *sweep;
    assert_int_equal(lease_begin_sweep(store_fake_store(f), &sweep), 0);
    assert_true(store_fake_remove(f, "granary.json"));
    store_fake_set_hook(f, answer_late, NULL);
    passed_ms = LEASE_RENEW_MS + 1000;
    uint64_t looks = store_fake_calls(f, FAKE_GET_SMALL);
    assert_int_equal(lease_renew(sweep), -EAGAIN);
    assert_non_null(strstr(error_text(), "stood still for 661 s"));
    assert_false(lease_is_live(sweep));
    assert_int_equal(lease_renew(sweep), -EAGAIN);
    assert_int_equal(store_fake_calls(f, FAKE_GET_SMALL), looks); /* it did not wait for itself */
    lease_end(sweep);
    assert_false(store_fake_has(f, "trash/sweeping"));
}

static void put_sweep(struct store_fake *f, int64_t renewed)
{
    const struct lease other = {.started = 1, .renewed = renewed, .host = "other", .image = ""};
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    assert_int_equal(lease_encode(&other, &doc), 0);
    store_fake_put(f, "trash/sweeping", doc.data, doc.len);
}

/* Builds wait for one announcement: two gcs under it would not know whose end they see. */
static void test_lease__only_one_sweeps(void **state)
{
    struct store_fake *f = *state;
    struct store *s = store_fake_store(f);
    struct lease_handle *first, *second;
    assert_int_equal(lease_begin_sweep(s, &first), 0);
    assert_int_equal(lease_begin_sweep(s, &second), -EAGAIN);
    lease_end(first);
    assert_false(store_fake_has(f, "trash/sweeping"));
    put_sweep(f, time(NULL) - 60);
    assert_int_equal(lease_begin_sweep(s, &second), -EAGAIN);
    put_sweep(f, time(NULL) - LEASE_SWEEP_DEAD_S - 1);
    assert_int_equal(lease_begin_sweep(s, &second), 0);
    put_sweep(f, time(NULL)); /* stood still, and was taken for dead */
    lease_end(second);
    assert_true(store_fake_has(f, "trash/sweeping"));
}

/* Two gcs find none, or the same dead one, and write at the same moment. */
static void sweep_too(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    bool *came = arg;
    if (*came || op != FAKE_PUT || strcmp(key, "trash/sweeping") != 0)
        return;
    *came = true;
    put_sweep(f, time(NULL));
}

static void test_lease__of_two_that_begin_to_sweep_one_does(void **state)
{
    struct store_fake *f = *state;
    struct lease_handle *l;
    for (int dead = 0; dead < 2; dead++) {
        bool came = false;
        if (dead)
            put_sweep(f, time(NULL) - LEASE_SWEEP_DEAD_S - 1);
        store_fake_set_hook(f, sweep_too, &came);
        assert_int_equal(lease_begin_sweep(store_fake_store(f), &l), -EAGAIN);
        assert_true(came);
        store_fake_set_hook(f, NULL, NULL);
        assert_true(store_fake_remove(f, "trash/sweeping"));
    }
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_lease__lives_while_it_is_renewed),
        RUN(test_lease__one_that_cannot_be_read_counts_by_the_clock),
        RUN(test_lease__waits_for_a_sweep_but_not_for_a_dead_one),
        RUN(test_lease__says_what_it_waits_for_and_can_be_interrupted),
        RUN(test_lease__that_was_not_renewed_in_time_has_lapsed),
        RUN(test_lease__a_sweep_that_was_renewed_too_late_ends),
        RUN(test_lease__only_one_sweeps),
        RUN(test_lease__of_two_that_begin_to_sweep_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
