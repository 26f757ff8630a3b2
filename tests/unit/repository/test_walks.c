/* Walks over an image's index and catalog, which garbage collection stands on. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/map.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"

struct fixture {
    struct store_fake *fake;
    struct store *store;
    struct image_fake images[1];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->fake = store_fake_new();
    f->store = store_fake_store(f->fake);
    *state = f;
    return repository_check(f->store, true);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    image_fake_release(&f->images[0]);
    store_fake_free(f->fake);
    free(f);
    return 0;
}

static bool most_are_holes(uint64_t chunk)
{
    return chunk != 5 && chunk < 3000;
}

struct seen {
    uint64_t nodes, chunks, holes, next;
};

static int see_node(void *arg, const struct index_child *node, unsigned level)
{
    ((struct seen *)arg)->nodes++;
    return 0;
}

static int see_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct seen *s = arg;
    assert_int_equal(first, s->next);
    s->next += count;
    for (uint64_t i = 0; i < count; i++) {
        bool hole = !chunks || chunk_is_hole(&chunks[i]);
        assert_int_equal(hole, most_are_holes(first + i));
        s->chunks += !hole;
        s->holes += hole;
    }
    return 0;
}

static int skip_all(void *arg, const struct index_child *node, unsigned level)
{
    return INDEX_WALK_SKIP;
}

static int stop(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    return -ECANCELED;
}

static void test_index_walk__covers_the_image_in_order(void **state)
{
    struct fixture *f = *state;
    struct image_fake *img = &f->images[0];
    *img =
        (struct image_fake){.size = UINT64_C(3100) * (64 << 10) + 4096, .chunk_size = 64 << 10, .hole = most_are_holes};
    image_fake_put(img, f->fake, NULL);
    struct index_walk_ops ops = {.node = see_node, .chunks = see_chunks};
    struct seen s = {.nodes = 0};
    assert_int_equal(index_walk(f->store, &img->manifest, &ops, &s), 0);
    assert_int_equal(s.next, 3101);
    assert_int_equal(s.chunks, 102);
    assert_int_equal(s.nodes, 4); /* the root and leaves 0, 2 and 3; leaf 1 is a hole */
    const struct index_walk_ops skipping = {.node = skip_all, .chunks = stop};
    assert_int_equal(index_walk(f->store, &img->manifest, &skipping, &s), 0);
    const struct index_walk_ops stopping = {.chunks = stop};
    assert_int_equal(index_walk(f->store, &img->manifest, &stopping, &s), -ECANCELED);

    /* parents and children must agree */
    struct manifest m = img->manifest;
    const struct index_walk_ops none = {.node = NULL};
    m.index_root.content.b[0] ^= 1;
    assert_int_equal(index_walk(f->store, &m, &none, &s), -EBADMSG);
    m = img->manifest;
    m.index_root.len++;
    assert_int_equal(index_walk(f->store, &m, &none, &s), -EBADMSG);
    m = img->manifest;
    m.size -= 64 << 10;
    assert_int_equal(index_walk(f->store, &m, &none, &s), -EBADMSG);
    m = img->manifest;
    m.size = 64 << 10;
    m.index_levels = 1;
    assert_int_equal(index_walk(f->store, &m, &none, &s), -EBADMSG);
}

/* A walk in a thread of its own. */
struct walking {
    struct fixture *f;
    struct digest leaves[2 * INDEX_AHEAD];
    uint64_t leaf_count, next;
    uint64_t stop_at, fail_at; /* the chunk after which it is stopped; the leaf that fails on the way down; 0: none */
    bool wrong;
    int rc;
    atomic_bool root_got;
};

enum { WALK_LEAVES = 2 * INDEX_AHEAD };

static bool one_in_a_leaf(uint64_t chunk)
{
    return chunk % INDEX_FANOUT != 3;
}

