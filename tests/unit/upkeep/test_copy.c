/* Copying an image between stores: all of it or no name for it, nothing twice, nothing that is damaged. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/lease.h"
#include "repository/repository.h"
#include "unit/threads.h"
#include "upkeep/upkeep.h"

struct fixture {
    struct store_fake *from, *to;
    struct image_fake image;
    struct copy_result result;
    atomic_uint puts_unleased, leases; /* several threads put */
};

/* How long the machine has slept since a test began. */
static _Atomic uint64_t slept_ms;

int __wrap_lease_renew(struct lease_handle *l);
int __wrap_lease_renew(struct lease_handle *l)
{
    return lease_renew_at(l, clock_boot_ms() + slept_ms);
}

static const struct copy_name as_faces = {.name = "faces", .tag = "latest", .created = 1700000000};

static int setup(void **state)
{
    static const struct catalog_entry root = {.path = "", .mode = S_IFDIR | 0755};
    struct fixture *f = calloc(1, sizeof *f);
    f->from = store_fake_new();
    f->to = store_fake_new();
    slept_ms = 0;
    f->image = (struct image_fake){.size = 4 << 20, .chunk_size = 64 << 10, .pack_chunks = 4};
    f->image.entries = &root;
    f->image.entry_count = 1;
    image_fake_put(&f->image, f->from, "faces");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    image_fake_release(&f->image);
    store_fake_free(f->from);
    store_fake_free(f->to);
    free(f);
    return 0;
}

static int copy_with(struct fixture *f, const struct copy_options *options)
{
    return copy_image(store_fake_store(f->from), &f->image.digest, store_fake_store(f->to), &as_faces, options,
                      &f->result);
}

static int copy(struct fixture *f)
{
    const struct copy_options options = {.threads = 4};
    return copy_with(f, &options);
}

static void check_whole(struct fixture *f)
{
    struct manifest m;
    struct verify_result r;
    struct image_ref ref;
    struct digest image;
    const struct verify_options deep = {.deep = true, .threads = 2};
    assert_int_equal(image_ref_parse("/x/faces", &ref), 0);
    assert_int_equal(repository_resolve(store_fake_store(f->to), &ref, &image, NULL), 0);
    assert_true(digest_equal(&image, &f->image.digest));
    assert_int_equal(repository_manifest(store_fake_store(f->to), &image, &m), 0);
    assert_int_equal(verify_image(store_fake_store(f->to), &m, &deep, &r), 0);
    assert_int_equal(r.packs_bad + r.chunks_bad, 0);
}

static void check_no_image(struct fixture *f)
{
    assert_int_equal(store_fake_count(f->to, "images/"), 0);
    assert_int_equal(store_fake_count(f->to, "manifests/"), 0);
    assert_int_equal(store_fake_count(f->to, "builds/"), 0);
}

static void test_copy__brings_everything_once(void **state)
{
    struct fixture *f = *state;
    if (copy(f))
        fail_msg("%s", error_text());
    check_whole(f);
    assert_int_equal(f->result.objects, 16 + 2 + 1); /* packs, index nodes, a page */
    assert_int_equal(f->result.objects_copied, f->result.objects);
    assert_int_equal(f->result.bytes_copied, f->result.bytes);
    assert_int_equal(store_fake_count(f->to, "images/faces/"), 2);
    assert_memory_equal(f->result.unique_tag, "20231114T221320Z-", 17);
    assert_int_equal(store_fake_count(f->to, "builds/"), 0);
    store_fake_reset_counters(f->from);
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 0);
    assert_int_equal(store_fake_calls(f->from, FAKE_GET), f->result.objects); /* their ends */
    check_whole(f);
}

/* Put an image of deltas in place of the fixture's, which becomes *first and has their bases. */
static void put_deltas(struct fixture *f, struct image_fake *first)
{
    static const struct catalog_entry root = {.path = "", .mode = S_IFDIR | 0755};
    *first = f->image;
    f->image = (struct image_fake){.seed = 5, .size = 4 << 20, .chunk_size = 64 << 10, .pack_chunks = 64};
    f->image.entries = &root;
    f->image.entry_count = 1;
    f->image.deltas_of = first;
    image_fake_put(&f->image, f->from, "faces");
}

static void test_copy__brings_the_bases_of_deltas(void **state)
{
    struct fixture *f = *state;
    struct image_fake first;
    put_deltas(f, &first);
    if (copy(f))
        fail_msg("%s", error_text());
    assert_int_equal(f->result.objects, 1 + 16 + 2 + 1); /* packs of deltas and of bases, index nodes, a page */
    check_whole(f);
    image_fake_release(&first);
}

