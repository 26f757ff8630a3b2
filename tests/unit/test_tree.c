/* The tree: names judged, the byte order of full paths, hard links, implicit directories. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "imagebuild/tree.h"

static struct tree *make(bool skip_bad_names, bool keep_special)
{
    struct tree_options options = {.skip_bad_names = skip_bad_names, .keep_special = keep_special};
    struct tree *t = NULL;
    assert_int_equal(tree_new(&options, &t), 0);
    return t;
}

static struct source_entry entry(const char *path, uint32_t mode)
{
    return (struct source_entry){.path = path, .path_len = strlen(path), .mode = mode, .size = 10, .mtime = 100};
}

static int add(struct tree *t, const char *path, uint32_t mode)
{
    struct source_entry e = entry(path, mode);
    return tree_add(t, &e);
}

static int add_file(struct tree *t, const char *path)
{
    return add(t, path, S_IFREG | 0644);
}

static int append_path(void *arg, struct tree *t, node_id id)
{
    CLEANUP_BYTES path = BYTES_INIT(1 << 17);
    assert_int_equal(tree_path(t, id, &path), 0);
    const char *kind = S_ISDIR(tree_node(t, id)->mode) ? "/" : "";
    return bytes_printf(arg, "%.*s%s\n", (int)path.len, (char *)path.data, kind);
}

/* All paths in order, a line each, directories with a slash. */
static void assert_walk(struct tree *t, const char *expected)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 20);
    assert_int_equal(tree_walk(t, append_path, &text), 0);
    assert_string_equal(bytes_string(&text), expected);
}

static node_id find(struct tree *t, const char *path)
{
    CLEANUP_BYTES full = BYTES_INIT(1 << 17);
    for (node_id id = 1; id < tree_count(t); id++) {
        assert_int_equal(tree_path(t, id, &full), 0);
        if (full.len == strlen(path) && !memcmp(full.data, path, full.len))
            return id;
    }
    fail_msg("no such path: %s", path);
    return NODE_NONE;
}

static void test_tree__walks_in_the_byte_order_of_full_paths(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    assert_int_equal(add_file(t, "a0"), 0);
    assert_int_equal(add_file(t, "a/x"), 0);
    assert_int_equal(add_file(t, "a.c"), 0);
    assert_int_equal(add_file(t, "a-/y"), 0);
    assert_int_equal(add_file(t, "a-b"), 0);
    assert_int_equal(add_file(t, "a/-/z"), 0);
    assert_int_equal(add_file(t, "a!"), 0);
    assert_int_equal(add_file(t, "\xff"), 0);
    assert_int_equal(add_file(t, "B"), 0);
    assert_int_equal(add_file(t, "c\xff"), 0);
    assert_int_equal(add_file(t, "c/x"), 0);
    assert_int_equal(tree_seal(t), 0);
    assert_walk(t, "/\nB\na/\na!\na-/\na-/y\na-b\na.c\na/-/\na/-/z\na/x\na0\nc/\nc/x\nc\xff\n\xff\n");
}

/* Random names over an alphabet around '/': the walk must be qsort's order of the paths. */
static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_next(void *arg, struct tree *t, node_id id)
{
    char ***next = arg;
    CLEANUP_BYTES path = BYTES_INIT(1 << 17);
    assert_int_equal(tree_path(t, id, &path), 0);
    if (S_ISDIR(tree_node(t, id)->mode))
        return 0;
    assert_string_equal(bytes_string(&path), **next);
    ++*next;
    return 0;
}