static int note_leaf(void *arg, const struct index_child *node, unsigned level)
{
    struct walking *k = arg;
    if (!level && k->leaf_count < WALK_LEAVES)
        k->leaves[k->leaf_count++] = node->digest;
    return k->fail_at && k->leaf_count > k->fail_at ? -EIO : 0;
}

static int note_order(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct walking *k = arg;
    k->wrong |= first != k->next || count != INDEX_FANOUT || !chunks || chunk_is_hole(&chunks[3]);
    k->wrong |= !digest_equal(&chunks[3].digest, &k->f->images[0].refs[first + 3].digest);
    k->next += count;
    return k->next == k->stop_at ? -ECANCELED : 0;
}

static void *walk_in_thread(void *arg)
{
    struct walking *k = arg;
    const struct index_walk_ops ops = {.node = note_leaf, .chunks = note_order};
    k->next = k->leaf_count = 0;
    k->rc = index_walk(k->f->store, &k->f->images[0].manifest, &ops, k);
    return NULL;
}

/* What comes after the root is held. */
static void hold_leaves(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct walking *k = arg;
    if (atomic_exchange(&k->root_got, true))
        store_fake_hold(f, FAKE_GET_SMALL);
}

static void put_leaves(struct fixture *f)
{
    f->images[0] = (struct image_fake){
        .size = (uint64_t)WALK_LEAVES * INDEX_FANOUT * (64 << 10), .chunk_size = 64 << 10, .hole = one_in_a_leaf};
    image_fake_put(&f->images[0], f->fake, NULL);
    store_fake_reset_counters(f->fake);
}

static void test_index_walk__fetches_a_bounded_number_of_leaves_ahead(void **state)
{
    struct walking k = {.f = *state};
    pthread_t thread;
    put_leaves(k.f);
    store_fake_set_hook(k.f->fake, hold_leaves, &k);
    assert_int_equal(pthread_create(&thread, NULL, walk_in_thread, &k), 0);
    store_fake_wait_held(k.f->fake, INDEX_AHEAD);
    store_fake_set_hook(k.f->fake, NULL, NULL);
    store_fake_release(k.f->fake);
    pthread_join(thread, NULL);
    assert_int_equal(k.rc, 0);
    assert_false(k.wrong);
    assert_int_equal(k.next, WALK_LEAVES * INDEX_FANOUT);
    assert_int_equal(store_fake_peak(k.f->fake), INDEX_AHEAD);
    assert_int_equal(store_fake_calls(k.f->fake, FAKE_GET_SMALL), WALK_LEAVES + 1);
}

/* An error comes after all that lies before its place; a visitor ends the walk with leaves in flight. */
static void test_index_walk__ends_where_it_should(void **state)
{
    struct walking k = {.f = *state};
    char key[OBJECT_KEY_MAX];
    put_leaves(k.f);
    for (uint64_t end = 1; end < WALK_LEAVES; end += 9) {
        k.stop_at = end * INDEX_FANOUT;
        walk_in_thread(&k);
        assert_int_equal(k.rc, -ECANCELED);
        assert_int_equal(k.next, k.stop_at);
    }
    k.stop_at = 0;
    k.fail_at = 20;
    walk_in_thread(&k);
    assert_int_equal(k.rc, -EIO);
    assert_int_equal(k.next, 20 * INDEX_FANOUT);
    k.fail_at = 0;
    walk_in_thread(&k);
    assert_int_equal(k.rc, 0);
    store_fake_remove(k.f->fake, object_key(OBJECT_INDEX, &k.leaves[20], key));
    walk_in_thread(&k);
    assert_int_equal(k.rc, -ENOENT);
    assert_non_null(strstr(error_text(), key));
    assert_int_equal(k.next, 20 * INDEX_FANOUT);
    assert_false(k.wrong);
}

enum { PATHS = 9000 };

