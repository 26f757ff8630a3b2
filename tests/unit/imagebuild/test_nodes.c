/* A cursor gives back every field of every node, in memory and spilled, to any number of threads at once. */
#include "imagebuild/tree/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/thread.h"
#include "format/catalog.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

enum { COUNT = 20000 };

static char long_path[CATALOG_PATH_MAX];
static uint8_t xattrs[NODE_XATTRS_MAX];

/* Node i of the test's sequence; path must hold 64 bytes. */
static struct node sample(uint32_t i, char *path)
{
    struct node n = {
        .rank = i * 2,
        .parent = i / 10,
        .link = i % 3 ? i * 2 : 1,
        .linked = i % 5 == 0,
        .implicit = i % 7 == 0,
        .plan = (enum node_plan)(i % 3),
        .mode = (uint16_t)(S_IFREG | (i % 512)),
        .uid = i * 3,
        .gid = UINT32_MAX - i,
        .rdev = i * 5,
        .mtime = (int64_t)i - 100,
        .mtime_nsec = i % 1000,
        .size = (uint64_t)i << 33,
        .address = i % 4 ? (uint64_t)i << 30 : 0,
        .path = path,
        .validator = "a validator of the source",
        .validator_len = i % 26,
        .target = "where/it/points/to",
        .target_len = i % 5 ? 0 : i % 19,
        .xattrs = xattrs,
        .xattrs_len = i % 11 ? 0 : i % 300,
    };
    if (i % 2)
        memset(n.content.b, (int)(i % 255) + 1, DIGEST_SIZE);
    n.path_len = i ? (size_t)snprintf(path, 64, "directory-%05u/%05u-file", i / 100, i) : 0;
    if (i == COUNT - 1) { /* the largest there can be */
        n.path = long_path;
        n.path_len = sizeof long_path;
        n.xattrs_len = sizeof xattrs;
    }
    return n;
}

static bool same_bytes(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && (!a_len || !memcmp(a, b, a_len));
}

static bool same(const struct node *a, const struct node *b)
{
    return a->rank == b->rank && a->parent == b->parent && a->link == b->link && a->linked == b->linked &&
           a->implicit == b->implicit && a->plan == b->plan && a->mode == b->mode && a->uid == b->uid &&
           a->gid == b->gid && a->rdev == b->rdev && a->mtime == b->mtime && a->mtime_nsec == b->mtime_nsec &&
           a->size == b->size && a->address == b->address && digest_equal(&a->content, &b->content) &&
           same_bytes(a->path, a->path_len, b->path, b->path_len) &&
           same_bytes(a->validator, a->validator_len, b->validator, b->validator_len) &&
           same_bytes(a->target, a->target_len, b->target, b->target_len) &&
           same_bytes(a->xattrs, a->xattrs_len, b->xattrs, b->xattrs_len);
}

static struct nodes *fill(size_t memory)
{
    struct nodes *n = NULL;
    assert_int_equal(nodes_new(&(struct scratch_config){.memory = memory}, &n), 0);
    char path[64];
    for (uint32_t i = 0; i < COUNT; i++) {
        struct node node = sample(i, path);
        assert_int_equal(nodes_add(n, &node), 0);
    }
    assert_int_equal(nodes_end(n), 0);
    return n;
}

/* Not NULL: a node came back otherwise. */
static void *read_all(void *arg)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
    if (nodes_cursor_new(arg, &c))
        return arg;
    char path[64];
    struct node got;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct node node = sample(i, path);
        if (nodes_next(c, &got) != 1 || !same(&got, &node))
            return arg;
        if (i && i < COUNT - 1 && (got.name_len != 10 || memcmp(got.name, path + 16, 10)))
            return arg;
    }
    return nodes_next(c, &got) == 0 && nodes_next(c, &got) == 0 ? NULL : arg;
}

static void test_nodes__come_back_as_they_were(void **state)
{
    static const size_t memories[] = {0, 1, 1 << 20};
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_nodes) struct nodes *n = fill(memories[m]);
        assert_int_equal(nodes_count(n), COUNT);
        assert_int_equal(nodes_rank_end(n), COUNT * 2 - 1);
        assert_null(read_all(n));
    }
}

static void test_nodes__many_cursors_read_at_once(void **state)
{
    static const size_t memories[] = {0, 1};
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_nodes) struct nodes *n = fill(memories[m]);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(thread_start(&threads[i], read_all, n), 0);
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
    }
}

/* Some in the buffer, some in the scratch by then. */
static void test_nodes__are_amended(void **state)
{
    static const size_t memories[] = {0, 1};
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_nodes) struct nodes *n = NULL;
        assert_int_equal(nodes_new(&(struct scratch_config){.memory = memories[m]}, &n), 0);
        static uint64_t places[COUNT];
        char path[64];
        for (uint32_t i = 0; i < COUNT; i++) {
            struct node node = sample(i, path);
            node.implicit |= i * 2 < COUNT;
            places[i] = nodes_place(n);
            assert_int_equal(nodes_add(n, &node), 0);
            if (i % 2 == 0)
                assert_int_equal(nodes_set_mtime(n, places[i / 2], -1000 - (int64_t)i, 77), 0);
            if (i % 4 == 0)
                assert_int_equal(nodes_set_linked(n, places[i / 4 * 3]), 0);
        }
        assert_int_equal(nodes_end(n), 0);
        CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
        assert_int_equal(nodes_cursor_new(n, &c), 0);
        struct node got;
        for (uint32_t i = 0; i < COUNT; i++) {
            struct node node = sample(i, path);
            node.linked |= i % 3 == 0 && i / 3 * 4 < COUNT;
            if (i * 2 < COUNT) {
                node.implicit = true;
                node.mtime = -1000 - (int64_t)i * 2;
                node.mtime_nsec = 77;
            }
            assert_int_equal(nodes_next(c, &got), 1);
            assert_true(same(&got, &node));
        }
    }
}