static void test_tree__random_paths_come_sorted(void **state)
{
    enum { COUNT = 3000 };
    static const char letters[] = ".-0a!";
    CLEANUP(cleanup_tree) struct tree *t = make(true, false);
    log_to(NULL, LOG_LEVEL_ERROR);
    char **paths = calloc(COUNT, sizeof *paths);
    size_t count = 0;
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        char text[64];
        size_t len = 0;
        for (int depth = rand() % 4; depth >= 0; depth--) {
            for (int n = rand() % 3; n >= 0; n--)
                text[len++] = letters[rand() % 5];
            text[len++] = depth ? '/' : 'F'; /* files end in F, directories do not */
        }
        text[len] = 0;
        struct tree_stats before = tree_stats(t);
        assert_int_equal(add_file(t, text), 0);
        if (tree_stats(t).names_skipped == before.names_skipped)
            paths[count++] = strdup(text);
    }
    log_to(NULL, LOG_LEVEL_INFO);
    assert_true(count > COUNT / 2);
    assert_int_equal(tree_seal(t), 0);
    qsort(paths, count, sizeof *paths, compare_strings);
    char **next = paths;
    assert_int_equal(tree_walk(t, check_next, &next), 0);
    assert_ptr_equal(next, paths + count);
    for (size_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
}

static void assert_refused(const char *path, size_t len, const char *sentence)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    struct source_entry e = entry(path, S_IFREG | 0644);
    e.path_len = len;
    assert_int_equal(tree_add(t, &e), -EINVAL);
    assert_non_null(strstr(error_text(), sentence));
    CLEANUP(cleanup_tree) struct tree *skipping = make(true, false);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(tree_add(skipping, &e), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(tree_stats(skipping).names_skipped, 1);
    assert_int_equal(tree_seal(skipping), 0);
    assert_walk(skipping, "/\n");
}

static void test_tree__names_that_no_filesystem_holds_are_refused_or_counted(void **state)
{
    static char text[70000];
    assert_refused("a//b", 4, "empty component");
    assert_refused("a//b", 4, "'a//b'");
    assert_refused("/a", 2, "empty component");
    assert_refused("a/", 2, "empty component");
    assert_refused("", 0, "empty component");
    assert_refused("x/./y", 5, "'x/./y'");
    assert_refused("..", 2, "'..'");
    assert_refused("a/../b", 6, "'a/../b'");
    assert_refused("a\0b", 3, "NUL");
    memset(text, 'n', 256);
    assert_refused(text, 256, "255 bytes");
    for (size_t i = 0; i < 65536; i++)
        text[i] = i % 2 ? '/' : 'x';
    assert_refused(text, 65537, "65535 bytes");
}

static void test_tree__the_longest_names_are_taken(void **state)
{
    static char text[65536];
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    memset(text, 'n', 255);
    assert_int_equal(add_file(t, text), 0);
    for (size_t i = 0; i < 65535; i++)
        text[i] = i % 2 ? '/' : 'x';
    assert_int_equal(add_file(t, text), 0);
    assert_int_equal(add_file(t, "..."), 0);
    assert_int_equal(tree_seal(t), 0);
    assert_int_equal(tree_stats(t).directories, 32768);
    CLEANUP_BYTES path = BYTES_INIT(65535);
    assert_int_equal(tree_path(t, tree_count(t) - 2, &path), 0);
    assert_int_equal(path.len, 65535);
    assert_memory_equal(path.data, text, 65535);
}

/* "a" beside "a/b" in every order of arrival. */
static void assert_conflict(const char *const *paths, const char *expected, unsigned skipped)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        CLEANUP(cleanup_tree) struct tree *t = make(true, false), *strict = make(false, false);
        int refused = 0;
        log_to(NULL, LOG_LEVEL_ERROR);
        for (int j = 0; j < 3; j++) {
            const char *path = paths[orders[i][j]];
            bool slash = path[strlen(path) - 1] == '/';
            struct source_entry e = entry(path, slash ? S_IFDIR | 0700 : S_IFREG | 0644);
            e.path_len -= slash;
            e.mtime = 100 + orders[i][j];
            assert_int_equal(tree_add(t, &e), 0);
            if (tree_add(strict, &e) == -EINVAL)
                refused++;
        }
        log_to(NULL, LOG_LEVEL_INFO);
        assert_true(refused >= 1);
        assert_int_equal(tree_seal(t), 0);
        assert_walk(t, expected);
        assert_int_equal(tree_stats(t).names_skipped, skipped);
        struct tree_stats stats = tree_stats(t);
        assert_int_equal(stats.files + stats.directories, tree_count(t));
        tree_free(steal_ptr(&strict));
    }
}