/* A catalog of "d<i/100>/f<i>" in two or three levels. */
static void put_catalog(struct fixture *f, struct manifest *m)
{
    struct catalog_page_writer *w[CATALOG_LEVELS_MAX];
    bool waits[CATALOG_LEVELS_MAX] = {false};
    CLEANUP_BYTES page = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child;
    enum repository_found found;
    bool full;
    for (unsigned l = 0; l < CATALOG_LEVELS_MAX; l++)
        w[l] = catalog_page_writer_new(l);
    for (unsigned i = 0; i <= PATHS; i++) {
        char path[32];
        size_t len = i ? (size_t)snprintf(path, sizeof path, "d%02u/f%05u", i / 100, i) : 0;
        struct catalog_entry e = {.path = path, .path_len = len, .mode = i ? S_IFREG | 0644 : S_IFDIR | 0755};
        assert_int_equal(catalog_page_add(w[0], &e, &full), 0);
        waits[0] = true;
        for (unsigned l = 0; full; l++) {
            bytes_clear(&page);
            assert_int_equal(catalog_page_finish(w[l], &page, &child), 0);
            waits[l] = false;
            assert_int_equal(repository_put_object(f->store, OBJECT_CATALOG, page.data, page.len, NULL, NULL, &found),
                             0);
            assert_int_equal(catalog_page_add_child(w[l + 1], &child, &full), 0);
            waits[l + 1] = true;
        }
    }
    for (unsigned l = 0;; l++) {
        if (!waits[l])
            continue;
        bytes_clear(&page);
        assert_int_equal(catalog_page_finish(w[l], &page, &child), 0);
        assert_int_equal(repository_put_object(f->store, OBJECT_CATALOG, page.data, page.len, NULL, NULL, &found), 0);
        bool above = false;
        for (unsigned k = l + 1; k < CATALOG_LEVELS_MAX; k++)
            above |= waits[k];
        if (!above) {
            m->catalog_levels = l + 1;
            break;
        }
        assert_int_equal(catalog_page_add_child(w[l + 1], &child, &full), 0);
        waits[l + 1] = true;
    }
    for (unsigned l = 0; l < CATALOG_LEVELS_MAX; l++)
        catalog_page_writer_free(w[l]);
    m->catalog_root = child.digest;
    m->catalog_len = child.len;
    m->catalog_crc = child.crc;
    m->catalog_entries = child.entries;
}

struct paths {
    unsigned count;
    char last[64];
    unsigned stop_at;
};

static int see_path(void *arg, const struct catalog_entry *e)
{
    struct paths *p = arg;
    if (p->count)
        assert_true(catalog_path_compare(p->last, strlen(p->last), e->path, e->path_len) < 0);
    snprintf(p->last, sizeof p->last, "%.*s", (int)e->path_len, e->path);
    return ++p->count == p->stop_at ? 77 : 0;
}

static int see_page(void *arg, const struct digest *object)
{
    ++*(unsigned *)arg;
    return 0;
}

static void test_catalog_walk__a_prefix_reads_only_its_pages(void **state)
{
    struct fixture *f = *state;
    struct manifest m = {.size = 4096};
    put_catalog(f, &m);
    assert_int_equal(m.catalog_entries, PATHS + 1);
    assert_true(m.catalog_levels >= 2);
    struct paths all = {.count = 0};
    assert_int_equal(catalog_walk(f->store, &m, "", 0, see_path, &all), 0);
    assert_int_equal(all.count, PATHS + 1);
    unsigned pages = 0;
    assert_int_equal(catalog_walk_pages(f->store, &m, see_page, &pages), 0);
    assert_int_equal(pages, store_fake_count(f->fake, "catalogs/"));

    const struct {
        const char *prefix;
        unsigned count;
    } rows[] = {{"d07/", 100}, {"d0", 999}, {"d90/f09000", 1}, {"x", 0}, {"!", 0}, {"d07/f00712x", 0}, {"d", PATHS}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++) {
        struct paths p = {.count = 0};
        store_fake_reset_counters(f->fake);
        assert_int_equal(catalog_walk(f->store, &m, rows[i].prefix, strlen(rows[i].prefix), see_path, &p), 0);
        assert_int_equal(p.count, rows[i].count);
        if (rows[i].count <= 100)
            assert_true(store_fake_calls(f->fake, FAKE_GET_SMALL) <= m.catalog_levels + 1);
    }
    struct paths p = {.stop_at = 5};
    assert_int_equal(catalog_walk(f->store, &m, "", 0, see_path, &p), 77);
    assert_int_equal(p.count, 5);
    m.catalog_levels--;
    assert_int_equal(catalog_walk(f->store, &m, "", 0, see_path, &all), -EBADMSG);
}

