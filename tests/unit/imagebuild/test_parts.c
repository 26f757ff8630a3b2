/* Parts of a source, built one by one and joined: the parts are the whole, balanced and stable; the joined image is
 * what a full build makes, and no file's bytes are read for it. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "imagebuild/tree/share.h"
#include "unit/counts.h"
#include "unit/rebuild_world.h"

enum { PARTS = 3, PATHS = 40000, SHARES = 8 };

/* ------------------------------------------------------------------ shares */

struct list {
    unsigned count, large; /* paths; every so many-th file is large; 0: none is */
    unsigned missing;      /* number of a path that is not there; 0: all are */
};

/* Directories of 400 files each; each tenth file has a further name directly after it. */
static struct nodes *make_list(const struct list *l)
{
    struct nodes *nodes = NULL;
    const struct scratch_config scratch = {.memory = 0};
    char path[32];
    assert_int_equal(nodes_new(&scratch, &nodes), 0);
    struct node root = {.mode = S_IFDIR | 0755, .path = ""};
    assert_int_equal(nodes_add(nodes, &root), 0);
    uint32_t dir = 0;
    for (uint32_t i = 1; i < l->count; i++) {
        bool is_dir = i % 400 == 1, further = i % 10 == 6;
        dir = is_dir ? i : dir;
        snprintf(path, sizeof path, is_dir ? "%06u" : "%06u/img_%06u.jpg", dir, i);
        struct node n = {.rank = i, .parent = is_dir ? 0 : dir, .path = path, .path_len = strlen(path)};
        n.link = further ? i - 1 : i;
        n.mode = is_dir ? S_IFDIR | 0755 : S_IFREG | 0644;
        n.size = is_dir ? 0 : l->large && i % l->large == 0 ? SHARE_LARGE : 1000;
        if (i != l->missing)
            assert_int_equal(nodes_add(nodes, &n), 0);
    }
    assert_int_equal(nodes_end(nodes), 0);
    return nodes;
}

/* Note the share of every path in of[], by rank; a directory's is SHARES. *counts: paths but directories by share. */
static void share_out(const struct list *l, unsigned shares, uint8_t *of, unsigned counts[SHARES])
{
    CLEANUP(cleanup_nodes) struct nodes *all = make_list(l);
    const struct scratch_config scratch = {.memory = 0};
    const struct step step = {.call = NULL};
    memset(of, 0xff, l->count);
    memset(counts, 0, SHARES * sizeof *counts);
    for (unsigned number = 0; number < shares; number++) {
        CLEANUP(cleanup_nodes) struct nodes *taken = NULL;
        CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
        const struct share share = {.number = number, .count = shares};
        struct listing_stats stats = {.files = 99};
        struct node n;
        uint64_t files = 0;
        assert_int_equal(share_take(&share, all, &scratch, &step, &taken, &stats), 0);
        assert_int_equal(nodes_cursor_new(taken, &cursor), 0);
        while (nodes_next(cursor, &n) == 1) {
            bool is_dir = S_ISDIR(n.mode);
            assert_int_equal(of[n.rank], is_dir && number ? SHARES : 0xff); /* in one share, or in all */
            of[n.rank] = (uint8_t)(is_dir ? SHARES : number);
            counts[number] += !is_dir;
            files += S_ISREG(n.mode) && n.link == n.rank;
        }
        assert_int_equal(stats.files, files);
    }
    for (unsigned i = 0; i < l->count; i++)
        assert_true(of[i] != 0xff || i == l->missing);
}

static void test_share__parts_are_the_whole_and_balanced(void **state)
{
    static uint8_t of[PATHS];
    unsigned counts[SHARES], changes = 0;
    const struct list list = {.count = PATHS};
    share_out(&list, SHARES, of, counts);
    for (unsigned i = 0; i < SHARES; i++) {
        assert_true(counts[i] > PATHS / SHARES / 3); /* 20 runs in a share on average */
        assert_true(counts[i] < PATHS / SHARES * 2);
    }
    for (unsigned i = 1, last = SHARES; i < PATHS; i++) {
        if (of[i] == SHARES)
            continue;
        if (i % 10 == 6)
            assert_int_equal(of[i], of[i - 1]); /* a further name is with the first */
        changes += of[i] != last;
        last = of[i];
    }
    assert_true(changes < PATHS / 128); /* neighbours stay together */
}

static void test_share__large_files_of_one_directory_are_spread(void **state)
{
    static uint8_t of[400];
    unsigned counts[SHARES];
    const struct list list = {.count = 400, .large = 1};
    share_out(&list, SHARES, of, counts);
    for (unsigned i = 0; i < SHARES; i++)
        assert_true(counts[i] > 20 && counts[i] < 90);
}