static void test_tree__the_directory_wins_in_any_order(void **state)
{
    assert_conflict((const char *const[]){"a", "a/b", "a/c"}, "/\na/\na/b\na/c\n", 1);
    assert_conflict((const char *const[]){"a", "a/b", "a/b/c"}, "/\na/\na/b/\na/b/c\n", 2);
    assert_conflict((const char *const[]){"a", "a/", "z"}, "/\na/\nz\n", 1);
    assert_conflict((const char *const[]){"a", "a/", "a/b"}, "/\na/\na/b\n", 1);
}

static void test_tree__a_conflict_names_the_key(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    assert_int_equal(add_file(t, "some/a"), 0);
    assert_int_equal(add_file(t, "some/a/b"), -EINVAL);
    assert_non_null(strstr(error_text(), "'some/a'"));
    CLEANUP(cleanup_tree) struct tree *other = make(false, false);
    assert_int_equal(add_file(other, "some/a/b"), 0);
    assert_int_equal(add_file(other, "some/a"), -EINVAL);
    assert_non_null(strstr(error_text(), "'some/a'"));
}

static void test_tree__a_file_listed_twice(void **state)
{
    for (int newer_first = 0; newer_first < 2; newer_first++) {
        CLEANUP(cleanup_tree) struct tree *t = make(true, false);
        log_to(NULL, LOG_LEVEL_ERROR);
        for (int i = 0; i < 2; i++) {
            struct source_entry e = entry("f", S_IFREG | 0644);
            e.mtime = i == newer_first ? 5 : 6;
            e.size = (uint64_t)e.mtime;
            assert_int_equal(tree_add(t, &e), 0);
        }
        log_to(NULL, LOG_LEVEL_INFO);
        assert_int_equal(tree_seal(t), 0);
        assert_int_equal(tree_node(t, find(t, "f"))->size, 6);
        assert_int_equal(tree_stats(t).files, 1);
        assert_int_equal(tree_stats(t).bytes, 6);
        assert_int_equal(tree_stats(t).names_skipped, 1);
    }
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    assert_int_equal(add_file(t, "f"), 0);
    assert_int_equal(add_file(t, "f"), -EINVAL);
    assert_non_null(strstr(error_text(), "twice"));
    assert_int_equal(add(t, "d", S_IFDIR | 0755), 0);
    assert_int_equal(add(t, "d", S_IFDIR | 0755), 0); /* "d/" and "d_$folder$" */
}

static void test_tree__implicit_directories_are_as_old_as_the_newest_below(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    struct source_entry e = entry("p/q/r", S_IFREG | 0600);
    e.mtime = -5;
    e.mtime_nsec = 999;
    assert_int_equal(tree_add(t, &e), 0);
    e = entry("p/q/s", S_IFREG | 0600);
    e.mtime = -5;
    e.mtime_nsec = 1000;
    assert_int_equal(tree_add(t, &e), 0);
    e = entry("listed/new", S_IFREG | 0600);
    e.mtime = 5000;
    assert_int_equal(tree_add(t, &e), 0);
    e = entry("listed", S_IFDIR | 0711);
    e.mtime = -4000;
    e.uid = 4000000000u;
    assert_int_equal(tree_add(t, &e), 0);
    assert_int_equal(tree_seal(t), 0);
    const struct node *p = tree_node(t, find(t, "p")), *listed = tree_node(t, find(t, "listed"));
    assert_int_equal(p->mtime, -5);
    assert_int_equal(p->mtime_nsec, 1000);
    assert_int_equal(p->mode, S_IFDIR | 0755);
    assert_int_equal(p->nlink, 3);
    assert_int_equal(listed->mtime, -4000);
    assert_int_equal(listed->mode, S_IFDIR | 0711);
    assert_int_equal(listed->uid, 4000000000u);
    assert_int_equal(tree_node(t, NODE_ROOT)->mtime, -5);
    assert_int_equal(tree_node(t, NODE_ROOT)->nlink, 4);
}