/* Put a catalog of one page of entries, `page`, as a delta of `base`; the page itself is not put. */
static struct manifest put_delta_root(struct fixture *f, const struct digest *page, const struct digest *base)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(1);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    const struct catalog_child child = {.first = "", .digest = *page, .len = 1, .entries = 1, .base = *base};
    struct catalog_child root;
    enum repository_found found;
    bool full;
    assert_int_equal(catalog_page_add_child(w, &child, &full), 0);
    assert_int_equal(catalog_page_finish(w, &object, &root), 0);
    assert_int_equal(repository_put_object(f->store, OBJECT_CATALOG, object.data, object.len, NULL, NULL, &found), 0);
    return (struct manifest){.size = 4096, .catalog_levels = 2, .catalog_root = root.digest};
}

/* Skip what was seen, as gc does. */
static int see_new_page(void *arg, const struct digest *object)
{
    int rc = digest_map_add(arg, object, 0);
    assert_true(rc >= 0);
    return rc ? 0 : CATALOG_WALK_SKIP;
}

/* The same bytes may be deltas of several bases: that a page was seen says nothing of its base. */
static void test_catalog_walk__names_every_base(void **state)
{
    struct fixture *f = *state;
    CLEANUP_DIGEST_MAP seen = {0};
    const struct digest page = digest_of("page", 4), one = digest_of("1", 1), other = digest_of("2", 1);
    struct manifest a = put_delta_root(f, &page, &one), b = put_delta_root(f, &page, &other);
    assert_int_equal(catalog_walk_pages(f->store, &a, see_new_page, &seen), 0);
    assert_non_null(digest_map_find(&seen, &one));
    assert_int_equal(catalog_walk_pages(f->store, &b, see_new_page, &seen), 0);
    assert_non_null(digest_map_find(&seen, &other));
    assert_int_equal(seen.map.count, 5); /* two roots, two bases, the page */
}

/* A base is a page of entries; what a store says is another thing. */
static void test_catalog_walk__a_base_of_no_entries_is_damage(void **state)
{
    struct fixture *f = *state;
    struct paths all = {.count = 0};
    const struct digest page = digest_of("page", 4), base = digest_of("base", 4);
    struct manifest other = put_delta_root(f, &page, &base);
    struct manifest m = put_delta_root(f, &page, &other.catalog_root);
    assert_int_equal(catalog_walk(f->store, &m, "", 0, see_path, &all), -EBADMSG);
    assert_non_null(strstr(error_text(), "not a page of entries"));
}

/* Entries until the end or an error, which the next call repeats. */
static int count_entries(struct fixture *f, const struct manifest *m, const char *prefix, unsigned ahead,
                         struct paths *seen)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *c = NULL;
    const struct catalog_entry *e;
    int rc;
    *seen = (struct paths){.count = 0};
    assert_int_equal(catalog_cursor_new(f->store, m, prefix, strlen(prefix), ahead, &c), 0);
    while ((rc = catalog_cursor_next(c, &e)) == 1)
        see_path(seen, e);
    assert_int_equal(catalog_cursor_next(c, &e), rc);
    return rc;
}

