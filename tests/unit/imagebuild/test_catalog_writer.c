/* Catalogs of nodes, read back through the store's own walk. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fake/store_fake.h"
#include "imagebuild/sink/catalog_writer.h"
#include "repository/read/catalog_read.h"

/* Nodes written by hand: paths ascend, ranks are counted. */
struct maker {
    struct nodes *nodes;
    uint32_t rank;
};

static struct node node_of(const char *path, uint32_t mode)
{
    return (struct node){.mode = (uint16_t)mode, .path = path, .path_len = strlen(path), .mtime = -7, .mtime_nsec = 5};
}

/* Returns its rank. n->link != 0: the first name's. */
static uint32_t add(struct maker *m, struct node n)
{
    n.rank = m->rank++;
    n.link = n.link ? n.link : n.rank;
    assert_int_equal(nodes_add(m->nodes, &n), 0);
    return n.rank;
}

static struct maker make(void)
{
    struct maker m = {0};
    struct scratch_config scratch = {0};
    assert_int_equal(nodes_new(&scratch, &m.nodes), 0);
    add(&m, node_of("", S_IFDIR | 0755));
    return m;
}

struct written {
    struct store_fake *store;
    struct upload *upload;
    struct manifest manifest; /* as far as catalog_walk needs it */
};

/* Into the store of `before`, upon its catalog; NULL: into a new one, in full. */
static struct written write_upon(struct nodes *nodes, const struct written *before)
{
    struct written w = {.store = before ? before->store : store_fake_new()};
    CLEANUP(cleanup_catalog_bases) struct catalog_bases *bases = NULL;
    if (before)
        assert_int_equal(catalog_bases_new(store_fake_store(w.store), &before->manifest, &bases), 0);
    struct upload_config upload = {.store = store_fake_store(w.store), .threads = 2, .memory = 1 << 20};
    struct catalog_root root;
    assert_int_equal(nodes_end(nodes), 0);
    assert_int_equal(upload_new(&upload, &w.upload), 0);
    assert_int_equal(catalog_write(nodes, bases, w.upload, &root), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    w.manifest = (struct manifest){.catalog_levels = root.levels,
                                   .catalog_root = root.digest,
                                   .catalog_len = root.len,
                                   .catalog_crc = root.crc,
                                   .catalog_entries = root.entries};
    return w;
}

static struct written write_catalog(struct nodes *nodes)
{
    return write_upon(nodes, NULL);
}

static void written_free(struct written *w)
{
    upload_free(w->upload);
    store_fake_free(w->store);
}

struct seen {
    uint64_t count;
    char last[300];
};

static int see(void *arg, const struct catalog_entry *e)
{
    struct seen *s = arg;
    char path[300];
    snprintf(path, sizeof path, "%.*s", (int)e->path_len, e->path);
    assert_true(!s->count || strcmp(s->last, path) < 0);
    strcpy(s->last, path);
    s->count++;
    return 0;
}

static void test_catalog_writer__many_paths_make_levels(void **state)
{
    struct maker m = make();
    char path[64];
    for (unsigned i = 0; i < 30000; i++) {
        snprintf(path, sizeof path, "d%02u", i / 300);
        if (i % 300 == 0)
            add(&m, node_of(path, S_IFDIR | 0755));
        snprintf(path, sizeof path, "d%02u/f%05u", i / 300, i);
        add(&m, node_of(path, S_IFREG | 0644));
    }
    struct written w = write_catalog(m.nodes);
    struct seen seen = {0};
    assert_true(w.manifest.catalog_levels >= 2);
    assert_int_equal(w.manifest.catalog_entries, 30101);
    assert_int_equal(catalog_walk(store_fake_store(w.store), &w.manifest, NULL, 0, see, &seen), 0);
    assert_int_equal(seen.count, 30101);
    assert_true(store_fake_count(w.store, "catalogs/") > 10);
    written_free(&w);
    nodes_free(m.nodes);
}

/* Whichever path a page happens to end after, one page is a catalog of one level. */
static void test_catalog_writer__a_single_full_page_is_the_root(void **state)
{
    char path[64];
    for (unsigned i = 0; i < 4000; i++) {
        struct maker m = make();
        snprintf(path, sizeof path, "path number %u", i);
        add(&m, node_of(path, S_IFREG | 0644));
        struct written w = write_catalog(m.nodes);
        assert_int_equal(w.manifest.catalog_levels, 1);
        assert_int_equal(w.manifest.catalog_entries, 2);
        written_free(&w);
        nodes_free(m.nodes);
    }
}

static int check_kinds(void *arg, const struct catalog_entry *e)
{
    unsigned *found = arg;
    char path[64];
    snprintf(path, sizeof path, "%.*s", (int)e->path_len, e->path);
    if (!strcmp(path, "a/first") || !strcmp(path, "b/second")) {
        assert_int_equal(e->hard_link, path[0] == 'b');
        assert_int_equal(e->extent_count, 1);
        assert_int_equal(e->extents[0].offset, 8192);
        assert_int_equal(e->extents[0].len, 100);
        assert_int_equal(e->size, 100);
        assert_int_equal(e->mtime, -7);
        assert_int_equal(e->uid, 70000);
        assert_memory_equal(e->validator, "etag", 4);
        if (e->hard_link)
            assert_memory_equal(e->target, "a/first", 7);
        ++*found;
    } else if (!strcmp(path, "link")) {
        assert_int_equal(e->target_len, 10);
        assert_int_equal(e->extent_count, 0);
        ++*found;
    } else if (S_ISDIR(e->mode)) {
        assert_int_equal(e->size, 0);
        assert_int_equal(e->validator_len, 0);
        ++*found;
    }
    return 0;
}

static void test_catalog_writer__entries_say_what_the_nodes_say(void **state)
{
    struct maker m = make();
    unsigned found = 0;
    struct node file = node_of("a/first", S_IFREG | 0600);
    file.size = 100;
    file.address = 8192;
    file.uid = 70000;
    file.linked = true;
    file.validator = "etag";
    file.validator_len = 4;
    add(&m, node_of("a", S_IFDIR | 0755));
    file.link = add(&m, file);
    add(&m, node_of("b", S_IFDIR | 0755));
    file.target = file.path;
    file.target_len = file.path_len;
    file.path = "b/second";
    file.path_len = 8;
    add(&m, file);
    struct node link = node_of("link", S_IFLNK | 0777);
    link.target = "else/where";
    link.target_len = link.size = 10;
    add(&m, link);
    struct written w = write_catalog(m.nodes);
    assert_int_equal(catalog_walk(store_fake_store(w.store), &w.manifest, NULL, 0, check_kinds, &found), 0);
    assert_int_equal(found, 6);
    written_free(&w);
    nodes_free(m.nodes);
}

enum { DAILY = 3000 };

/* On day d, files with a number of 100 x + 1 .. 100 x + d have another version; one in `added` has a new neighbour
 * (0: none), and one in `gone` is not there (0: none). */
static struct nodes *daily_nodes(unsigned day, unsigned added, unsigned gone)
{
    struct maker m = make();
    char path[64];
    for (unsigned i = 0; i < DAILY; i++) {
        snprintf(path, sizeof path, "d%02u", i / 300);
        if (i % 300 == 0)
            add(&m, node_of(path, S_IFDIR | 0755));
        if (gone && i % gone == 7)
            continue;
        snprintf(path, sizeof path, "d%02u/f%05u", i / 300, i);
        struct node file = node_of(path, S_IFREG | 0644);
        uint32_t version[] = {i, i % 100 && i % 100 <= day};
        file.size = 1;
        file.content = digest_of(version, sizeof version);
        add(&m, file);
        if (added && i % added == 3) {
            strcat(path, "-new");
            add(&m, node_of(path, S_IFREG | 0644));
        }
    }
    return m.nodes;
}

/* A digest of all that a catalog says. */
static int digest_entry(void *arg, const struct catalog_entry *e)
{
    struct digest *sum = arg;
    struct {
        struct digest before, path, content;
        uint64_t size;
    } all = {*sum, digest_of(e->path, e->path_len), e->content, e->size};
    *sum = digest_of(&all, sizeof all);
    return 0;
}

static struct digest digest_catalog(const struct written *w)
{
    struct digest sum = {0};
    assert_int_equal(catalog_walk(store_fake_store(w->store), &w->manifest, NULL, 0, digest_entry, &sum), 0);
    return sum;
}

/* The day's catalog, upon `before`, says what one says that is written in full. */
static struct written write_day(const struct written *before, unsigned day, unsigned added, unsigned gone)
{
    struct nodes *nodes = daily_nodes(day, added, gone), *again = daily_nodes(day, added, gone);
    struct written w = write_upon(nodes, before), full = write_catalog(again);
    struct digest upon = digest_catalog(&w), alone = digest_catalog(&full);
    assert_true(digest_equal(&upon, &alone));
    written_free(&full);
    nodes_free(nodes);
    nodes_free(again);
    return w;
}

/* Bytes that a write sent. */
static uint64_t sent(const struct written *w)
{
    return upload_counts(w->upload).bytes;
}

static void test_catalog_writer__spread_changes_cost_little(void **state)
{
    struct written first = write_day(NULL, 0, 0, 0), day = write_day(&first, 1, 0, 0), same = write_day(&day, 1, 0, 0);
    /* 1 % of the files, spread: every page changes */
    assert_in_range(sent(&day), 1, sent(&first) * 3 / 100);
    /* nothing changes: the same catalog, though its pages are deltas */
    assert_int_equal(sent(&same), 0);
    assert_true(digest_equal(&same.manifest.catalog_root, &day.manifest.catalog_root));
    /* back to the first day: its very pages */
    struct written back = write_day(&day, 0, 0, 0);
    assert_int_equal(sent(&back), 0);
    assert_true(digest_equal(&back.manifest.catalog_root, &first.manifest.catalog_root));
    /* paths come and go, and with them borders of pages */
    struct written moved = write_day(&day, 2, 500, 300);
    assert_in_range(sent(&moved), 1, sent(&first) / 5);
    upload_free(same.upload);
    upload_free(back.upload);
    upload_free(moved.upload);
    upload_free(day.upload);
    written_free(&first);
}

/* The only page of a catalog is its top, which is no delta: nothing could name its base. */
static void test_catalog_writer__the_only_page_is_no_delta(void **state)
{
    struct written first = {.store = NULL};
    for (unsigned day = 0; day < 2; day++) {
        struct maker m = make();
        for (unsigned i = 0; i < 50; i++) {
            char path[64];
            uint32_t version[] = {i, day && i == 7};
            snprintf(path, sizeof path, "file %02u", i);
            struct node file = node_of(path, S_IFREG | 0644);
            file.size = 1;
            file.content = digest_of(version, sizeof version);
            add(&m, file);
        }
        struct written w = write_upon(m.nodes, day ? &first : NULL);
        assert_int_equal(w.manifest.catalog_levels, 1);
        struct digest says = digest_catalog(&w); /* fails for a delta */
        assert_false(digest_is_zero(&says));
        nodes_free(m.nodes);
        if (day)
            upload_free(w.upload);
        else
            first = w;
    }
    written_free(&first);
}

/* A base is never a delta, however many days go by; and pages are written in full before their deltas grow as large as
 * the changes of all days. */
static void test_catalog_writer__deltas_do_not_form_chains(void **state)
{
    struct written first = write_day(NULL, 0, 0, 0), last = first;
    for (unsigned day = 2; day < 40; day += 6) {
        struct written next = write_day(&last, day, 0, 0); /* reading a chain would fail */
        if (day > 2)
            upload_free(last.upload);
        last = next;
    }
    /* the changes since the first day alone would be more than a third of it */
    assert_in_range(sent(&last), 1, sent(&first) / 5);
    upload_free(last.upload);
    written_free(&first);
}

/* The base belongs to the new image: it is looked for before the image is published. */
static void test_catalog_writer__a_base_that_vanishes_is_noticed(void **state)
{
    struct written first = write_day(NULL, 0, 0, 0), day = write_day(&first, 1, 0, 0);
    char key[OBJECT_KEY_MAX];
    assert_int_equal(upload_check_present(day.upload, false), 0);
    struct catalog_bases *bases;
    struct catalog_base base;
    assert_int_equal(catalog_bases_new(store_fake_store(day.store), &day.manifest, &bases), 0);
    assert_int_equal(catalog_bases_at(bases, "d50/", 4, &base), 1);
    assert_true(store_fake_remove(day.store, object_key(OBJECT_CATALOG, &base.name, key)));
    catalog_bases_free(bases);
    assert_int_equal(upload_check_present(day.upload, false), -EAGAIN);
    assert_non_null(strstr(error_text(), key));
    upload_free(day.upload);
    written_free(&first);
}

/* A parent's page that cannot be read costs bytes, not the build. */
static void test_catalog_writer__without_a_base_pages_are_full(void **state)
{
    struct written first = write_day(NULL, 0, 0, 0);
    store_fake_add_fault(first.store, &(struct store_fake_fault){
                                          .op = FAKE_GET_SMALL, .key_prefix = "catalogs/", .skip = 2, .code = -EIO});
    struct nodes *nodes = daily_nodes(1, 0, 0);
    struct written day = write_upon(nodes, &first);
    store_fake_clear_faults(first.store);
    struct written full = write_day(NULL, 1, 0, 0);
    struct digest a = digest_catalog(&day), b = digest_catalog(&full);
    assert_true(digest_equal(&a, &b));
    assert_true(sent(&day) > sent(&first) / 2);
    nodes_free(nodes);
    written_free(&full);
    upload_free(day.upload);
    written_free(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog_writer__many_paths_make_levels),
        cmocka_unit_test(test_catalog_writer__a_single_full_page_is_the_root),
        cmocka_unit_test(test_catalog_writer__entries_say_what_the_nodes_say),
        cmocka_unit_test(test_catalog_writer__spread_changes_cost_little),
        cmocka_unit_test(test_catalog_writer__the_only_page_is_no_delta),
        cmocka_unit_test(test_catalog_writer__deltas_do_not_form_chains),
        cmocka_unit_test(test_catalog_writer__a_base_that_vanishes_is_noticed),
        cmocka_unit_test(test_catalog_writer__without_a_base_pages_are_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