static void test_tree__hard_links_belong_to_the_first_name(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    static const char *const names[] = {"z", "m/b", "m", "a-x", "other"};
    for (size_t i = 0; i < 5; i++) {
        struct source_entry e = entry(names[i], i == 2 ? S_IFDIR | 0755 : S_IFREG | 0644);
        e.link_dev = 1;
        e.link_ino = i == 4 ? 8 : 7;
        assert_int_equal(tree_add(t, &e), 0);
    }
    assert_int_equal(tree_seal(t), 0);
    node_id first = find(t, "a-x");
    assert_int_equal(tree_node(t, find(t, "z"))->link, first);
    assert_int_equal(tree_node(t, find(t, "m/b"))->link, first);
    assert_int_equal(tree_node(t, first)->link, first);
    assert_int_equal(tree_node(t, first)->nlink, 3);
    assert_int_equal(tree_node(t, find(t, "other"))->nlink, 1);
    struct tree_stats stats = tree_stats(t);
    assert_int_equal(stats.hard_links, 2);
    assert_int_equal(stats.files, 2);
    assert_int_equal(stats.bytes, 20);
    assert_int_equal(stats.directories, 2);
    tree_drop(t, first);
    assert_walk(t, "/\nm/\nother\n");
    uint32_t count;
    (void)tree_children(t, find(t, "m"), &count);
    assert_int_equal(count, 0);
    assert_int_equal(tree_stats(t).hard_links, 0);
    assert_int_equal(tree_stats(t).bytes, 10);
}

static void test_tree__a_replaced_file_is_no_name_of_its_former_inode(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(true, false);
    static const struct {
        const char *path;
        uint64_t ino;
    } files[] = {{"f", 7}, {"f", 8}, {"g", 7}, {"h", 8}};
    log_to(NULL, LOG_LEVEL_ERROR);
    for (int i = 0; i < 4; i++) {
        struct source_entry e = entry(files[i].path, S_IFREG | 0644);
        e.mtime = i;
        e.link_dev = 1;
        e.link_ino = files[i].ino;
        assert_int_equal(tree_add(t, &e), 0);
    }
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(tree_seal(t), 0);
    assert_int_equal(tree_node(t, find(t, "g"))->link, find(t, "g"));
    assert_int_equal(tree_node(t, find(t, "h"))->link, find(t, "f"));
}

static void test_tree__a_cursor_survives_drops_behind_and_before_it(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "d/%02d", i);
        assert_int_equal(add_file(t, name), 0);
    }
    assert_int_equal(tree_seal(t), 0);
    struct tree_cursor *c;
    assert_int_equal(tree_cursor_new(t, &c), 0);
    assert_int_equal(tree_cursor_next(c), NODE_ROOT);
    (void)tree_cursor_next(c);
    unsigned seen = 0;
    for (node_id id; (id = tree_cursor_next(c)) != NODE_NONE; seen++)
        if (seen < 20) {
            tree_drop(t, id);                                                                     /* behind */
            tree_drop(t, find(t, (snprintf(name, sizeof name, "d/%02d", 99 - (int)seen), name))); /* ahead */
        }
    assert_int_equal(seen, 80);
    tree_cursor_free(c);
    uint32_t count;
    const node_id *children = tree_children(t, find(t, "d"), &count);
    assert_int_equal(count, 60);
    assert_memory_equal(tree_name(t, tree_node(t, children[0])), "20", 2);
    assert_memory_equal(tree_name(t, tree_node(t, children[59])), "79", 2);
}