static void test_catalog_cursor__fetching_ahead_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct manifest m = {.size = 4096};
    struct paths seen;
    put_catalog(f, &m);
    for (unsigned ahead = 0; ahead <= CATALOG_CURSOR_AHEAD + 1; ahead++) {
        assert_int_equal(count_entries(f, &m, "", ahead, &seen), 0);
        assert_int_equal(seen.count, PATHS + 1);
        assert_int_equal(count_entries(f, &m, "d07/", ahead, &seen), 0);
        assert_int_equal(seen.count, 100);
        assert_int_equal(count_entries(f, &m, "x", ahead, &seen), 0);
        assert_int_equal(seen.count, 0);
    }
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *early = NULL;
    const struct catalog_entry *e;
    assert_int_equal(catalog_cursor_new(f->store, &m, NULL, 0, CATALOG_CURSOR_AHEAD, &early), 0);
    assert_int_equal(catalog_cursor_next(early, &e), 1); /* and freed with pages in flight */
}

struct reading {
    struct fixture *f;
    struct manifest manifest;
    struct paths seen;
    atomic_uint gets;
    int rc;
};

static void *read_in_thread(void *arg)
{
    struct reading *r = arg;
    r->rc = count_entries(r->f, &r->manifest, "", CATALOG_CURSOR_AHEAD, &r->seen);
    return NULL;
}

/* What comes after the root is held. */
static void hold_pages(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct reading *r = arg;
    if (atomic_fetch_add(&r->gets, 1))
        store_fake_hold(f, FAKE_GET_SMALL);
}

static void test_catalog_cursor__fetches_a_bounded_number_of_pages_ahead(void **state)
{
    struct reading r = {.f = *state, .manifest = {.size = 4096}};
    pthread_t thread;
    put_catalog(r.f, &r.manifest);
    assert_int_equal(r.manifest.catalog_levels, 2);
    assert_true(store_fake_count(r.f->fake, "catalogs/") > CATALOG_CURSOR_AHEAD + 1);
    store_fake_reset_counters(r.f->fake);
    store_fake_set_hook(r.f->fake, hold_pages, &r);
    assert_int_equal(pthread_create(&thread, NULL, read_in_thread, &r), 0);
    store_fake_wait_held(r.f->fake, CATALOG_CURSOR_AHEAD);
    store_fake_set_hook(r.f->fake, NULL, NULL);
    store_fake_release(r.f->fake);
    pthread_join(thread, NULL);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.seen.count, PATHS + 1);
    assert_int_equal(store_fake_peak(r.f->fake), CATALOG_CURSOR_AHEAD);
}

static void test_catalog_cursor__a_failed_page_ends_it_where_it_stands(void **state)
{
    struct fixture *f = *state;
    struct manifest m = {.size = 4096};
    struct paths seen;
    put_catalog(f, &m);
    for (unsigned ahead = 0; ahead <= CATALOG_CURSOR_AHEAD; ahead += CATALOG_CURSOR_AHEAD) {
        /* the root and some pages arrive, the rest does not */
        store_fake_add_fault(f->fake, &(struct store_fake_fault){.op = FAKE_GET_SMALL, .skip = 4, .code = -EIO});
        assert_int_equal(count_entries(f, &m, "", ahead, &seen), -EIO);
        assert_true(seen.count < PATHS);
        assert_true(ahead || seen.count > 0);
        store_fake_clear_faults(f->fake);
    }
    m.catalog_root.b[0] ^= 1;
    assert_int_equal(count_entries(f, &m, "", CATALOG_CURSOR_AHEAD, &seen), -ENOENT);
    assert_int_equal(seen.count, 0);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_index_walk__covers_the_image_in_order),
        RUN(test_index_walk__fetches_a_bounded_number_of_leaves_ahead),
        RUN(test_index_walk__ends_where_it_should),
        RUN(test_catalog_walk__a_prefix_reads_only_its_pages),
        RUN(test_catalog_walk__names_every_base),
        RUN(test_catalog_walk__a_base_of_no_entries_is_damage),
        RUN(test_catalog_cursor__fetching_ahead_changes_nothing),
        RUN(test_catalog_cursor__fetches_a_bounded_number_of_pages_ahead),
        RUN(test_catalog_cursor__a_failed_page_ends_it_where_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