/* verify, too, misses a base: by looking for its pack, and by reading the delta. */
static void test_copy__a_base_that_is_missing_is_found(void **state)
{
    struct fixture *f = *state;
    struct image_fake first;
    struct verify_result r;
    char key[OBJECT_KEY_MAX];
    put_deltas(f, &first);
    assert_true(store_fake_remove(f->from, object_key(OBJECT_PACK, &first.refs[0].object, key)));
    assert_int_equal(copy(f), -EBADMSG);
    check_no_image(f);
    assert_int_equal(
        verify_image(store_fake_store(f->from), &f->image.manifest, &(struct verify_options){.threads = 2}, &r), 0);
    assert_int_equal(r.packs_bad, 1);
    assert_int_equal(verify_image(store_fake_store(f->from), &f->image.manifest,
                                  &(struct verify_options){.deep = true, .threads = 2}, &r),
                     0);
    assert_int_equal(r.chunks_bad, 4);
    image_fake_release(&first);
}

static void test_copy__goes_on_where_it_failed(void **state)
{
    struct fixture *f = *state;
    store_fake_add_fault(
        f->to, &(struct store_fake_fault){.op = FAKE_PUT, .key_prefix = "packs/", .skip = 5, .code = -EACCES});
    assert_int_equal(copy(f), -EACCES);
    check_no_image(f);
    store_fake_clear_faults(f->to);
    size_t there =
        store_fake_count(f->to, "packs/") + store_fake_count(f->to, "indexes/") + store_fake_count(f->to, "catalogs/");
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, f->result.objects - there);
    check_whole(f);
}

/* Some pack of the image. */
static char *a_pack(const struct fixture *f, char out[OBJECT_KEY_MAX])
{
    return object_key(OBJECT_PACK, &f->image.refs[20].object, out);
}

static void test_copy__hands_on_nothing_damaged(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    assert_true(store_fake_flip(f->from, a_pack(f, key), 1000));
    assert_int_equal(copy(f), -EBADMSG);
    assert_non_null(strstr(error_text(), key));
    assert_false(store_fake_has(f->to, key));
    check_no_image(f);
    assert_true(store_fake_remove(f->from, key));
    assert_int_equal(copy(f), -EBADMSG);
    assert_non_null(strstr(error_text(), key));
    check_no_image(f);
}

static void test_copy__replaces_what_was_cut_short(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    assert_int_equal(copy(f), 0);
    assert_true(store_fake_truncate(f->to, a_pack(f, key), 1000));
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 1);
    check_whole(f);
    /* and what has other bytes there, of the same length */
    CLEANUP_BYTES pack = BYTES_INIT(1 << 30);
    assert_true(store_fake_get(f->to, key, &pack));
    memset(pack.data, 'x', pack.len);
    store_fake_put(f->to, key, pack.data, pack.len);
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 1);
    check_whole(f);
}

static void test_copy__reads_nothing_of_what_both_stores_say_is_the_same(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    store_fake_set_md5(f->from, FAKE_MD5_TRUE);
    store_fake_set_md5(f->to, FAKE_MD5_TRUE);
    assert_int_equal(copy(f), 0);
    store_fake_reset_counters(f->from);
    store_fake_reset_counters(f->to);
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 0);
    assert_int_equal(store_fake_calls(f->from, FAKE_GET), 0);
    assert_int_equal(store_fake_calls(f->to, FAKE_GET), 0);
    /* with its first byte wrong, which its end does not show */
    assert_true(store_fake_flip(f->to, a_pack(f, key), 0));
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 1);
    check_whole(f);
    /* one of them encrypts */
    store_fake_set_md5(f->to, FAKE_MD5_OTHER);
    assert_int_equal(copy(f), 0);
    assert_int_equal(f->result.objects_copied, 0);
}

static void test_copy__takes_marks_off_all_that_it_needs(void **state)
{
    struct fixture *f = *state;
    char mark[OBJECT_KEY_MAX], hex[DIGEST_HEX_SIZE];
    for (int round = 0; round < 2; round++) { /* what it puts itself, what was there */
        snprintf(mark, sizeof mark, "trash/%s", digest_hex(&f->image.refs[0].object, hex));
        store_fake_put(f->to, mark, "{}", 2);
        snprintf(mark, sizeof mark, "trash/%s", digest_hex(&f->image.digest, hex));
        store_fake_put(f->to, mark, "{}", 2);
        assert_int_equal(copy(f), 0);
        assert_int_equal(store_fake_count(f->to, "trash/"), 0);
    }
}