static void test_share__a_path_that_goes_moves_few_others(void **state)
{
    static uint8_t before[PATHS], after[PATHS];
    unsigned counts[SHARES], moved = 0;
    const struct list list = {.count = PATHS, .large = 50};
    share_out(&list, SHARES, before, counts);
    const unsigned goes = full_or(5, 2);
    for (unsigned i = 0; i < goes; i++) {
        const struct list less = {.count = PATHS, .large = 50, .missing = 3 + i * 1700};
        share_out(&less, SHARES, after, counts);
        for (unsigned k = 0; k < PATHS; k++)
            moved += after[k] != 0xff && after[k] != before[k];
    }
    assert_true(moved < goes * 100); /* a border in one of 256 cases */
}

/* ------------------------------------------------------------------ joining */

static void open_files(struct world *w)
{
    srand(1);
    open_world(w, 900);
    for (unsigned i = 0; i < w->count; i++)
        set_file(w, i, small_size());
    for (unsigned i = 0; i < 4; i++)
        set_file(w, 50 * i, SHARE_LARGE + i);
    for (unsigned i = 10; i < 20; i++)
        w->paths[i] = (struct path){.there = true, .kind = i % 2 ? SYMLINK : DIRECTORY, .seed = i};
    for (unsigned i = 800; i < 810; i++)
        w->paths[i] = (struct path){.there = true, .kind = HARD_LINK, .seed = i - 700};
}

static void parse_part(unsigned i, struct image_ref *out)
{
    char image[64];
    snprintf(image, sizeof image, "/store/faces:part-%u", i);
    assert_int_equal(image_ref_parse(image, out), 0);
}

/* Build all parts; returns the bytes that they read. */
static uint64_t build_parts(struct world *w)
{
    uint64_t read = 0;
    for (unsigned i = 0; i < PARTS; i++) {
        struct build_options o = options();
        struct build_result r;
        char image[64];
        snprintf(image, sizeof image, "/store/faces:part-%u", i);
        o.part = (struct share){.number = i, .count = PARTS};
        assert_int_equal(run_as(w, w->store, image, &o, &r), 0);
        assert_true(r.manifest.counts.files > w->count / PARTS / 4);
        read += r.bytes_read;
    }
    return read;
}

static int join(struct world *w, const struct build_options *base, struct build_result *r)
{
    struct image_ref parts[PARTS];
    struct build_options o = *base;
    for (unsigned i = 0; i < PARTS; i++)
        parse_part(i, &parts[i]);
    o.parents = parts;
    o.parent_count = PARTS;
    return run_as(w, w->store, "/store/faces:whole", &o, r);
}

static bool is_pack(const char *key)
{
    return !strncmp(key, "packs/", 6);
}

static void count_packs(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    (void)f;
    if (op == FAKE_GET && is_pack(key))
        (*(atomic_uint *)arg)++; /* packs are checked by several threads */
}

static void test_parts__the_joined_image_is_the_whole(void **state)
{
    static struct world w;
    const struct build_options o = options();
    struct build_result r, again;
    uint64_t size;
    open_files(&w);
    const uint64_t read = build_parts(&w);
    assert_int_equal(read, w.listed);
    const size_t packs = store_fake_count(w.store, "packs/");
    atomic_uint gets = 0;
    store_fake_set_hook(w.store, count_packs, &gets);
    assert_int_equal(join(&w, &o, &r), 0);
    store_fake_set_hook(w.store, NULL, NULL);
    assert_int_equal(r.bytes_read, 0);
    assert_int_equal(r.rebuild.parents, PARTS);
    assert_true(digest_is_zero(&r.rebuild.parent));
    assert_int_equal(r.rebuild.bytes_kept, w.listed);
    assert_true(gets <= packs); /* the check of each pack reads its last chunk, and nothing else reads packs */
    assert_true(r.bytes_uploaded < w.listed / 4);
    compare_with_full(&w, &r, &size);
    /* equal input gives the equal image */
    assert_int_equal(join(&w, &o, &again), 0);
    assert_true(digest_equal(&again.image, &r.image));
    store_fake_free(w.store);
}

static void test_parts__a_day_later_only_changes_are_read(void **state)
{
    static struct world w;
    const struct build_options o = options();
    struct build_result r;
    uint64_t size;
    open_files(&w);
    build_parts(&w);
    assert_int_equal(join(&w, &o, &r), 0);
    for (unsigned day = 0; day < 3; day++) {
        uint64_t changed = 0;
        for (unsigned i = 100 * day + 30; i < 100 * day + 45; i++) {
            set_file(&w, i, small_size());
            changed += w.paths[i].size;
        }
        w.paths[200 + day].there = false;
        uint64_t read = build_parts(&w);
        assert_true(read < changed + w.listed / 4); /* the path that goes may move a run */
        assert_int_equal(join(&w, &o, &r), 0);
        assert_int_equal(r.bytes_read, 0);
        compare_with_full(&w, &r, &size);
    }
    /* what changes between the parts and the join is read by the join, from the source */
    set_file(&w, 500, 7777);
    assert_int_equal(join(&w, &o, &r), 0);
    assert_int_equal(r.bytes_read, 7777);
    compare_with_full(&w, &r, &size);
    store_fake_free(w.store);
}

