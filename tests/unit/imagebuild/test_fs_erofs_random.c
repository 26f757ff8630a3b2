/* erofs images of trees of any shape, every path compared with what went in; the same with next to no memory. */
#include "unit/counts.h"
#include "unit/erofs_image.h"

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed >> 11;
}

/* Paths that are prefixes of each other, with bytes on both sides of the slash between. */
static void random_path(uint64_t *seed, char *out)
{
    static const char *const words[] = {"a", "a", "b", "!", "-", ".a", "0", "ab", "\x01", "\xff", "a.c"};
    size_t at = 0;
    for (uint64_t depth = 1 + draw(seed) % 5; depth > 0; depth--) {
        for (uint64_t parts = 1 + draw(seed) % 3; parts > 0; parts--) {
            const char *word = words[draw(seed) % GR_ARRAY_SIZE(words)];
            memcpy(out + at, word, strlen(word));
            at += strlen(word);
        }
        out[at++] = depth > 1 ? '/' : 0;
    }
}

static void add_random(struct image *i, uint64_t *seed)
{
    static char long_target[4090];
    static uint8_t value[4090];
    char path[64];
    memset(long_target, 'L', sizeof long_target - 1);
    random_path(seed, path);
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        const struct item *parent = find(i, path, (size_t)(slash - path));
        if (parent && !S_ISDIR(parent->node.mode))
            return;
    }
    if (find(i, path, strlen(path)))
        return;
    switch (draw(seed) % 5) {
    case 0:
        add(i, path, S_IFDIR | 0700);
        break;
    case 1:
        add_symlink(i, path, draw(seed) % 4 ? "target" : long_target + draw(seed) % 100);
        break;
    default:
        add_file(i, path, draw(seed) % 3 ? draw(seed) % 9000 : 0, (char)('A' + draw(seed) % 26));
    }
    struct item *item = find(i, path, strlen(path));
    item->node.uid = (uint32_t)draw(seed);
    if (draw(seed) % 8 == 0)
        put_xattr(&item->xattrs, "user.value", value, (uint32_t)(draw(seed) % sizeof value));
}

/* Does the image have this path with all that is known of it? */
static void check_item(const struct image *i, const struct item *item)
{
    uint64_t at = lookup(i, item->path), size = le64_get(image_at(i, at) + 8);
    const struct node *n = &item->node;
    assert_int_equal(le16_get(image_at(i, at) + 4), n->mode);
    assert_int_equal(le32_get(image_at(i, at) + 24), n->uid);
    if (item->xattrs.len)
        check_xattr(i, item->path, item->xattrs.data + 16, (uint32_t)item->xattrs.len - 16);
    else
        assert_int_equal(xattr_size(image_at(i, at)), 0);
    if (S_ISREG(n->mode))
        assert_int_equal(size, n->size);
    for (uint64_t off = 0; S_ISREG(n->mode) && off < size; off++)
        assert_int_equal(*inode_data(i, at, off), item->letter);
    for (uint64_t off = 0; S_ISLNK(n->mode) && off < n->target_len; off++)
        assert_int_equal(*inode_data(i, at, off), item->target[off]);
}

/* Has every directory as many entries as there are paths in it? lookup has seen that they are in order. */
static void check_directory(const struct image *i, const struct item *dir)
{
    struct names *names = malloc(sizeof *names);
    uint32_t entries = 2, subdirs = 0;
    uint64_t at = lookup(i, dir->path);
    read_directory(i, at, names);
    for (size_t k = 1; k < i->items.len; k++) {
        const struct node *n = &i->items.items[k].node;
        entries += n->parent == dir->node.rank;
        subdirs += n->parent == dir->node.rank && S_ISDIR(n->mode);
    }
    assert_int_equal(names->count, entries);
    assert_int_equal(le32_get(image_at(i, at) + 44), 2 + subdirs);
    for (size_t k = 0; k < names->count; k++)
        if (!strcmp(names->items[k].name, "."))
            assert_int_equal(inode_at(i, names->items[k].nid), at);
    free(names);
}

/* address: where its data begins; 0: where that of every small image does. */
static struct image random_image(uint64_t seed, unsigned paths, size_t memory, uint64_t address)
{
    struct image i = image_begin_with(memory);
    if (address)
        image_move(&i, address);
    for (unsigned k = 0; k < paths; k++)
        add_random(&i, &seed);
    image_end(&i);
    return i;
}

static void check_tree(const struct image *i)
{
    for (size_t k = 0; k < i->items.len; k++) {
        check_item(i, &i->items.items[k]);
        if (S_ISDIR(i->items.items[k].node.mode))
            check_directory(i, &i->items.items[k]);
    }
}

static void test_fs_erofs_random__trees_with_and_without_memory(void **state)
{
    for (uint64_t seed = 1; seed <= full_or(12, 6); seed++) {
        unsigned paths = seed % 4 ? 60 : 1200;
        struct image i = random_image(seed, paths, 0, 0), spilled = random_image(seed, paths, 4096, 0);
        check_tree(&i);
        check_by_fsck(&i);
        assert_int_equal(i.result.image_size, spilled.result.image_size);
        assert_memory_equal(i.data, spilled.data, i.result.image_size);
        image_free(&i);
        image_free(&spilled);
    }
}

/* Its data begin below the border, its metadata lie above it. */
static void test_fs_erofs_random__a_tree_around_16_tebibytes(void **state)
{
    struct image i = random_image(1, 200, 0, (UINT64_C(16) << 40) - CHUNK);
    assert_true(is_wide(&i));
    check_tree(&i);
    image_free(&i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_erofs_random__trees_with_and_without_memory),
        cmocka_unit_test(test_fs_erofs_random__a_tree_around_16_tebibytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