/* A gc that goes against the rules takes a pack that the copy relies on. */
static void remove_a_pack(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    const struct fixture *f = arg;
    char pack[OBJECT_KEY_MAX];
    if (op == FAKE_PUT && !strncmp(key, "indexes/", 8))
        (void)store_fake_remove(fake, a_pack(f, pack));
}

static void test_copy__looks_again_at_what_was_there(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES pack = BYTES_INIT(1 << 20);
    assert_true(store_fake_get(f->from, a_pack(f, key), &pack));
    store_fake_put(f->to, key, pack.data, pack.len);
    store_fake_set_hook(f->to, remove_a_pack, f);
    assert_int_equal(copy(f), -EAGAIN);
    check_no_image(f);
    store_fake_set_hook(f->to, NULL, NULL);
    assert_int_equal(copy(f), 0);
    check_whole(f);
}

/* The machine sleeps until the lease is dead, and a gc takes a pack that this copy has put. Called by any thread. */
static void sleep_and_lose_a_pack(struct fixture *f)
{
    char key[OBJECT_KEY_MAX];
    store_fake_set_hook(f->to, NULL, NULL);
    slept_ms = (LEASE_LIFE_MIN_S + 1) * 1000;
    must(store_fake_remove(f->to, a_pack(f, key)), "%s was not there", key);
}

static void sleep_at_manifest(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strncmp(key, "manifests/", 10))
        sleep_and_lose_a_pack(arg);
}

static void test_copy__looks_again_when_its_lease_lapsed_after_it_looked(void **state)
{
    struct fixture *f = *state;
    store_fake_set_hook(f->to, sleep_at_manifest, f);
    assert_int_equal(copy(f), -EAGAIN);
    assert_non_null(strstr(error_text(), "run the same command again"));
    assert_int_equal(store_fake_count(f->to, "images/"), 0);
    slept_ms = 0;
    assert_int_equal(copy(f), 0);
    check_whole(f);
}

static void remove_store_at_manifest(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strncmp(key, "manifests/", 10))
        (void)store_fake_remove(fake, "granary.json");
}