static void test_tree__special_files_and_bits(void **state)
{
    for (int keep = 0; keep < 2; keep++) {
        CLEANUP(cleanup_tree) struct tree *t = make(false, keep);
        assert_int_equal(add(t, "suid", S_IFREG | 06755), 0);
        assert_int_equal(add(t, "sticky", S_IFDIR | 03777), 0);
        assert_int_equal(add(t, "fifo", S_IFIFO | 0644), 0);
        assert_int_equal(add(t, "socket", S_IFSOCK | 0644), 0);
        struct source_entry e = entry("disk", S_IFBLK | 0600);
        e.rdev = makedev(259, 70000);
        assert_int_equal(tree_add(t, &e), 0);
        assert_int_equal(tree_seal(t), 0);
        assert_int_equal(tree_node(t, find(t, "suid"))->mode, S_IFREG | (keep ? 06755 : 0755));
        assert_int_equal(tree_node(t, find(t, "sticky"))->mode, S_IFDIR | (keep ? 03777 : 01777));
        assert_int_equal(tree_stats(t).special_skipped, keep ? 0 : 3);
        assert_int_equal(tree_stats(t).others, keep ? 3 : 0);
        if (keep)
            assert_int_equal(tree_node(t, find(t, "disk"))->rdev, (70000 & 0xff) | 259 << 8 | (70000 & ~0xff) << 12);
    }
}

static void put_xattr(struct bytes *b, const char *name, const char *value, size_t value_len)
{
    uint8_t header[6];
    le16_put(header, (uint16_t)strlen(name));
    le32_put(header + 2, (uint32_t)value_len);
    assert_int_equal(bytes_append(b, header, 6), 0);
    assert_int_equal(bytes_append(b, name, strlen(name)), 0);
    assert_int_equal(bytes_append(b, value, value_len), 0);
}

static void test_tree__xattrs_are_sorted_and_the_unknown_counted(void **state)
{
    static const char big[40000];
    CLEANUP_BYTES list = BYTES_INIT(1 << 20), expected = BYTES_INIT(1 << 20);
    put_xattr(&list, "user.z", "1", 1);
    put_xattr(&list, "system.nfs4_acl", "x", 1);
    put_xattr(&list, "security.selinux", "label", 5);
    put_xattr(&list, "user.a", "", 0);
    put_xattr(&list, "user.", "no name", 7);
    put_xattr(&list, "system.posix_acl_access", "acl", 3);
    put_xattr(&list, "user.big1", big, sizeof big);
    put_xattr(&list, "user.big2", big, sizeof big);
    put_xattr(&expected, "system.posix_acl_access", "acl", 3);
    put_xattr(&expected, "user.a", "", 0);
    put_xattr(&expected, "user.big1", big, sizeof big);
    put_xattr(&expected, "user.z", "1", 1);
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    struct source_entry e = entry("f", S_IFLNK | 0777);
    e.target = "to/there";
    e.target_len = 8;
    e.validator = "v1";
    e.validator_len = 2;
    e.xattrs = list.data;
    e.xattrs_len = list.len;
    assert_int_equal(tree_add(t, &e), 0);
    assert_int_equal(tree_seal(t), 0);
    const struct node *n = tree_node(t, find(t, "f"));
    size_t len;
    assert_memory_equal(tree_target(t, n, &len), "to/there", 8);
    assert_int_equal(len, 8);
    assert_int_equal(n->size, 8);
    assert_memory_equal(tree_validator(t, n, &len), "v1", 2);
    const void *kept = tree_xattrs(t, n, &len);
    assert_int_equal(len, expected.len);
    assert_memory_equal(kept, expected.data, len);
    assert_int_equal(tree_stats(t).xattrs_skipped, 3);
    e.path = "g";
    e.xattrs_len = 5;
    CLEANUP(cleanup_tree) struct tree *other = make(false, false);
    assert_int_equal(tree_add(other, &e), -EINVAL);
}

