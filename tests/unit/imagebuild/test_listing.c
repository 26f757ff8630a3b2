/* The listing: names judged, the byte order of full paths, hard links, implicit directories; whatever the order in
 * which paths come, and whether they were sorted in memory or not. */
#include "imagebuild/tree/listing.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "format/catalog.h"
#include "unit/cmocka_all.h"

static struct listing *make(bool skip_bad_names, bool keep_special)
{
    struct listing_options options = {.skip_bad_names = skip_bad_names, .keep_special = keep_special};
    struct listing *l = NULL;
    assert_int_equal(listing_new(&options, &l), 0);
    return l;
}

static struct source_entry entry(const char *path, uint32_t mode)
{
    return (struct source_entry){.path = path, .path_len = strlen(path), .mode = mode, .size = 10, .mtime = 100};
}

static int add(struct listing *l, const char *path, uint32_t mode)
{
    struct source_entry e = entry(path, mode);
    return listing_add(l, &e);
}

static int add_file(struct listing *l, const char *path)
{
    return add(l, path, S_IFREG | 0644);
}

static struct nodes *seal(struct listing *l)
{
    struct nodes *n = NULL;
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(listing_seal(l, &n), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    return n;
}

static struct nodes_cursor *cursor(const struct nodes *n)
{
    struct nodes_cursor *c = NULL;
    assert_int_equal(nodes_cursor_new(n, &c), 0);
    return c;
}

/* All paths in order, a line each, directories with a slash. Ranks count from 0, and each parent is the directory the
 * path says. */
static void assert_paths(struct nodes *nodes, const char *expected)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 20);
    char *paths[100];
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(nodes);
    struct node n;
    uint32_t rank = 0;
    for (int rc; (rc = nodes_next(c, &n)); rank++) {
        assert_int_equal(rc, 1);
        assert_int_equal(n.rank, rank);
        assert_true(rank < 100 && n.parent <= rank);
        paths[rank] = strndup(n.path, n.path_len);
        if (rank) {
            size_t parent_len = n.path_len > n.name_len ? n.path_len - n.name_len - 1 : 0;
            assert_int_equal(strlen(paths[n.parent]), parent_len);
            assert_memory_equal(paths[n.parent], n.path, parent_len);
        }
        assert_int_equal(bytes_printf(&text, "%s%s\n", paths[rank], S_ISDIR(n.mode) ? "/" : ""), 0);
    }
    for (uint32_t i = 0; i < rank; i++)
        free(paths[i]);
    assert_string_equal(bytes_string(&text), expected);
}

/* What its cursor points at must not be read any more: check the numbers only. */
static struct node find(const struct nodes *nodes, const char *path)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(nodes);
    struct node n = {0};
    while (nodes_next(c, &n) == 1)
        if (n.path_len == strlen(path) && !memcmp(n.path, path, n.path_len))
            return n;
    fail_msg("no such path: %s", path);
    return n;
}

