/* Packs put together again from a source: the very same bytes, or nothing and a reason. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "imagebuild/check/check.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"
#include "upkeep/upkeep.h"

enum { CHUNK = CHUNK_SIZE_MIN, FILES = 40 };

struct fixture {
    struct store_fake *fake;
    struct store *store;
    struct source *source;
    struct build_result built;
    VEC(struct digest) packs; /* in the order of their first chunks */
    VEC(struct digest) metadata_packs;
    struct repair_result result;
    unsigned problems;
    char problem[ERROR_TEXT_MAX];
};

static int note_packs(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct fixture *f = arg;
    for (uint64_t i = 0; chunks && i < count; i++) {
        const struct digest *pack = &chunks[i].object;
        bool metadata = first + i == 0 || (first + i) * CHUNK >= f->built.manifest.metadata_offset;
        if (chunk_is_hole(&chunks[i]))
            continue;
        if (metadata)
            assert_int_equal(vec_push(&f->metadata_packs, *pack), 0);
        else if (!f->packs.len || !digest_equal(&f->packs.items[f->packs.len - 1], pack))
            assert_int_equal(vec_push(&f->packs, *pack), 0);
    }
    return 0;
}

/* Files of all sizes, three of them equal; packs of a few chunks. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct image_ref ref;
    const struct build_options options = {.chunk_size = CHUNK,
                                          .zstd_level = 5,
                                          .jobs = 2,
                                          .workers = 2,
                                          .uploads = 2,
                                          .pack_size = 3 * CHUNK,
                                          .no_parent = true};
    const struct index_walk_ops ops = {.chunks = note_packs};
    f->fake = store_fake_new();
    f->store = store_fake_store(f->fake);
    f->source = source_fake_new();
    for (unsigned i = 0; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof path, "file-%02u", i);
        unsigned like = i == 31 ? 30 : i;
        source_fake_file(f->source, path, (uint64_t)like * like * 200, like);
    }
    source_fake_file(f->source, "twin-30", 30 * 30 * 200, 30);
    assert_int_equal(image_ref_parse("/store/faces", &ref), 0);
    assert_int_equal(build_run(f->source, f->store, &ref, &options, &f->built), 0);
    assert_int_equal(index_walk(f->store, &f->built.manifest, &ops, f), 0);
    assert_true(f->packs.len > 5);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    vec_release(&f->packs);
    vec_release(&f->metadata_packs);
    source_close(f->source);
    store_fake_free(f->fake);
    free(f);
    return 0;
}

static void on_problem(void *arg, const char *sentence)
{
    struct fixture *f = arg;
    f->problems++;
    snprintf(f->problem, sizeof f->problem, "%s", sentence);
}

static int repair(struct fixture *f, const struct digest *packs, size_t count)
{
    const struct repair_options options = {.threads = 3, .problem = on_problem, .arg = f};
    f->problems = 0;
    return repair_packs(f->store, &f->built.manifest, f->source, packs, count, &options, &f->result);
}

static const char *key_of(const struct digest *pack)
{
    static char key[OBJECT_KEY_MAX];
    return object_key(OBJECT_PACK, pack, key);
}

static bool is_whole(struct fixture *f, const struct digest *pack)
{
    CLEANUP_BYTES body = BYTES_INIT(1 << 20);
    if (!store_fake_get(f->fake, key_of(pack), &body))
        return false;
    struct digest d = digest_of(body.data, body.len);
    return digest_equal(&d, pack);
}

/* Does this pack hold nothing of the filesystem? */
static bool is_bodies(const struct fixture *f, const struct digest *pack)
{
    for (size_t i = 0; i < f->metadata_packs.len; i++)
        if (digest_equal(&f->metadata_packs.items[i], pack))
            return false;
    return true;
}

static void test_repair__missing_packs_come_back(void **state)
{
    struct fixture *f = *state;
    size_t lost = 0;
    for (size_t i = 0; i < f->packs.len; i++) {
        lost += !is_bodies(f, &f->packs.items[i]);
        assert_true(store_fake_remove(f->fake, key_of(&f->packs.items[i])));
    }
    assert_int_equal(repair(f, f->packs.items, f->packs.len), 0);
    assert_int_equal(f->result.packs, f->packs.len);
    assert_int_equal(f->result.repaired, f->packs.len - lost);
    assert_int_equal(f->problems, lost);
    for (size_t i = 0; i < f->packs.len; i++)
        assert_int_equal(is_whole(f, &f->packs.items[i]), is_bodies(f, &f->packs.items[i]));
}

