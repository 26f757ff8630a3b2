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

static struct written write_catalog(struct nodes *nodes)
{
    struct written w = {.store = store_fake_new()};
    struct upload_config upload = {.store = store_fake_store(w.store), .threads = 2, .memory = 1 << 20};
    struct catalog_root root;
    assert_int_equal(nodes_end(nodes), 0);
    assert_int_equal(upload_new(&upload, &w.upload), 0);
    assert_int_equal(catalog_write(nodes, w.upload, &root), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog_writer__many_paths_make_levels),
        cmocka_unit_test(test_catalog_writer__a_single_full_page_is_the_root),
        cmocka_unit_test(test_catalog_writer__entries_say_what_the_nodes_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