/* Of images that overlap, that one counts which has the file as the source has it now, whatever their order. */
static void test_parts__of_two_versions_the_listed_one_is_kept(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    struct image_ref days[2];
    uint64_t size;
    open_files(&w);
    assert_int_equal(run_as(&w, w.store, "/store/faces:one", &o, &r), 0);
    for (unsigned i = 300; i < 400; i++)
        set_file(&w, i, small_size());
    o.no_parent = true;
    assert_int_equal(run_as(&w, w.store, "/store/faces:two", &o, &r), 0);
    o.no_parent = false;
    o.parents = days;
    o.parent_count = 2;
    for (unsigned order = 0; order < 2; order++) {
        assert_int_equal(image_ref_parse("/store/faces:one", &days[order]), 0);
        assert_int_equal(image_ref_parse("/store/faces:two", &days[!order]), 0);
        assert_int_equal(run_as(&w, w.store, "/store/faces:both", &o, &r), 0);
        assert_int_equal(r.bytes_read, 0);
        compare_with_full(&w, &r, &size);
    }
    store_fake_free(w.store);
}

struct last_pack {
    pthread_mutex_t lock;
    char key[OBJECT_KEY_MAX];
};

/* Several threads put packs. */
static void note_pack(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct last_pack *last = arg;
    (void)f;
    if (op != FAKE_PUT || !is_pack(key))
        return;
    SCOPED_LOCK(&last->lock);
    snprintf(last->key, sizeof last->key, "%s", key);
}

static void test_parts__a_lost_pack_is_read_from_the_source(void **state)
{
    static struct world w;
    const struct build_options o = options();
    struct build_result r;
    struct last_pack last = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t size;
    open_files(&w);
    store_fake_set_hook(w.store, note_pack, &last); /* of the last part */
    build_parts(&w);
    store_fake_set_hook(w.store, NULL, NULL);
    assert_true(store_fake_remove(w.store, last.key));
    assert_int_equal(join(&w, &o, &r), 0);
    assert_int_equal(r.rebuild.packs_damaged, 1);
    assert_true(r.rebuild.healed > 0);
    assert_int_equal(r.bytes_read, r.rebuild.bytes_healed);
    compare_with_full(&w, &r, &size);
    store_fake_free(w.store);
}

static void test_parts__scrubbing_and_compaction_reach_every_part(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    uint64_t size;
    open_files(&w);
    build_parts(&w);
    for (unsigned i = 0; i < w.count; i += 2)
        if (w.paths[i].kind == FILE_KIND)
            w.paths[i].there = false;
    o.compact_percent = 100;
    assert_int_equal(join(&w, &o, &r), 0);
    assert_true(r.rebuild.files_moved > 0);
    assert_int_equal(r.bytes_read, 0); /* what moves is read from the store */
    compare_with_full(&w, &r, &size);
    o.compact_percent = 0;
    o.scrub = true;
    assert_int_equal(join(&w, &o, &r), 0);
    assert_true(r.rebuild.bytes_scrubbed > 0);
    assert_int_equal(others_bytes(&w, &r), 0);
    compare_with_full(&w, &r, &size);
    store_fake_free(w.store);
}

static volatile int stopped;

static void stop_late(void *arg, const struct build_progress *p)
{
    (void)arg;
    stopped |= !strcmp(p->phase, "metadata");
}

static void test_parts__what_cannot_be_joined_publishes_nothing(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    open_files(&w);
    build_parts(&w);
    o.progress = stop_late;
    o.cancel = &stopped;
    assert_int_equal(join(&w, &o, &r), -ECANCELED);
    assert_false(store_fake_has(w.store, "images/faces/whole"));
    o = options();
    o.chunk_size = 2 * CHUNK;
    assert_int_equal(join(&w, &o, &r), -EINVAL);
    assert_true(store_fake_remove(w.store, "images/faces/part-1"));
    o = options();
    assert_int_equal(join(&w, &o, &r), -ENOENT);
    assert_false(store_fake_has(w.store, "images/faces/whole"));
    store_fake_free(w.store);

    open_files(&w);
    w.fs = ext4;
    build_parts(&w);
    assert_int_equal(join(&w, &o, &r), -ENOTSUP);
    store_fake_free(w.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share__parts_are_the_whole_and_balanced),
        cmocka_unit_test(test_share__large_files_of_one_directory_are_spread),
        cmocka_unit_test(test_share__a_path_that_goes_moves_few_others),
        cmocka_unit_test(test_parts__the_joined_image_is_the_whole),
        cmocka_unit_test(test_parts__a_day_later_only_changes_are_read),
        cmocka_unit_test(test_parts__of_two_versions_the_listed_one_is_kept),
        cmocka_unit_test(test_parts__a_lost_pack_is_read_from_the_source),
        cmocka_unit_test(test_parts__scrubbing_and_compaction_reach_every_part),
        cmocka_unit_test(test_parts__what_cannot_be_joined_publishes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
