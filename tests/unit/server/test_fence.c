/* Behind the fence readers get what is cached, and an error that names the offset for the rest; nothing is fetched for
 * them. Warming fetches. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/error.h"
#include "unit/control_world.h"
#include "unit/counters.h"
#include "unit/exports.h"

static struct control_world w;

static uint64_t requests(void)
{
    return counter_value(stack_counters, w.stack, "granary_fetch_requests_total");
}

static uint64_t refusals(void)
{
    struct image_traffic t;
    image_traffic(image_at(w.stack, 0), &t);
    return t.fence_refusals;
}

static int read_of(struct image *img, uint64_t off, size_t len)
{
    static uint8_t got[4 * CONTROL_CHUNK], want[4 * CONTROL_CHUNK];
    int rc = image_read(img, got, off, len);
    image_fake_bytes(&w.img, off, want, len);
    if (!rc)
        assert_memory_equal(got, want, len);
    return rc;
}

static int read_chunks(uint64_t off, size_t len)
{
    return read_of(image_at(w.stack, 0), off, len);
}

static void expect_refusal(uint64_t off, size_t len, uint64_t at)
{
    char text[64];
    uint64_t before = refusals();
    snprintf(text, sizeof text, "at offset %llu are not cached", (unsigned long long)at);
    assert_int_equal(read_chunks(off, len), -EIO);
    if (!strstr(error_text(), text))
        fail_msg("'%s', not '%s'", error_text(), text);
    assert_int_equal(refusals(), before + 1);
}

static int visit(void *arg, uint64_t off, uint64_t len, bool hole)
{
    return 0;
}

static void test_fence__only_what_is_warmed_is_read(void **state)
{
    w.fenced = true;
    control_world_init(&w);
    struct image *img = image_at(w.stack, 0);
    expect_refusal(5 * CONTROL_CHUNK + 7, 100, 5 * CONTROL_CHUNK + 7); /* not even the index is there */
    assert_int_equal(image_extents(img, 0, CONTROL_CHUNK, visit, NULL), -EIO);
    assert_int_equal(requests(), 0);
    assert_int_equal(image_prefetch(img, 5 * CONTROL_CHUNK, 2 * CONTROL_CHUNK), 0);
    uint64_t fetched = requests();
    assert_true(fetched > 0);
    assert_int_equal(read_chunks(5 * CONTROL_CHUNK + 7, 100), 0);
    assert_int_equal(read_chunks(5 * CONTROL_CHUNK, 2 * CONTROL_CHUNK), 0);
    assert_int_equal(image_extents(img, 0, CONTROL_CHUNK, visit, NULL), 0);
    expect_refusal(6 * CONTROL_CHUNK - 1, CONTROL_CHUNK + 2, 7 * CONTROL_CHUNK);
    expect_refusal(4 * CONTROL_CHUNK + 3, CONTROL_CHUNK, 4 * CONTROL_CHUNK + 3);
    assert_int_equal(requests(), fetched);
    assert_int_equal(cache_evict(stack_cache(w.stack), &w.img.refs[5].digest, false), 0);
    expect_refusal(5 * CONTROL_CHUNK, 1, 5 * CONTROL_CHUNK);
    assert_int_equal(requests(), fetched);
    control_world_release(&w);
}

/* Warming by number goes through the fence in batches; what a batch is refused, if ever, has an offset of its own. */
static void test_fence__chunks_by_number_are_warmed_behind_it(void **state)
{
    enum { WANTED = 150 }; /* more than two batches */
    uint64_t wanted[WANTED];
    w.fenced = true;
    control_world_init(&w);
    struct image *img = image_at(w.stack, 0);
    for (size_t i = 0; i < WANTED; i++)
        wanted[i] = (WANTED - i) * 7 % CONTROL_CHUNKS; /* in no order, some twice */
    assert_int_equal(image_prefetch_chunks(img, wanted, 0), 0);
    assert_int_equal(requests(), 0);
    assert_int_equal(image_prefetch_chunks(img, wanted, WANTED), 0);
    assert_int_equal(refusals(), 0);
    for (size_t i = 0; i < WANTED; i++)
        assert_int_equal(read_chunks(wanted[i] * CONTROL_CHUNK, 100), 0);
    control_world_release(&w);
}

static int put(struct added_exports *a, const char *name, bool fenced)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    const struct stack_image image = {.ref = w.ref, .export_name = name, .fenced = fenced};
    return added_exports_put(a, &image, ADDED_FOR_USER, NULL, &e);
}

/* Of two exports of one image, one is behind a fence of its own, also after a restart. */
static void test_fence__of_one_export(void **state)
{
    enum { AT = 5 * CONTROL_CHUNK, ELSEWHERE = 30 * CONTROL_CHUNK, FAR = 35 * CONTROL_CHUNK };
    char file[SCRATCH_MAX + 16];
    struct added_exports *a;
    w.fenced = false;
    control_world_init(&w);
    snprintf(file, sizeof file, "%s/list", w.dir);
    assert_int_equal(added_exports_open(w.stack, file, -1, &a), 0);
    assert_int_equal(put(a, "only-warm", true), 0);
    assert_int_equal(read_of(image_named(w.stack, "only-warm"), AT, 100), -EIO); /* not even the index is there */
    assert_int_equal(requests(), 0);
    assert_int_equal(image_prefetch(image_named(w.stack, "faces"), AT, CONTROL_CHUNK), 0);
    assert_int_equal(read_of(image_named(w.stack, "only-warm"), AT, 100), 0);
    assert_int_equal(read_of(image_named(w.stack, "faces"), FAR, 100), 0); /* which fetches for its reader */
    uint64_t fetched = requests();
    assert_int_equal(read_of(image_named(w.stack, "only-warm"), ELSEWHERE, 100), -EIO);
    assert_int_equal(requests(), fetched);
    assert_int_equal(image_prefetch(image_named(w.stack, "only-warm"), ELSEWHERE, CONTROL_CHUNK), 0);
    assert_int_equal(read_of(image_named(w.stack, "only-warm"), ELSEWHERE, 100), 0);

    assert_int_equal(put(a, "only-warm", false), 0); /* as it is */
    assert_int_equal(put(a, "faces", true), -EPERM);
    assert_non_null(strstr(error_text(), "without fence=warmed"));
    added_exports_close(a);
    assert_int_equal(stack_remove(w.stack, "only-warm"), 0);
    assert_int_equal(added_exports_open(w.stack, file, -1, &a), 0);
    assert_int_equal(read_of(image_named(w.stack, "only-warm"), 20 * CONTROL_CHUNK, 100), -EIO);
    added_exports_close(a);
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fence__only_what_is_warmed_is_read),
        cmocka_unit_test(test_fence__chunks_by_number_are_warmed_behind_it),
        cmocka_unit_test(test_fence__of_one_export),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