static void test_repair__what_is_left_is_used(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(store_fake_flip(f->fake, key_of(&f->packs.items[i]), 10));
    assert_true(store_fake_truncate(f->fake, key_of(&f->packs.items[1]), 5000));
    assert_int_equal(repair(f, f->packs.items, f->packs.len), 0);
    assert_int_equal(f->result.repaired, f->packs.len); /* also those that hold metadata, whole as it was */
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(is_whole(f, &f->packs.items[i]));
    assert_true(f->result.chunks >= f->packs.len && f->result.chunks < 2 * f->packs.len);
}

static void test_repair__lost_metadata_is_said(void **state)
{
    struct fixture *f = *state;
    const struct digest *pack = &f->metadata_packs.items[0];
    assert_true(store_fake_remove(f->fake, key_of(pack)));
    store_fake_reset_counters(f->fake);
    assert_int_equal(repair(f, pack, 1), 0);
    assert_int_equal(f->result.repaired, 0);
    assert_int_equal(f->problems, 1);
    assert_non_null(strstr(f->problem, "metadata of the filesystem"));
    assert_int_equal(store_fake_calls(f->fake, FAKE_PUT), 1); /* the lease */
}

/* What a gc does while a pack is put. The image lost its tags and its grace period, so that all of it is eligible. */
struct collector {
    struct fixture *f;
    struct gc_result result;
};

static void collect_at_put(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct collector *c = arg;
    if (op != FAKE_PUT || strncmp(key, "packs/", 6) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    assert_int_equal(gc_run(c->f->store, &(struct gc_options){.grace_s = 0}, &c->result), 0);
}

static void test_repair__gc_sweeps_nothing_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct collector c = {.f = f};
    assert_int_equal(repository_remove_tag(f->store, "faces", "latest"), 0);
    assert_int_equal(repository_remove_tag(f->store, "faces", f->built.unique_tag), 0);
    assert_int_equal(gc_run(f->store, &(struct gc_options){.grace_s = 0}, &c.result), 0);
    assert_true(c.result.marked > 0);
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(store_fake_flip(f->fake, key_of(&f->packs.items[i]), 10));
    store_fake_set_hook(f->fake, collect_at_put, &c);
    assert_int_equal(repair(f, f->packs.items, f->packs.len), 0);
    assert_int_equal(c.result.live_leases, 1);
    assert_int_equal(c.result.swept, 0);
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(is_whole(f, &f->packs.items[i]));
    assert_int_equal(store_fake_count(f->fake, "builds/"), 0);
}

/* The first pack that lies within file-39, the largest. */
static const struct digest *pack_of_the_last_file(const struct fixture *f)
{
    for (size_t i = f->packs.len; i-- > 0;)
        if (is_bodies(f, &f->packs.items[i]))
            return &f->packs.items[i - 1];
    return NULL;
}

static void test_repair__a_changed_source_is_said(void **state)
{
    struct fixture *f = *state;
    const struct digest *pack = pack_of_the_last_file(f);
    for (unsigned i = 30; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof path, "file-%02u", i);
        source_fake_version(f->source, path, 500000, 77);
        source_fake_change(f->source, path);
    }
    assert_true(store_fake_remove(f->fake, key_of(pack)));
    assert_int_equal(repair(f, pack, 1), 0);
    assert_int_equal(f->result.repaired, 0);
    assert_non_null(strstr(f->problem, "no longer has the image's version of file-3"));
    assert_false(store_fake_has(f->fake, key_of(pack)));
}

/* file-30, file-31 and twin-30 share one body: any of them will do. */
static void test_repair__another_file_of_the_same_bytes_will_do(void **state)
{
    struct fixture *f = *state;
    source_fake_vanish(f->source, "file-30");
    source_fake_version(f->source, "twin-30", 5, 77);
    source_fake_change(f->source, "twin-30");
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(store_fake_flip(f->fake, key_of(&f->packs.items[i]), 10));
    assert_int_equal(repair(f, f->packs.items, f->packs.len), 0);
    assert_int_equal(f->result.repaired, f->packs.len);
    assert_int_equal(f->problems, 0);
}

static void test_repair__a_source_that_fails_ends_it(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < f->packs.len; i++)
        assert_true(store_fake_flip(f->fake, key_of(&f->packs.items[i]), 10));
    for (unsigned i = 1; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof path, "file-%02u", i);
        source_fake_rule(f->source, path, 0, FAKE_READ_FAIL, -EACCES);
    }
    assert_int_equal(repair(f, f->packs.items, f->packs.len), -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_repair__missing_packs_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__what_is_left_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__lost_metadata_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__gc_sweeps_nothing_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__a_changed_source_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__another_file_of_the_same_bytes_will_do, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repair__a_source_that_fails_ends_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
