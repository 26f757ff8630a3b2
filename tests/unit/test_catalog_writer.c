/* Catalogs of trees, read back through the store's own walk. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fake/store_fake.h"
#include "imagebuild/catalog_writer.h"
#include "store/catalog_read.h"

static struct tree *new_tree(void)
{
    struct tree *t;
    struct tree_options options = {.keep_special = true};
    assert_int_equal(tree_new(&options, &t), 0);
    return t;
}

static void add(struct tree *t, const char *path, uint32_t mode, uint64_t size, uint64_t ino)
{
    struct source_entry e = {.path = path,
                             .path_len = strlen(path),
                             .mode = mode,
                             .size = size,
                             .mtime = -7,
                             .mtime_nsec = 5,
                             .uid = 70000,
                             .validator = "etag",
                             .validator_len = 4,
                             .link_dev = ino ? 1 : 0,
                             .link_ino = ino};
    if (S_ISLNK(mode)) {
        e.target = "else/where";
        e.target_len = e.size = 10;
    }
    assert_int_equal(tree_add(t, &e), 0);
}

struct written {
    struct store_fake *store;
    struct upload *upload;
    struct manifest manifest; /* as far as catalog_walk needs it */
};

static struct written write_catalog(struct tree *t)
{
    struct written w = {.store = store_fake_new()};
    struct upload_config upload = {.store = store_fake_store(w.store), .threads = 2, .memory = 1 << 20};
    struct catalog_root root;
    assert_int_equal(upload_new(&upload, &w.upload), 0);
    assert_int_equal(catalog_write(t, w.upload, &root), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    w.manifest = (struct manifest){.catalog_levels = root.levels,
                                   .catalog_root = root.digest,
                                   .catalog_len = root.len,
                                   .catalog_crc = root.crc,
                                   .catalog_entries = root.entries};
    return w;
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
    struct tree *t = new_tree();
    char path[64];
    for (unsigned i = 0; i < 30000; i++) {
        snprintf(path, sizeof path, "d%u/f%u", i % 100, i);
        add(t, path, S_IFREG | 0644, 0, 0);
    }
    assert_int_equal(tree_seal(t), 0);
    struct written w = write_catalog(t);
    struct seen seen = {0};
    assert_true(w.manifest.catalog_levels >= 2);
    assert_int_equal(w.manifest.catalog_entries, 30101);
    assert_int_equal(catalog_walk(store_fake_store(w.store), &w.manifest, NULL, 0, see, &seen), 0);
    assert_int_equal(seen.count, 30101);
    assert_true(store_fake_count(w.store, "catalogs/") > 10);
    written_free(&w);
    tree_free(t);
}

/* Whichever path a page happens to end behind, one page is a catalog of one level. */
static void test_catalog_writer__a_single_full_page_is_the_root(void **state)
{
    char path[64];
    for (unsigned i = 0; i < 4000; i++) {
        struct tree *t = new_tree();
        snprintf(path, sizeof path, "path number %u", i);
        add(t, path, S_IFREG | 0644, 0, 0);
        assert_int_equal(tree_seal(t), 0);
        struct written w = write_catalog(t);
        assert_int_equal(w.manifest.catalog_levels, 1);
        assert_int_equal(w.manifest.catalog_entries, 2);
        written_free(&w);
        tree_free(t);
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
            assert_memory_equal(e->target, "a/first", e->target_len);
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

static void test_catalog_writer__entries_say_what_the_tree_says(void **state)
{
    struct tree *t = new_tree();
    unsigned found = 0;
    add(t, "b/second", S_IFREG | 0600, 100, 55);
    add(t, "a/first", S_IFREG | 0600, 100, 55);
    add(t, "link", S_IFLNK | 0777, 0, 0);
    assert_int_equal(tree_seal(t), 0);
    for (node_id id = 0; id < tree_count(t); id++)
        if (S_ISREG(tree_node(t, id)->mode) && tree_node(t, id)->link == id)
            tree_node(t, id)->address = 8192;
    struct written w = write_catalog(t);
    assert_int_equal(catalog_walk(store_fake_store(w.store), &w.manifest, NULL, 0, check_kinds, &found), 0);
    assert_int_equal(found, 6);
    written_free(&w);
    tree_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog_writer__many_paths_make_levels),
        cmocka_unit_test(test_catalog_writer__a_single_full_page_is_the_root),
        cmocka_unit_test(test_catalog_writer__entries_say_what_the_tree_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