static void test_listing__walks_in_the_byte_order_of_full_paths(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    static const char *const files[] = {"a0", "a/x", "a.c", "a-/y", "a-b", "a/-/z", "a!", "\xff", "B", "c\xff", "c/x"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(files); i++)
        assert_int_equal(add_file(l, files[i]), 0);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    assert_paths(n, "/\nB\na/\na!\na-/\na-/y\na-b\na.c\na/-/\na/-/z\na/x\na0\nc/\nc/x\nc\xff\n\xff\n");
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Random names over an alphabet around '/': the files must come in qsort's order of the paths. */
static void check_random(size_t sort_memory)
{
    enum { COUNT = 3000 };
    static const char letters[] = ".-0a!";
    struct listing_options options = {.skip_bad_names = true, .sort_memory = sort_memory};
    CLEANUP(cleanup_listing) struct listing *l = NULL;
    assert_int_equal(listing_new(&options, &l), 0);
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
        uint64_t before = listing_stats(l).names_skipped;
        assert_int_equal(add_file(l, text), 0);
        if (listing_stats(l).names_skipped == before)
            paths[count++] = strdup(text);
    }
    CLEANUP(cleanup_nodes) struct nodes *nodes = seal(l);
    assert_true(count > COUNT / 2);
    qsort(paths, count, sizeof *paths, compare_strings);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(nodes);
    struct node n;
    size_t i = 0, twice = 0;
    while (nodes_next(c, &n) == 1) {
        if (S_ISDIR(n.mode))
            continue;
        assert_true(i < count && n.path_len == strlen(paths[i]));
        assert_memory_equal(n.path, paths[i], n.path_len);
        for (i++; i < count && !strcmp(paths[i], paths[i - 1]); i++)
            twice++;
    }
    assert_int_equal(i, count);
    assert_true(twice);
    assert_int_equal(listing_stats(l).files, count - twice);
    assert_int_equal(listing_stats(l).names_skipped, COUNT - count + twice);
    for (i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
}

static void test_listing__random_paths_come_sorted(void **state)
{
    check_random(0);
    check_random(10000);
}

static void assert_refused(const char *path, size_t len, const char *sentence)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false), *skipping = make(true, false);
    struct source_entry e = entry(path, S_IFREG | 0644);
    e.path_len = len;
    assert_int_equal(listing_add(l, &e), -EINVAL);
    assert_non_null(strstr(error_text(), sentence));
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(listing_add(skipping, &e), 0);
    assert_int_equal(listing_stats(skipping).names_skipped, 1);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(skipping);
    assert_paths(n, "/\n");
}

static void test_listing__names_that_no_filesystem_holds_are_refused_or_counted(void **state)
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

static void test_listing__the_longest_names_are_taken(void **state)
{
    static char text[CATALOG_PATH_MAX + 1];
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    memset(text, 'n', 255);
    assert_int_equal(add_file(l, text), 0);
    for (size_t i = 0; i < CATALOG_PATH_MAX; i++)
        text[i] = i % 256 == 255 ? '/' : 'x';
    assert_int_equal(add_file(l, text), 0);
    for (size_t i = 0; i < 4000; i++)
        text[i] = i % 2 ? '/' : 'y';
    text[3999] = 0;
    assert_int_equal(add_file(l, text), 0);
    assert_int_equal(add_file(l, "..."), 0);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    assert_int_equal(listing_stats(l).directories, 1 + 255 + 1999);
    assert_int_equal(listing_stats(l).files, 4);
}

/* "a" beside "a/b" in every order of arrival. */
static void assert_conflict(const char *const *paths, const char *expected, unsigned skipped)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        CLEANUP(cleanup_listing) struct listing *l = make(true, false), *strict = make(false, false);
        for (int j = 0; j < 3; j++) {
            const char *path = paths[orders[i][j]];
            bool slash = path[strlen(path) - 1] == '/';
            struct source_entry e = entry(path, slash ? S_IFDIR | 0700 : S_IFREG | 0644);
            e.path_len -= slash;
            e.mtime = 100 + orders[i][j];
            assert_int_equal(listing_add(l, &e), 0);
            assert_int_equal(listing_add(strict, &e), 0);
        }
        CLEANUP(cleanup_nodes) struct nodes *n = seal(l), *none = NULL;
        assert_paths(n, expected);
        struct listing_stats stats = listing_stats(l);
        assert_int_equal(stats.names_skipped, skipped);
        assert_int_equal(stats.files + stats.directories, nodes_count(n));
        assert_int_equal(listing_seal(strict, &none), -EINVAL);
        assert_non_null(strstr(error_text(), "the name of a directory: 'a"));
    }
}

static void test_listing__the_directory_wins_in_any_order(void **state)
{
    assert_conflict((const char *const[]){"a", "a/b", "a/c"}, "/\na/\na/b\na/c\n", 1);
    assert_conflict((const char *const[]){"a", "a/b", "a/b/c"}, "/\na/\na/b/\na/b/c\n", 2);
    assert_conflict((const char *const[]){"a", "a/", "z"}, "/\na/\nz\n", 1);
    assert_conflict((const char *const[]){"a", "a/", "a/b"}, "/\na/\na/b\n", 1);
    assert_conflict((const char *const[]){"a", "a-b", "a/b"}, "/\na/\na-b\na/b\n", 1);
}