static void test_tree__another_version_keeps_the_attributes(void **state)
{
    CLEANUP_BYTES list = BYTES_INIT(1000);
    put_xattr(&list, "user.k", "v", 1);
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    struct source_entry e = entry("f", S_IFREG | 0644);
    e.xattrs = list.data;
    e.xattrs_len = list.len;
    e.uid = 3;
    assert_int_equal(tree_add(t, &e), 0);
    assert_int_equal(tree_seal(t), 0);
    node_id id = find(t, "f");
    struct source_version v = {.size = 99, .mtime = 7, .mtime_nsec = 8, .validator = "new", .validator_len = 3};
    assert_int_equal(tree_set_version(t, id, &v), 0);
    const struct node *n = tree_node(t, id);
    size_t len;
    assert_int_equal(n->size, 99);
    assert_int_equal(n->uid, 3);
    assert_int_equal(n->mode, S_IFREG | 0644);
    assert_memory_equal(tree_validator(t, n, &len), "new", 3);
    assert_memory_equal((const uint8_t *)tree_xattrs(t, n, &len), list.data, list.len);
    assert_int_equal(tree_stats(t).bytes, 99);
    v.have_owner = true;
    v.mode = S_IFREG | 04600;
    v.uid = 70000;
    assert_int_equal(tree_set_version(t, id, &v), 0);
    assert_int_equal(n->mode, S_IFREG | 0600);
    assert_int_equal(n->uid, 70000);
}

static void test_tree__an_empty_tree_is_a_root(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    assert_int_equal(tree_seal(t), 0);
    assert_walk(t, "/\n");
    assert_int_equal(tree_node(t, NODE_ROOT)->mtime, 0);
    assert_int_equal(tree_node(t, NODE_ROOT)->nlink, 2);
}

/* The design's limit: a million files within 200 MB, the sealed tree. mallinfo2 sees what malloc
 * gave; sanitizers replace it, so the figure is only checked where it means something. */
static void test_tree__a_million_files_stay_under_200_mb(void **state)
{
    CLEANUP(cleanup_tree) struct tree *t = make(false, false);
    struct mallinfo2 before = mallinfo2();
    char path[64];
    for (unsigned i = 0; i < 1000000; i++) {
        snprintf(path, sizeof path, "directory-%04u/file-%019u", i / 1000, i);
        struct source_entry e = entry(path, S_IFREG | 0644);
        e.size = 0;
        e.validator = "0-188a3f7c2e5b1a00-188a3f7c2e5b1a00-1a2b3c4d";
        e.validator_len = strlen(e.validator);
        assert_int_equal(tree_add(t, &e), 0);
    }
    assert_int_equal(tree_seal(t), 0);
    struct mallinfo2 after = mallinfo2();
    size_t used = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    assert_int_equal(tree_count(t), 1001001);
    print_message("a million files: %zu MB\n", used / 1000000);
    assert_true(used < 200000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree__walks_in_the_byte_order_of_full_paths),
        cmocka_unit_test(test_tree__random_paths_come_sorted),
        cmocka_unit_test(test_tree__names_that_no_filesystem_holds_are_refused_or_counted),
        cmocka_unit_test(test_tree__the_longest_names_are_taken),
        cmocka_unit_test(test_tree__the_directory_wins_in_any_order),
        cmocka_unit_test(test_tree__a_conflict_names_the_key),
        cmocka_unit_test(test_tree__a_file_listed_twice),
        cmocka_unit_test(test_tree__implicit_directories_are_as_old_as_the_newest_below),
        cmocka_unit_test(test_tree__hard_links_belong_to_the_first_name),
        cmocka_unit_test(test_tree__a_replaced_file_is_no_name_of_its_former_inode),
        cmocka_unit_test(test_tree__a_cursor_survives_drops_behind_and_before_it),
        cmocka_unit_test(test_tree__special_files_and_bits),
        cmocka_unit_test(test_tree__xattrs_are_sorted_and_the_unknown_counted),
        cmocka_unit_test(test_tree__another_version_keeps_the_attributes),
        cmocka_unit_test(test_tree__an_empty_tree_is_a_root),
        cmocka_unit_test(test_tree__a_million_files_stay_under_200_mb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