static void test_copy__publishes_nothing_where_the_store_has_gone(void **state)
{
    struct fixture *f = *state;
    const struct copy_options before = {.threads = 1, .place = {.is_store = true}};
    assert_int_equal(copy_with(f, &before), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
    assert_int_equal(store_fake_count(f->to, ""), 0); /* nor was it made anew */
    store_fake_set_hook(f->to, remove_store_at_manifest, f);
    assert_int_equal(copy(f), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
    assert_int_equal(store_fake_count(f->to, "images/"), 0);
}

/* Both tags or none: a build tag alone would keep the image for ever without a name that anybody knows. */
static void test_copy__leaves_no_build_tag_where_the_other_cannot_be_put(void **state)
{
    struct fixture *f = *state;
    const struct store_fake_fault fault = {.op = FAKE_PUT, .key_prefix = "images/faces/latest", .code = -EACCES};
    store_fake_add_fault(f->to, &fault);
    assert_int_equal(copy(f), -EACCES);
    assert_non_null(strstr(error_text(), "images/faces/latest"));
    assert_int_equal(store_fake_count(f->to, "images/"), 0);
    store_fake_clear_faults(f->to);
    /* what an earlier copy published stays */
    assert_int_equal(copy(f), 0);
    store_fake_add_fault(f->to, &fault);
    assert_int_equal(copy(f), -EACCES);
    assert_int_equal(store_fake_count(f->to, "images/faces/"), 2);
}

/* The other workers have looked by now, and the caller's thread renews the lease before this one has. */
static void sleep_while_it_looks(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op != FAKE_STAT || strncmp(key, "packs/", 6) != 0 || store_fake_count(fake, "packs/") < 16)
        return;
    sleep_and_lose_a_pack(arg);
    usleep(2 * PARALLEL_STEP_MS * 1000);
}

static void test_copy__looks_again_when_its_lease_lapsed_while_it_looked(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES pack = BYTES_INIT(1 << 20);
    object_key(OBJECT_PACK, &f->image.refs[0].object, key);
    assert_true(store_fake_get(f->from, key, &pack));
    store_fake_put(f->to, key, pack.data, pack.len); /* was there before, so it is looked at again */
    store_fake_set_hook(f->to, sleep_while_it_looks, f);
    assert_int_equal(copy(f), -EAGAIN);
    assert_int_equal(store_fake_count(f->to, "images/"), 0);
}

static void watch_lease(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct fixture *f = arg;
    if (op != FAKE_PUT || !strncmp(key, "builds/", 7) || !strcmp(key, "granary.json"))
        return;
    f->leases += store_fake_count(fake, "builds/") == 1;
    f->puts_unleased += store_fake_count(fake, "builds/") != 1;
}

static void test_copy__holds_a_lease_throughout(void **state)
{
    struct fixture *f = *state;
    const struct copy_options alone = {.threads = 1};
    store_fake_set_hook(f->to, watch_lease, f);
    assert_int_equal(copy_with(f, &alone), 0);
    assert_int_equal(f->puts_unleased, 0);
    assert_true(f->leases >= f->result.objects + 3); /* manifest, two tags */
}

static void test_copy__an_object_larger_than_its_memory_goes_alone(void **state)
{
    struct fixture *f = *state;
    const struct copy_options tight = {.threads = 8, .memory = 1};
    assert_int_equal(copy_with(f, &tight), 0);
    check_whole(f);
}

static void test_copy__ends_when_interrupted(void **state)
{
    struct fixture *f = *state;
    volatile int cancel = 1;
    const struct copy_options options = {.threads = 2, .cancel = &cancel};
    assert_int_equal(copy_with(f, &options), -ECANCELED);
    check_no_image(f);
}

/* ------------------------------------------------------------------ what it stands on */

struct items {
    _Atomic unsigned done[1000];
    _Atomic unsigned inside, peak;
    size_t fails_at;
    unsigned steps;
};

static int do_item(void *arg, size_t i)
{
    struct items *t = arg;
    unsigned now = atomic_fetch_add(&t->inside, 1) + 1;
    if (now > atomic_load(&t->peak))
        atomic_store(&t->peak, now);
    atomic_fetch_add(&t->done[i], 1);
    atomic_fetch_sub(&t->inside, 1);
    return i == t->fails_at ? error_set(-EXDEV, "item %zu", i) : 0;
}

static int count_step(void *arg)
{
    ((struct items *)arg)->steps++;
    return 0;
}

static int failing_step(void *arg)
{
    return error_set(-ECANCELED, "no more");
}

static void test_parallel__does_each_item_once(void **state)
{
    struct items *t = calloc(1, sizeof *t);
    t->fails_at = SIZE_MAX;
    struct parallel work = {.count = 1000, .threads = 5, .item = do_item, .step = count_step, .arg = t};
    assert_int_equal(parallel_run(&work), 0);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(t->done[i], 1);
    assert_true(t->peak <= 5);
    assert_true(t->steps >= 1);
    work.count = 0;
    assert_int_equal(parallel_run(&work), 0);
    free(t);
}

static void test_parallel__the_first_failure_ends_it(void **state)
{
    struct items *t = calloc(1, sizeof *t);
    t->fails_at = 3;
    struct parallel work = {.count = 1000, .threads = 1, .item = do_item, .arg = t};
    assert_int_equal(parallel_run(&work), -EXDEV);
    assert_string_equal(error_text(), "item 3");
    assert_int_equal(t->done[4], 0);
    work.step = failing_step;
    t->fails_at = SIZE_MAX;
    assert_int_equal(parallel_run(&work), -ECANCELED);
    assert_string_equal(error_text(), "no more");
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copy__brings_everything_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__brings_the_bases_of_deltas, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__a_base_that_is_missing_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__goes_on_where_it_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__hands_on_nothing_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__replaces_what_was_cut_short, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__reads_nothing_of_what_both_stores_say_is_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__takes_marks_off_all_that_it_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__looks_again_at_what_was_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__looks_again_when_its_lease_lapsed_after_it_looked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__looks_again_when_its_lease_lapsed_while_it_looked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__leaves_no_build_tag_where_the_other_cannot_be_put, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__publishes_nothing_where_the_store_has_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__holds_a_lease_throughout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__an_object_larger_than_its_memory_goes_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy__ends_when_interrupted, setup, teardown),
        cmocka_unit_test(test_parallel__does_each_item_once),
        cmocka_unit_test(test_parallel__the_first_failure_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