/* Files and directories of one path in any order; equal times too. */
static void test_listing__the_newer_one_counts(void **state)
{
    for (int newer_first = 0; newer_first < 2; newer_first++) {
        CLEANUP(cleanup_listing) struct listing *l = make(true, false);
        for (int i = 0; i < 2; i++) {
            bool newer = i != newer_first;
            struct source_entry e = entry("f", S_IFREG | 0644);
            e.mtime = newer ? 6 : 5;
            e.size = (uint64_t)e.mtime;
            assert_int_equal(listing_add(l, &e), 0);
            e = entry("same-time", S_IFREG | 0644);
            e.validator = newer ? "b" : "a";
            e.validator_len = 1;
            e.size = newer ? 1 : 2;
            assert_int_equal(listing_add(l, &e), 0);
            e = entry("same-everything", S_IFREG | 0644);
            e.size = newer ? 4 : 3;
            assert_int_equal(listing_add(l, &e), 0);
            e = entry("d", S_IFDIR | (newer ? 0711 : 0700)); /* "d/" and "d_$folder$" */
            e.mtime_nsec = newer;
            assert_int_equal(listing_add(l, &e), 0);
        }
        CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
        assert_int_equal(find(n, "f").size, 6);
        assert_int_equal(find(n, "same-time").size, 1);
        assert_int_equal(find(n, "same-everything").size, 4);
        assert_int_equal(find(n, "d").mode, S_IFDIR | 0711);
        assert_int_equal(listing_stats(l).files, 3);
        assert_int_equal(listing_stats(l).bytes, 11);
        assert_int_equal(listing_stats(l).names_skipped, 3);
    }
    CLEANUP(cleanup_listing) struct listing *strict = make(false, false);
    assert_int_equal(add(strict, "d", S_IFDIR | 0755), 0);
    assert_int_equal(add(strict, "d", S_IFDIR | 0755), 0);
    assert_int_equal(add_file(strict, "f"), 0);
    assert_int_equal(add_file(strict, "f"), 0);
    CLEANUP(cleanup_nodes) struct nodes *none = NULL;
    assert_int_equal(listing_seal(strict, &none), -EINVAL);
    assert_non_null(strstr(error_text(), "twice: 'f'"));
}

static void test_listing__implicit_directories_belong_to_whom_the_options_say(void **state)
{
    struct listing_options options = {.directory = {.uid = 1000, .gid = 70000, .mode = 0750}};
    CLEANUP(cleanup_listing) struct listing *l = NULL;
    struct node root, made, listed;
    assert_int_equal(listing_new(&options, &l), 0);
    assert_int_equal(add_file(l, "made/x"), 0);
    assert_int_equal(add(l, "listed", S_IFDIR | 0700), 0);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(n);
    assert_int_equal(nodes_next(c, &root), 1);
    assert_int_equal(root.mode, S_IFDIR | 0750);
    assert_int_equal(nodes_next(c, &listed), 1);
    assert_int_equal(listed.mode, S_IFDIR | 0700);
    assert_int_equal(listed.uid, 0);
    assert_int_equal(nodes_next(c, &made), 1);
    assert_int_equal(made.mode, S_IFDIR | 0750);
    assert_int_equal(made.uid, 1000);
    assert_int_equal(made.gid, 70000);
}

