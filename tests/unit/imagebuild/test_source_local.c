/* A local directory as a source: hostile names, everything stat knows, and files that change. */
#include "unit/cmocka_all.h"
#include "unit/counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/le.h"
#include "base/openat2.h"
#include "imagebuild/source/source_internal.h"
#include "unit/node_list.h"

struct place {
    char path[64];
    int fd;
    struct source *source;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->path, "local.XXXXXX"); /* in the build tree: the file system there has xattrs */
    assert_non_null(mkdtemp(p->path));
    p->fd = open(p->path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(source_local_open(p->path, p->path, &(struct source_options){0}, &p->source), 0);
    *state = p;
    return 0;
}

/* rm -r that can handle any depth: what is deep is moved up first. */
static void remove_all(int dir, const char *name)
{
    if (!unlinkat(dir, name, 0) || !unlinkat(dir, name, AT_REMOVEDIR))
        return;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", name);
    assert_int_equal(system(command), 0);
}

static int teardown(void **state)
{
    struct place *p = *state;
    source_close(p->source);
    close(p->fd);
    remove_all(AT_FDCWD, p->path);
    free(p);
    return 0;
}

static void put_file(const struct place *p, const char *name, const void *data, size_t len)
{
    int fd = openat(p->fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

/* ------------------------------------------------------------------ listings */

static struct node_list list(struct place *p, bool keep_special)
{
    struct listing_options options = {.keep_special = keep_special};
    return node_list_of(p->source, &options);
}

static int read_at(struct place *p, const char *path, const char *validator, uint64_t offset, size_t len, void *dst)
{
    struct source_read r = {.path = path,
                            .path_len = strlen(path),
                            .validator = validator,
                            .validator_len = strlen(validator),
                            .offset = offset,
                            .len = len,
                            .dst = dst};
    return source_read(p->source, &r);
}

static struct source_version version_of(struct place *p, const char *path)
{
    struct source_version v;
    assert_int_equal(source_stat(p->source, path, strlen(path), &v), 0);
    return v;
}

/* Catalogs of images built before have validators: the form stays. */
static void test_source_local__a_version_is_size_times_and_inode_in_hex(void **state)
{
    struct place *p = *state;
    const struct timespec when[][2] = {
        {{0, 0}, {0, 0}}, {{0, 0}, {0, 1}}, {{0, 0}, {1, 0}}, {{0, 0}, {1700000000, 999999999}}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(when); i++) {
        char expected[128];
        struct stat st;
        put_file(p, "f", "12345678901234567", i * 5);
        assert_int_equal(utimensat(p->fd, "f", when[i], 0), 0);
        assert_int_equal(fstatat(p->fd, "f", &st, 0), 0);
        uint64_t mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
        uint64_t ctime = (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec;
        snprintf(expected, sizeof expected, "%llx-%llx-%llx-%llx", (unsigned long long)st.st_size,
                 (unsigned long long)mtime, (unsigned long long)ctime, (unsigned long long)st.st_ino);
        assert_string_equal(version_of(p, "f").validator, expected);
        assert_int_equal(version_of(p, "f").validator_len, strlen(expected));
    }
}

static void test_source_local__hostile_names_are_listed_and_read(void **state)
{
    struct place *p = *state;
    static char longest[256];
    memset(longest, 'x', 255);
    const char *const names[] = {"with space", "new\nline", "\xff\xfe\x80", "\xc3\xa9", longest,
                                 "-rf",        "a\\b",      "%41+",         "*",        "\x01"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++)
        put_file(p, names[i], &i, sizeof i);
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    assert_int_equal(t.stats.files, GR_ARRAY_SIZE(names));
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        size_t got = 99;
        const struct node *n = node_list_must_find(&t, names[i]);
        assert_int_equal(n->size, sizeof i);
        assert_int_equal(n->mode, S_IFREG | 0640);
        struct source_version v = version_of(p, names[i]);
        assert_int_equal(n->validator_len, v.validator_len);
        assert_memory_equal(n->validator, v.validator, v.validator_len);
        assert_int_equal(read_at(p, names[i], v.validator, 0, sizeof got, &got), 0);
        assert_int_equal(got, i);
    }
}

static void test_source_local__everything_stat_knows_is_kept(void **state)
{
    struct place *p = *state;
    bool root = !geteuid();
    put_file(p, "file", "abc", 3);
    assert_int_equal(symlinkat("../any where/\xff", p->fd, "link"), 0);
    assert_int_equal(mkdirat(p->fd, "dir", 0711), 0);
    assert_int_equal(linkat(p->fd, "file", p->fd, "dir/again", 0), 0);
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0);
    const struct timespec before_1970[2] = {{-12345, 678}, {-12345, 678}};
    assert_int_equal(utimensat(p->fd, "file", before_1970, 0), 0);
    assert_int_equal(utimensat(p->fd, "link", before_1970, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(fchmodat(p->fd, "file", 04755, 0), 0);
    if (root)
        assert_int_equal(fchownat(p->fd, "link", 70000, 4000000000u, AT_SYMLINK_NOFOLLOW), 0);
    bool devices = root && !mknodat(p->fd, "disk", S_IFBLK | 0600, makedev(8, 300));
    assert_int_equal(fchmod(p->fd, 0750), 0);
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    assert_int_equal(t.nodes.items[0].mode, S_IFDIR | 0750);
    const struct node *again = node_list_must_find(&t, "dir/again"), *file = node_list_must_find(&t, "file"),
                      *link = node_list_must_find(&t, "link");
    assert_true(again->linked);
    assert_int_equal(again->link, again->rank);
    assert_int_equal(file->link, again->rank); /* "dir/again" comes before "file" */
    assert_int_equal(again->mtime, -12345);
    assert_int_equal(again->mtime_nsec, 678);
    assert_int_equal(again->mode, S_IFREG | 0755);
    assert_int_equal(node_list_must_find(&t, "dir")->mode, S_IFDIR | 0711);
    assert_int_equal(link->target_len, 14);
    assert_memory_equal(link->target, "../any where/\xff", 14);
    assert_int_equal(link->mtime, -12345);
    if (root) {
        assert_int_equal(link->uid, 70000);
        assert_int_equal(link->gid, 4000000000u);
    }
    assert_null(node_list_find(&t, "fifo"));
    assert_int_equal(t.stats.special_skipped, 1u + devices);
    CLEANUP(node_list_free) struct node_list kept = list(p, true);
    assert_int_equal(node_list_must_find(&kept, "fifo")->mode, S_IFIFO | 0600);
    assert_int_equal(node_list_must_find(&kept, "file")->mode, S_IFREG | 04755);
    if (devices)
        assert_int_equal(node_list_must_find(&kept, "disk")->rdev, (300 & 0xff) | 8 << 8 | (300 & ~0xff) << 12);
}

static void test_source_local__xattrs_of_files_links_and_directories(void **state)
{
    struct place *p = *state;
    char path[512];
    static char big[3000];
    memset(big, 'b', sizeof big);
    put_file(p, "file", "", 0);
    assert_int_equal(mkdirat(p->fd, "dir", 0755), 0);
    snprintf(path, sizeof path, "%s/file", p->path);
    if (setxattr(path, "user.empty", "", 0, 0))
        skip(); /* no user attributes here */
    assert_int_equal(setxattr(path, "user.big", big, sizeof big, 0), 0);
    snprintf(path, sizeof path, "%s/dir", p->path);
    assert_int_equal(setxattr(path, "user.dir", "d", 1, 0), 0);
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    const struct node *file = node_list_must_find(&t, "file"), *dir = node_list_must_find(&t, "dir");
    const uint8_t *x = file->xattrs;
    assert_int_equal(file->xattrs_len, 6 + 8 + sizeof big + 6 + 10);
    assert_int_equal(le16_get(x), 8);
    assert_int_equal(le32_get(x + 2), sizeof big);
    assert_memory_equal(x + 6, "user.big", 8);
    assert_memory_equal(x + 14, big, sizeof big);
    x += 14 + sizeof big;
    assert_memory_equal(x + 6, "user.empty", 10);
    assert_int_equal(le32_get(x + 2), 0);
    x = dir->xattrs;
    assert_int_equal(dir->xattrs_len, 15);
    assert_memory_equal(x + 6, "user.dird", 9);
}

static void test_source_local__sparse_files_read_as_zeros(void **state)
{
    struct place *p = *state;
    enum { SIZE = 3 << 20, AT = 1500000 };
    int fd = openat(p->fd, "sparse", O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, SIZE), 0);
    assert_int_equal(pwrite(fd, "data", 4, AT), 4);
    close(fd);
    struct source_version v = version_of(p, "sparse");
    CLEANUP_FREE uint8_t *data = malloc(SIZE), *expected = calloc(1, SIZE);
    memcpy(expected + AT, "data", 4);
    static const uint64_t ranges[][2] = {{0, SIZE},   {0, 4096},       {AT - 10, 20},
                                         {AT + 2, 1}, {AT + 4, 70000}, {SIZE - 1, 1}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(ranges); i++) {
        memset(data, 0xaa, SIZE);
        assert_int_equal(read_at(p, "sparse", v.validator, ranges[i][0], ranges[i][1], data), 0);
        assert_memory_equal(data, expected + ranges[i][0], ranges[i][1]);
    }
}

static void test_source_local__another_version_is_stale_and_a_lost_file_gone(void **state)
{
    struct place *p = *state;
    char data[16];
    struct source_version v;
    put_file(p, "f", "first", 5);
    v = version_of(p, "f");
    assert_true(v.have_owner);
    assert_int_equal(v.size, 5);
    assert_int_equal(read_at(p, "f", v.validator, 0, 5, data), 0);
    assert_int_equal(read_at(p, "f", v.validator, 0, 6, data), -ESTALE); /* past the end */
    assert_int_equal(read_at(p, "f", "0-0-0-0", 0, 5, data), -ESTALE);
    int fd = openat(p->fd, "f", O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(read_at(p, "f", v.validator, 0, 5, data), -ESTALE);
    assert_non_null(strstr(error_text(), "/f changed"));
    v = version_of(p, "f");
    /* a file of the same size and mtime in its place has another inode */
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(p->fd, "f", times, 0), 0);
    v = version_of(p, "f");
    put_file(p, "g", "second", 6);
    assert_int_equal(utimensat(p->fd, "g", times, 0), 0);
    assert_int_equal(renameat(p->fd, "g", p->fd, "f"), 0);
    assert_int_equal(read_at(p, "f", v.validator, 0, 6, data), -ESTALE);
    assert_int_equal(unlinkat(p->fd, "f", 0), 0);
    assert_int_equal(read_at(p, "f", v.validator, 0, 6, data), -ENOENT);
    assert_int_equal(source_stat(p->source, "f", 1, &v), -ENOENT);
    assert_int_equal(mkdirat(p->fd, "f", 0755), 0);
    assert_int_equal(read_at(p, "f", v.validator, 0, 6, data), -ENOENT);
    assert_int_equal(source_stat(p->source, "f", 1, &v), -ENOENT);
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0); /* must not hang */
    assert_int_equal(read_at(p, "fifo", v.validator, 0, 6, data), -ENOENT);
}

int __real_walk_push(struct walker *w, const struct walk_place *place);
int __wrap_walk_push(struct walker *w, const struct walk_place *place);

static const struct place *losing; /* directories as soon as they are known of */

int __wrap_walk_push(struct walker *w, const struct walk_place *place)
{
    if (losing && place->path_len == 1)
        assert_int_equal(unlinkat(losing->fd, *place->path == 'a' ? "a" : "b", AT_REMOVEDIR), 0);
    return __real_walk_push(w, place);
}

static int take_any(void *arg, const struct source_entry *e)
{
    return 0;
}

static void test_source_local__what_goes_while_it_is_listed_is_counted(void **state)
{
    struct place *p = *state;
    struct source_counts counts = {0};
    put_file(p, "stays", "x", 1);
    assert_int_equal(mkdirat(p->fd, "a", 0700), 0);
    assert_int_equal(mkdirat(p->fd, "b", 0700), 0);
    losing = p;
    assert_int_equal(source_list(p->source, take_any, NULL), 0);
    losing = NULL;
    source_ask_counts(p->source, &counts);
    assert_int_equal(counts.vanished, 2);
    assert_int_equal(strlen(counts.first_vanished), 1);
}

static void test_source_local__no_link_leads_out(void **state)
{
    struct place *p = *state;
    char data[16];
    assert_int_equal(mkdirat(p->fd, "real", 0755), 0);
    put_file(p, "real/f", "first", 5);
    struct source_version v = version_of(p, "real/f");
    assert_int_equal(symlinkat("real", p->fd, "link"), 0);
    assert_int_equal(symlinkat("f", p->fd, "real/l"), 0);
    assert_int_equal(read_at(p, "real/f", v.validator, 0, 5, data), 0);
    assert_int_equal(read_at(p, "link/f", v.validator, 0, 5, data), -ENOENT);
    assert_int_equal(read_at(p, "real/l", v.validator, 0, 5, data), -ENOENT);
    for (int openat2 = 0; openat2 < 2; openat2++) {
        assert_int_equal(openat2_beneath(p->fd, openat2, "link/f", 6, O_RDONLY), openat2 ? -ELOOP : -ENOTDIR);
        assert_int_equal(openat2_beneath(p->fd, openat2, "real/l", 6, O_RDONLY), -ELOOP);
        int fd = openat2_beneath(p->fd, openat2, "real/f", 6, O_RDONLY);
        assert_true(fd >= 0);
        close(fd);
    }
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    assert_int_equal(t.stats.symlinks, 2);
    assert_int_equal(t.stats.files, 1);
}

static void test_source_local__thousands_of_levels_and_paths_beyond_path_max(void **state)
{
    enum { LEVELS_MAX = 4000 };
    const int levels = (int)full_or(LEVELS_MAX, 1000);
    struct place *p = *state;
    static char path[LEVELS_MAX * 11 + 8];
    size_t len = 0;
    int dir = dup(p->fd);
    for (int i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(dir, "0123456789", 0755), 0);
        int next = openat(dir, "0123456789", O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        close(dir);
        dir = next;
        len += (size_t)sprintf(path + len, "0123456789/");
    }
    struct place deepest = {.fd = dir};
    put_file(&deepest, "file", "deep", 4);
    close(dir);
    strcpy(path + len, "file");
    len += 4;
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    assert_int_equal(t.stats.directories, (size_t)levels + 1);
    assert_int_equal(t.stats.files, 1);
    char data[4];
    struct source_version v = version_of(p, path);
    assert_int_equal(read_at(p, path, v.validator, 0, 4, data), 0);
    assert_memory_equal(data, "deep", 4);
    int fd = openat2_beneath(p->fd, false, path, len, O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
}

static void test_source_local__many_entries_in_a_directory(void **state)
{
    const int count = (int)full_or(100000, 20000);
    struct place *p = *state;
    char name[32], last[32];
    put_file(p, "first", "", 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "n%06d", i);
        assert_int_equal(symlinkat("x", p->fd, name), 0);
    }
    CLEANUP(node_list_free) struct node_list t = list(p, false);
    assert_int_equal(t.nodes.len, (size_t)count + 2); /* the root, "first" */
    snprintf(last, sizeof last, "n%06d", count - 1);
    assert_string_equal(t.nodes.items[count + 1].path, last);
}

static void test_source_local__what_may_not_be_read_is_an_error_that_names_it(void **state)
{
    struct place *p = *state;
    char data[4];
    struct source *none;
    assert_int_equal(source_local_open("/no/such", "/no/such", &(struct source_options){0}, &none), -ENOENT);
    assert_non_null(strstr(error_text(), "/no/such"));
    put_file(p, "plain", "x", 1);
    char path[128];
    snprintf(path, sizeof path, "%s/plain", p->path);
    assert_int_equal(source_local_open(path, path, &(struct source_options){0}, &none), -ENOTDIR);
    if (geteuid())
        skip(); /* only root can become somebody who may not read it */
    assert_int_equal(mkdirat(p->fd, "closed", 0700), 0);
    assert_int_equal(fchmod(p->fd, 0755), 0);
    assert_int_equal(fchmodat(p->fd, "plain", 0600, 0), 0);
    struct source_version v = version_of(p, "plain");
    struct listing_options options = {0};
    CLEANUP(cleanup_listing) struct listing *listing = NULL;
    assert_int_equal(listing_new(&options, &listing), 0);
    struct error read_error, list_error;
    assert_int_equal(seteuid(65534), 0);
    error_take(&read_error, read_at(p, "plain", v.validator, 0, 1, data));
    error_take(&list_error, source_list(p->source, node_list_add, listing));
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(read_error.code, -EACCES);
    assert_non_null(strstr(read_error.text, "/plain: Permission denied; run as a user who may read it"));
    assert_int_equal(list_error.code, -EACCES);
    assert_non_null(strstr(list_error.text, "/closed: Permission denied"));
}

static void test_source_local__slashes_at_the_end_do_not_show(void **state)
{
    struct place *p = *state;
    char path[128];
    snprintf(path, sizeof path, "%s///", p->path);
    struct source *s;
    assert_int_equal(source_local_open(path, path, &(struct source_options){0}, &s), 0);
    assert_string_equal(s->url, p->path);
    source_close(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* ------------------------------------------------------------------ one path */

struct seen {
    struct source_entry entry;
    char path[100], target[100], validator[SOURCE_VALIDATOR_MAX + 1];
};

static int see(void *arg, const struct source_entry *e)
{
    struct seen *seen = arg;
    seen->entry = *e;
    snprintf(seen->path, sizeof seen->path, "%.*s", (int)e->path_len, e->path);
    snprintf(seen->target, sizeof seen->target, "%.*s", (int)e->target_len, e->target ? e->target : "");
    snprintf(seen->validator, sizeof seen->validator, "%.*s", (int)e->validator_len, e->validator ? e->validator : "");
    return 0;
}

static int look(struct place *p, const char *path, struct seen *out)
{
    struct source_ask ask = {.path = path, .path_len = strlen(path)};
    memset(out, 0, sizeof *out);
    return source_look(p->source, &ask, see, out);
}

static void test_source_local__looks_at_one_path(void **state)
{
    struct place *p = *state;
    struct source_version version;
    struct seen seen;
    assert_int_equal(mkdirat(p->fd, "d", 0750), 0);
    put_file(p, "d/f", "abc", 3);
    assert_int_equal(symlinkat("f", p->fd, "d/link"), 0);
    assert_int_equal(symlinkat("d", p->fd, "way"), 0);
    assert_int_equal(look(p, "d/f", &seen), 0);
    assert_string_equal(seen.path, "d/f");
    assert_int_equal(seen.entry.size, 3);
    assert_int_equal(source_stat(p->source, "d/f", 3, &version), 0);
    assert_string_equal(seen.validator, version.validator);
    assert_int_equal(look(p, "d", &seen), 0);
    assert_int_equal(seen.entry.mode, S_IFDIR | 0750);
    assert_int_equal(look(p, "d/link", &seen), 0);
    assert_string_equal(seen.target, "f");
    assert_int_equal(look(p, "", &seen), 0);
    assert_true(S_ISDIR(seen.entry.mode));
    assert_int_equal(look(p, "d/none", &seen), -ENOENT);
    assert_non_null(strstr(error_text(), "d/none"));
    assert_int_equal(look(p, "none/x", &seen), -ENOENT);
    assert_int_equal(look(p, "way/f", &seen), -ENOENT); /* through no link */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_source_local__looks_at_one_path),
        TEST(test_source_local__a_version_is_size_times_and_inode_in_hex),
        TEST(test_source_local__hostile_names_are_listed_and_read),
        TEST(test_source_local__everything_stat_knows_is_kept),
        TEST(test_source_local__xattrs_of_files_links_and_directories),
        TEST(test_source_local__sparse_files_read_as_zeros),
        TEST(test_source_local__another_version_is_stale_and_a_lost_file_gone),
        TEST(test_source_local__what_goes_while_it_is_listed_is_counted),
        TEST(test_source_local__no_link_leads_out),
        TEST(test_source_local__thousands_of_levels_and_paths_beyond_path_max),
        TEST(test_source_local__many_entries_in_a_directory),
        TEST(test_source_local__what_may_not_be_read_is_an_error_that_names_it),
        TEST(test_source_local__slashes_at_the_end_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