/* The file is stored as what differs from a node before it, which must not be the directory, whose mtime changes. */
static void test_nodes__what_follows_an_amended_node_stays(void **state)
{
    CLEANUP(cleanup_nodes) struct nodes *n = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
    const struct node dir = {
        .rank = 0, .implicit = true, .mode = S_IFDIR | 0755, .mtime = 7, .path = "d", .path_len = 1};
    const struct node file = {.rank = 1, .mode = S_IFREG | 0644, .mtime = 7, .path = "d/f", .path_len = 3};
    struct node got;
    assert_int_equal(nodes_new(&(struct scratch_config){.memory = 0}, &n), 0);
    assert_int_equal(nodes_add(n, &dir), 0);
    assert_int_equal(nodes_add(n, &file), 0);
    assert_int_equal(nodes_set_mtime(n, 0, 1000, 0), 0);
    assert_int_equal(nodes_end(n), 0);
    assert_int_equal(nodes_cursor_new(n, &c), 0);
    assert_int_equal(nodes_next(c, &got), 1);
    assert_int_equal(got.mtime, 1000);
    assert_int_equal(nodes_next(c, &got), 1);
    assert_int_equal(got.mtime, 7);
}

static void test_nodes__none_at_all(void **state)
{
    CLEANUP(cleanup_nodes) struct nodes *n = NULL;
    assert_int_equal(nodes_new(&(struct scratch_config){0}, &n), 0);
    assert_int_equal(nodes_end(n), 0);
    assert_int_equal(nodes_count(n), 0);
    assert_int_equal(nodes_rank_end(n), 0);
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
    assert_int_equal(nodes_cursor_new(n, &c), 0);
    struct node got;
    assert_int_equal(nodes_next(c, &got), 0);
}

static void test_nodes__no_room_is_an_error(void **state)
{
    CLEANUP(cleanup_nodes) struct nodes *n = NULL;
    assert_int_equal(nodes_new(&(struct scratch_config){.memory = 1}, &n), 0);
    const struct rlimit old = scratch_limit(300 << 10);
    int rc = 0;
    char path[64];
    for (uint32_t i = 0; !rc && i < COUNT; i++) {
        struct node node = sample(i, path);
        rc = nodes_add(n, &node);
    }
    scratch_unlimit(&old);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(error_text(), "--tmpdir"));
}

static void test_xattrs__come_back_as_they_were(void **state)
{
    static const struct xattr all[] = {
        {.prefix = 1, .name = "a", .name_len = 1, .value = (const uint8_t *)"value", .value_len = 5},
        {.prefix = XATTR_ACL_ACCESS, .value = (const uint8_t *)"acl", .value_len = 3},
        {.prefix = XATTR_ACL_DEFAULT},
        {.prefix = 4, .name = "t", .name_len = 1},
        {.prefix = 6, .name = "selinux", .name_len = 7, .value = (const uint8_t *)"x", .value_len = 1}};
    const struct xattr unknown = {.prefix = 5, .name = "lustre", .name_len = 6};
    CLEANUP_BYTES text = BYTES_INIT(1000);
    struct xattr x;
    for (size_t i = 0; i < GR_ARRAY_SIZE(all); i++)
        assert_int_equal(xattr_append(&text, &all[i]), 0);
    assert_int_equal(xattr_append(&text, &unknown), -EBADMSG);
    const uint8_t *p = text.data, *end = p + text.len;
    for (size_t i = 0; i < GR_ARRAY_SIZE(all); i++) {
        assert_true(xattr_next(&p, end, &x));
        assert_int_equal(x.prefix, all[i].prefix);
        assert_int_equal(x.name_len, all[i].name_len);
        assert_int_equal(x.value_len, all[i].value_len);
        if (x.name_len)
            assert_memory_equal(x.name, all[i].name, x.name_len);
        if (x.value_len)
            assert_memory_equal(x.value, all[i].value, x.value_len);
    }
    assert_false(xattr_next(&p, end, &x));
}

int main(void)
{
    memset(long_path, 'z', sizeof long_path);
    memset(xattrs, 'x', sizeof xattrs);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes__come_back_as_they_were),
        cmocka_unit_test(test_nodes__many_cursors_read_at_once),
        cmocka_unit_test(test_nodes__are_amended),
        cmocka_unit_test(test_nodes__what_follows_an_amended_node_stays),
        cmocka_unit_test(test_nodes__none_at_all),
        cmocka_unit_test(test_nodes__no_room_is_an_error),
        cmocka_unit_test(test_xattrs__come_back_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