static void test_listing__implicit_directories_are_as_old_as_the_newest_below(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    static const struct {
        const char *path;
        uint32_t mode;
        int64_t mtime;
        uint32_t nsec;
    } entries[] = {
        {"p/q/r", S_IFREG | 0600, -5, 999},      {"p/q/s", S_IFREG | 0600, -5, 1000},
        {"listed/new", S_IFREG | 0600, 5000, 0}, {"listed", S_IFDIR | 0711, -4000, 0},
        {"p-", S_IFREG | 0600, -7, 0},           {"old/x/y", S_IFREG | 0600, -9, 0},
        {"old", S_IFDIR | 0755, -6, 3},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(entries); i++) {
        struct source_entry e = entry(entries[i].path, entries[i].mode);
        e.mtime = entries[i].mtime;
        e.mtime_nsec = entries[i].nsec;
        e.uid = 4000000000u;
        assert_int_equal(listing_add(l, &e), 0);
    }
    CLEANUP(cleanup_nodes) struct nodes *nodes = seal(l);
    struct node p = find(nodes, "p"), listed = find(nodes, "listed"), root = find(nodes, ""), x = find(nodes, "old/x");
    assert_int_equal(p.mtime, -5);
    assert_int_equal(p.mtime_nsec, 1000);
    assert_int_equal(p.mode, S_IFDIR | 0755);
    assert_int_equal(p.uid, 0);
    assert_true(p.implicit);
    assert_int_equal(listed.mtime, -4000);
    assert_int_equal(listed.mode, S_IFDIR | 0711);
    assert_int_equal(listed.uid, 4000000000u);
    assert_false(listed.implicit);
    assert_int_equal(x.mtime, -9);
    assert_int_equal(root.mtime, -5); /* what is below a listed directory is its own affair */
    assert_int_equal(root.mtime_nsec, 1000);
}

static void test_listing__hard_links_belong_to_the_first_name(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    static const char *const names[] = {"z", "m/b", "m", "a-x", "other"};
    for (size_t i = 0; i < 5; i++) {
        struct source_entry e = entry(names[i], i == 2 ? S_IFDIR | 0755 : S_IFREG | 0644);
        e.link_dev = 1;
        e.link_ino = i == 4 ? 8 : 7;
        assert_int_equal(listing_add(l, &e), 0);
    }
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    struct node first = find(n, "a-x"), other = find(n, "other");
    assert_int_equal(find(n, "z").link, first.rank);
    assert_int_equal(find(n, "m/b").link, first.rank);
    assert_int_equal(first.link, first.rank);
    assert_true(first.linked && find(n, "z").linked && find(n, "m/b").linked);
    assert_false(other.linked || find(n, "m").linked);
    assert_int_equal(other.link, other.rank);
    struct listing_stats stats = listing_stats(l);
    assert_int_equal(stats.hard_links, 2);
    assert_int_equal(stats.files, 2);
    assert_int_equal(stats.bytes, 20);
    assert_int_equal(stats.directories, 2);
}

/* Every second name of 3,000 files, and thousands of names of one. */
static void test_listing__many_hard_links(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    char name[32];
    for (unsigned i = 0; i < 6000; i++) {
        snprintf(name, sizeof name, "%c/%05u", i / 3000 ? 'b' : 'a', i % 3000);
        struct source_entry e = entry(name, S_IFREG | 0644);
        e.link_dev = i % 3000 % 7;
        e.link_ino = 1 + i % 3000 / 7;
        assert_int_equal(listing_add(l, &e), 0);
        snprintf(name, sizeof name, "c/%05u", i);
        e.path_len = strlen(name);
        e.link_dev = 1;
        e.link_ino = 1000000;
        assert_int_equal(listing_add(l, &e), 0);
    }
    CLEANUP(cleanup_nodes) struct nodes *nodes = seal(l);
    assert_int_equal(listing_stats(l).files, 3001);
    assert_int_equal(listing_stats(l).hard_links, 3000 + 5999);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(nodes);
    struct node n;
    while (nodes_next(c, &n) == 1) {
        if (S_ISDIR(n.mode))
            continue;
        uint32_t first = n.path[0] == 'a' ? n.rank : n.path[0] == 'b' ? n.rank - 3001 : 2 * 3001 + 2;
        assert_int_equal(n.link, first);
        assert_true(n.linked);
    }
}

static void test_listing__a_replaced_file_is_no_name_of_its_former_inode(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(true, false);
    static const struct {
        const char *path;
        uint64_t ino;
    } files[] = {{"f", 7}, {"f", 8}, {"g", 7}, {"h", 8}};
    for (int i = 0; i < 4; i++) {
        struct source_entry e = entry(files[i].path, S_IFREG | 0644);
        e.mtime = i;
        e.link_dev = 1;
        e.link_ino = files[i].ino;
        assert_int_equal(listing_add(l, &e), 0);
    }
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    assert_int_equal(find(n, "g").link, find(n, "g").rank);
    assert_false(find(n, "g").linked);
    assert_int_equal(find(n, "h").link, find(n, "f").rank);
    assert_int_equal(listing_stats(l).files, 2);
}

/* Whatever their times and the order in which they come; another archive's is one too many. */
static void test_listing__of_one_archive_the_later_member_counts(void **state)
{
    for (int order = 0; order < 2; order++) {
        CLEANUP(cleanup_listing) struct listing *l = make(false, false);
        for (int i = 0; i < 3; i++) {
            struct source_entry e = entry(i == 2 ? "d" : "f", i == 2 ? S_IFDIR | 0700 : S_IFREG | 0644);
            bool later = i == order;
            e.size = later ? 20 : 10;
            e.mtime = later ? 1 : 100;
            e.archive = 3;
            e.member = later ? 8 : 5;
            assert_int_equal(listing_add(l, &e), 0);
        }
        struct source_entry later = entry("d", S_IFDIR | 0711);
        later.mtime = 1;
        later.archive = 3;
        later.member = 6;
        assert_int_equal(listing_add(l, &later), 0);
        CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
        assert_int_equal(find(n, "f").size, 20);
        assert_int_equal(find(n, "d").mode, S_IFDIR | 0711);
        assert_int_equal(listing_stats(l).files, 1);
        assert_int_equal(listing_stats(l).bytes, 20);
        assert_int_equal(listing_stats(l).bytes_replaced, 10);
        assert_int_equal(listing_stats(l).names_skipped, 0);
    }
    CLEANUP(cleanup_listing) struct listing *two = make(false, false);
    struct source_entry e = entry("f", S_IFREG | 0644);
    struct nodes *none;
    for (e.archive = 1; e.archive <= 2; e.archive++) {
        e.member = e.archive;
        assert_int_equal(listing_add(two, &e), 0);
    }
    assert_int_equal(listing_seal(two, &none), -EINVAL);
}

/* That it has a second name is known only later; the body is the first name's in path order, whichever that is. */
static void test_listing__a_member_is_listed_again_with_its_file(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    const struct listing_written written = {.address = 4096, .content = digest_of("x", 1)};
    struct source_entry e = entry("target", S_IFREG | 0644);
    e.archive = 1;
    e.member = 1;
    assert_int_equal(listing_add_written(l, &e, &written), 0);
    e.link_dev = e.link_ino = 1;
    assert_int_equal(listing_add_written(l, &e, &written), 0);
    struct source_entry further = e;
    further.path = "link";
    further.path_len = 4;
    further.member = 2;
    assert_int_equal(listing_add_written(l, &further, &written), 0);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    struct node first = find(n, "link"), second = find(n, "target");
    assert_int_equal(first.plan, NODE_KEEP);
    assert_int_equal(first.address, 4096);
    assert_int_equal(second.link, first.rank);
    assert_int_equal(second.plan, NODE_READ);
    assert_int_equal(listing_stats(l).hard_links, 1);
    assert_int_equal(listing_stats(l).bytes_replaced, 0);
}

static void test_listing__special_files_and_bits(void **state)
{
    for (int keep = 0; keep < 2; keep++) {
        CLEANUP(cleanup_listing) struct listing *l = make(false, keep);
        assert_int_equal(add(l, "suid", S_IFREG | 06755), 0);
        assert_int_equal(add(l, "sticky", S_IFDIR | 03777), 0);
        assert_int_equal(add(l, "fifo", S_IFIFO | 0644), 0);
        assert_int_equal(add(l, "socket", S_IFSOCK | 0644), 0);
        struct source_entry e = entry("disk", S_IFBLK | 0600);
        e.rdev = makedev(259, 70000);
        assert_int_equal(listing_add(l, &e), 0);
        CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
        assert_int_equal(find(n, "suid").mode, S_IFREG | (keep ? 06755 : 0755));
        assert_int_equal(find(n, "sticky").mode, S_IFDIR | (keep ? 03777 : 01777));
        assert_int_equal(listing_stats(l).special_skipped, keep ? 0 : 3);
        assert_int_equal(listing_stats(l).others, keep ? 3 : 0);
        if (keep)
            assert_int_equal(find(n, "disk").rdev, (70000 & 0xff) | 259 << 8 | (70000 & ~0xff) << 12);
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

static void test_listing__xattrs_are_sorted_and_the_unknown_counted(void **state)
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
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    struct source_entry e = entry("f", S_IFLNK | 0777);
    e.target = "to/there";
    e.target_len = 8;
    e.validator = "v1";
    e.validator_len = 2;
    e.xattrs = list.data;
    e.xattrs_len = list.len;
    assert_int_equal(listing_add(l, &e), 0);
    CLEANUP(cleanup_nodes) struct nodes *nodes = seal(l);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(nodes);
    struct node n;
    assert_int_equal(nodes_next(c, &n), 1);
    assert_int_equal(nodes_next(c, &n), 1);
    assert_int_equal(n.target_len, 8);
    assert_memory_equal(n.target, "to/there", 8);
    assert_int_equal(n.size, 8);
    assert_int_equal(n.validator_len, 2);
    assert_memory_equal(n.validator, "v1", 2);
    assert_int_equal(n.xattrs_len, expected.len);
    assert_memory_equal(n.xattrs, expected.data, expected.len);
    assert_int_equal(listing_stats(l).xattrs_skipped, 3);
    assert_int_equal(listing_stats(l).symlinks, 1);
    CLEANUP(cleanup_listing) struct listing *other = make(false, false);
    e.xattrs_len = 5;
    assert_int_equal(listing_add(other, &e), -EINVAL);
    e.xattrs_len = 0;
    e.target_len = 0;
    assert_int_equal(listing_add(other, &e), -EINVAL);
    e.target_len = 4096;
    assert_int_equal(listing_add(other, &e), -EINVAL);
}

static void test_listing__nothing_listed_is_a_root(void **state)
{
    CLEANUP(cleanup_listing) struct listing *l = make(false, false);
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    assert_paths(n, "/\n");
    assert_int_equal(find(n, "").mtime, 0);
    assert_int_equal(find(n, "").mode, S_IFDIR | 0755);
    assert_int_equal(listing_stats(l).directories, 1);
    CLEANUP(cleanup_listing) struct listing *listed = make(false, false);
    struct source_entry e = entry("", S_IFDIR | 0700);
    assert_int_equal(listing_add(listed, &e), 0);
    assert_int_equal(add_file(listed, "f"), 0);
    CLEANUP(cleanup_nodes) struct nodes *other = seal(listed);
    assert_int_equal(find(other, "").mtime, 100);
    assert_int_equal(find(other, "").mode, S_IFDIR | 0700);
}

/* More directories than the table of known ones holds, visited round and round, and little memory: the same nodes. */
static void test_listing__the_order_of_coming_changes_nothing(void **state)
{
    enum { DIRS = 6000, ROUNDS = 4 };
    struct listing_options small = {.sort_memory = 200000};
    CLEANUP(cleanup_listing) struct listing *a = make(false, false), *b = NULL;
    assert_int_equal(listing_new(&small, &b), 0);
    char name[64];
    for (unsigned i = 0; i < DIRS * ROUNDS; i++) {
        snprintf(name, sizeof name, "top-%u/dir-%05u/f%u", i / ROUNDS % 3, i / ROUNDS, i % ROUNDS);
        struct source_entry e = entry(name, S_IFREG | 0644);
        e.mtime = i % 1000;
        assert_int_equal(listing_add(a, &e), 0);
        unsigned j = i % DIRS * ROUNDS + i / DIRS; /* every directory once a round */
        snprintf(name, sizeof name, "top-%u/dir-%05u/f%u", j / ROUNDS % 3, j / ROUNDS, j % ROUNDS);
        e.mtime = j % 1000;
        assert_int_equal(listing_add(b, &e), 0);
    }
    CLEANUP(cleanup_nodes) struct nodes *in_order = seal(a), *around = seal(b);
    assert_int_equal(nodes_count(in_order), 1 + 3 + DIRS + DIRS * ROUNDS);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = cursor(in_order), *d = cursor(around);
    struct node m, n;
    for (int more = 1; more;) {
        more = nodes_next(c, &m);
        assert_int_equal(nodes_next(d, &n), more);
        if (!more)
            break;
        assert_int_equal(m.path_len, n.path_len);
        assert_memory_equal(m.path, n.path, n.path_len);
        assert_int_equal(m.parent, n.parent);
        assert_int_equal(m.mtime, n.mtime);
        assert_int_equal(m.implicit, n.implicit);
    }
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* GRANARY_LISTING_PATHS=2000000 for the size of an issue: prints the largest memory the process had. mallinfo2 sees
 * what malloc gave; sanitizers replace it, so the figures mean something without them only. */
static void test_listing__memory_does_not_grow_with_paths(void **state)
{
    const char *wanted = getenv("GRANARY_LISTING_PATHS");
    unsigned long paths = wanted ? strtoul(wanted, NULL, 10) : 300000;
    struct listing_options options = {.sort_memory = 4 << 20};
    size_t before = allocated();
    CLEANUP(cleanup_listing) struct listing *l = NULL;
    assert_int_equal(listing_new(&options, &l), 0);
    char path[64];
    for (unsigned long i = 0; i < paths; i++) {
        unsigned long j = i * 7919 % paths;
        snprintf(path, sizeof path, "directory-%06lu/file-%019lu", j / 1000, j);
        struct source_entry e = entry(path, S_IFREG | 0644);
        e.validator = "0-188a3f7c2e5b1a00-188a3f7c2e5b1a00-1a2b3c4d";
        e.validator_len = strlen(e.validator);
        assert_int_equal(listing_add(l, &e), 0);
    }
    assert_true(allocated() < before + (8 << 20));
    CLEANUP(cleanup_nodes) struct nodes *n = seal(l);
    assert_true(allocated() < before + SCRATCH_MEMORY_DEFAULT + (4 << 20));
    assert_int_equal(listing_stats(l).files, paths);
    assert_int_equal(nodes_count(n), 1 + paths + (paths + 999) / 1000);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    print_message("%lu paths: the process had at most %ld MB\n", paths, usage.ru_maxrss / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing__walks_in_the_byte_order_of_full_paths),
        cmocka_unit_test(test_listing__random_paths_come_sorted),
        cmocka_unit_test(test_listing__names_that_no_filesystem_holds_are_refused_or_counted),
        cmocka_unit_test(test_listing__the_longest_names_are_taken),
        cmocka_unit_test(test_listing__the_directory_wins_in_any_order),
        cmocka_unit_test(test_listing__the_newer_one_counts),
        cmocka_unit_test(test_listing__implicit_directories_belong_to_whom_the_options_say),
        cmocka_unit_test(test_listing__implicit_directories_are_as_old_as_the_newest_below),
        cmocka_unit_test(test_listing__hard_links_belong_to_the_first_name),
        cmocka_unit_test(test_listing__many_hard_links),
        cmocka_unit_test(test_listing__a_replaced_file_is_no_name_of_its_former_inode),
        cmocka_unit_test(test_listing__of_one_archive_the_later_member_counts),
        cmocka_unit_test(test_listing__a_member_is_listed_again_with_its_file),
        cmocka_unit_test(test_listing__special_files_and_bits),
        cmocka_unit_test(test_listing__xattrs_are_sorted_and_the_unknown_counted),
        cmocka_unit_test(test_listing__nothing_listed_is_a_root),
        cmocka_unit_test(test_listing__the_order_of_coming_changes_nothing),
        cmocka_unit_test(test_listing__memory_does_not_grow_with_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
