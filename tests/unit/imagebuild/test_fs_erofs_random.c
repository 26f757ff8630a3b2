/* erofs images of trees of any shape, every path compared with what went in; the same with next to no memory; and
 * chains of days, each image made upon the one before. */
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "unit/counts.h"
#include "unit/erofs_image.h"

/* How many, in a whole run and in a short one. Under the thread sanitizer, a tenth as fast, as in a short one: only the
 * sink has threads, and these run in other tests, too. */
static unsigned many_or(unsigned full, unsigned few)
{
#if defined(__SANITIZE_THREAD__)
    (void)full;
    return few;
#else
    return full_or(full, few);
#endif
}

#define FAR (UINT64_C(32) << 40) /* bytes; its block number is not that of the border of 48 bits */

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
    for (uint64_t seed = 1; seed <= many_or(12, 6); seed++) {
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

/* ------------------------------------------------------------------ days */

/* Not 0: bytes of the metadata are damaged. */
static uint64_t noise;

/* The metadata of the image `arg` as a build gets it. */
static int metadata_of(void *arg, struct scratch **out)
{
    const struct image *i = arg;
    const struct scratch_config config = {.memory = 1 << 20};
    assert_int_equal(scratch_new(&config, out), 0);
    assert_int_equal(scratch_write(*out, 0, i->data, BLOCK), 0);
    assert_int_equal(scratch_write(*out, BLOCK, image_at(i, i->result.metadata_offset), i->result.metadata_len), 0);
    for (uint64_t seed = noise, k = 0; noise && k < 200; k++) {
        const uint8_t byte = (uint8_t)draw(&seed);
        const uint64_t at = k % 20 ? draw(&seed) % scratch_len(*out) : 1024 + draw(&seed) % 128;
        assert_int_equal(scratch_write(*out, at, &byte, 1), 0);
    }
    return 0;
}

/* begin: where its data do, as image_move; CHUNK: where those of every small image do. */
static struct image begin_upon_at(struct image *parent, size_t memory, uint64_t begin)
{
    const struct fs_config config = {.chunk_size = CHUNK,
                                     .memory = memory,
                                     .parent_size = parent->result.image_size,
                                     .parent_data_end = parent->result.metadata_offset,
                                     .parent_metadata = metadata_of,
                                     .parent_arg = parent};
    struct image i = image_begin_as(fs_erofs_new, &config);
    if (begin != CHUNK)
        image_move(&i, begin);
    return i;
}

static struct image begin_upon(struct image *parent, size_t memory)
{
    return begin_upon_at(parent, memory, parent->begin);
}

/* Both images have the same bytes. */
static void check_equal(const struct image *a, const struct image *b)
{
    assert_int_equal(a->result.image_size, b->result.image_size);
    assert_int_equal(a->begin, b->begin);
    assert_int_equal(a->hole_len, b->hole_len);
    assert_memory_equal(a->data, b->data, CHUNK + a->result.image_size - a->begin - a->hole_len);
}

static bool is_below(const char *path, const char *dir)
{
    const size_t n = strlen(dir);
    return !strncmp(path, dir, n) && path[n] == '/';
}

/* Copy an item; with a seed, now and then with other attributes or another size. */
static void copy_item(struct image *to, const struct item *from, uint64_t *seed)
{
    static uint8_t value[4090];
    struct item *item = from->path[0] ? add_item(to, from->path, strlen(from->path), from->node.mode) : to->items.items;
    item->node.uid = from->node.uid;
    item->node.size = from->node.size;
    item->node.target_len = from->node.target_len;
    item->letter = from->letter;
    item->target = from->target;
    item->link = from->link;
    if (seed && draw(seed) % 20 == 0)
        put_xattr(&item->xattrs, "user.value", value, (uint32_t)(draw(seed) % sizeof value));
    else if (from->xattrs.len)
        assert_int_equal(bytes_append(&item->xattrs, from->xattrs.data, from->xattrs.len), 0);
    if (seed && S_ISREG(item->node.mode) && draw(seed) % 20 == 0)
        item->node.size = draw(seed) % 9000;
}

/* Another name for a file, after its first name in path order. */
static void add_link(struct image *i, uint64_t *seed)
{
    char path[80];
    const struct item *first = &i->items.items[draw(seed) % i->items.len];
    if (!S_ISREG(first->node.mode) || first->link)
        return;
    snprintf(path, sizeof path, "%s.l", first->path);
    if (find(i, path, strlen(path)))
        return;
    const struct item copy = *first;
    struct item *item = add_item(i, path, strlen(path), copy.node.mode);
    item->link = copy.path;
    item->node.uid = copy.node.uid;
    item->node.size = copy.node.size;
    item->letter = copy.letter;
    if (copy.xattrs.len)
        assert_int_equal(bytes_append(&item->xattrs, copy.xattrs.data, copy.xattrs.len), 0);
}

/* The day after: a path in `per` is removed, with all below it, some others changed, and `more` are new. */
static struct image next_day(struct image *before, uint64_t seed, unsigned per, unsigned more, size_t memory)
{
    struct image i = begin_upon(before, memory);
    const char *removed = NULL;
    for (size_t k = 0; k < before->items.len; k++) {
        const struct item *item = &before->items.items[k]; /* in path order, so a name that is a prefix comes first */
        const bool leave_out =
            (removed && is_below(item->path, removed)) || item->link || (*item->path && draw(&seed) % per == 0);
        if (leave_out && (!removed || !is_below(item->path, removed)) && S_ISDIR(item->node.mode))
            removed = item->path;
        const char *slash = strrchr(item->path, '/');
        if (!leave_out && (!slash || find(&i, item->path, (size_t)(slash - item->path))))
            copy_item(&i, item, &seed);
    }
    for (unsigned k = 0; k < more; k++)
        add_random(&i, &seed);
    for (unsigned k = 0; k < more / 4; k++)
        add_link(&i, &seed);
    image_end(&i);
    return i;
}

/* A day without a change gives the same image. */
static void check_unchanged(struct image *i)
{
    struct image again = begin_upon(i, 0);
    for (size_t k = 0; k < i->items.len; k++)
        copy_item(&again, &i->items.items[k], NULL);
    image_end(&again);
    check_equal(&again, i);
    image_free(&again);
}

struct piece {
    uint64_t from, to;
};

static int compare_pieces(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    return (a->from > b->from) - (a->from < b->from);
}

/* Inodes and blocks of an image do not overlap. */
static void check_disjoint(const struct image *i)
{
    VEC(struct piece) pieces = {0};
    for (size_t k = 0; k < i->items.len; k++) {
        const struct node *n = &i->items.items[k].node;
        if (n->link != n->rank)
            continue;
        const uint64_t at = lookup(i, i->items.items[k].path);
        const uint8_t *inode = image_at(i, at);
        const uint64_t size = le64_get(inode + 8), tail = le16_get(inode) >> 1 == 2 ? size % BLOCK : 0;
        const uint64_t blocks = ((uint64_t)le16_get(inode + 6) << 32 | le32_get(inode + 16)) * BLOCK;
        assert_int_equal(vec_push(&pieces, ((struct piece){at, at + INODE + xattr_size(inode) + tail})), 0);
        if (!S_ISREG(n->mode) && size > tail)
            assert_int_equal(vec_push(&pieces, ((struct piece){blocks, blocks + GR_ALIGN_UP(size - tail, BLOCK)})), 0);
    }
    qsort(pieces.items, pieces.len, sizeof *pieces.items, compare_pieces);
    for (size_t k = 1; k < pieces.len; k++)
        assert_true(pieces.items[k - 1].to <= pieces.items[k].from);
    assert_true(pieces.items[0].from >= i->result.metadata_offset + 32);
    assert_true(pieces.items[pieces.len - 1].to <= i->result.image_size);
    vec_release(&pieces);
}

/* Count the paths of both images, and of these the ones whose inodes are at the same place of the metadata. */
static void count_kept(const struct image *before, const struct image *now, unsigned *both, unsigned *kept)
{
    const bool numbered = le32_get(image_at(now, lookup(now, "")) + 20);
    for (size_t k = 0; k < now->items.len; k++) {
        const char *path = now->items.items[k].path;
        if (now->items.items[k].link)
            continue;
        if (!find(before, path, strlen(path))) { /* states nothing that lay in its place */
            assert_true(numbered || !le32_get(image_at(now, lookup(now, path)) + 20));
            continue;
        }
        ++*both;
        *kept +=
            lookup(now, path) - now->result.metadata_offset == lookup(before, path) - before->result.metadata_offset;
    }
}

static void test_fs_erofs_random__days_upon_days(void **state)
{
    unsigned both[2] = {0}, kept[2] = {0}; /* below 16 TiB, and above */
    for (uint64_t seed = 1; seed <= many_or(24, 4); seed += many_or(1, 3)) {
        const unsigned paths = seed % 4 ? 60 : many_or(1200, 400), days = many_or(10, seed % 4 ? 5 : 3);
        struct image before = random_image(seed, paths, 0, seed % 4 == 1 ? FAR - CHUNK : 0);
        const bool wide = is_wide(&before);
        assert_true(wide == (seed % 4 == 1));
        check_unchanged(&before);
        for (uint64_t day = 1; day <= days; day++) {
            const uint64_t today = seed * 1000 + day;
            const unsigned per = draw(&(uint64_t){today}) % 5 ? 30 : 3;
            print_message("seed %u, day %u (%u of %u inodes stayed)\n", (unsigned)seed, (unsigned)day, kept[wide],
                          both[wide]);
            struct image now = next_day(&before, today, per, paths / 20, 0);
            struct image spilled = next_day(&before, today, per, paths / 20, 4096);
            check_tree(&now);
            check_disjoint(&now);
            check_unchanged(&now);
            if (day == days && !wide) /* which older versions of it do not know */
                check_by_fsck(&now);
            count_kept(&before, &now, &both[wide], &kept[wide]);
            check_equal(&now, &spilled);
            image_free(&before);
            image_free(&spilled);
            before = now;
        }
        image_free(&before);
    }
    for (int wide = 0; wide < 2; wide++) {
        print_message("%u of %u inodes stayed\n", kept[wide], both[wide]);
        assert_true(kept[wide] > both[wide] * 2 / 5 && kept[wide] < both[wide]);
    }
}

/* The form of the superblock changes and changes back. The root is not at its usual place, and all inodes stay. */
static void test_fs_erofs_random__to_48_bits_and_back(void **state)
{
    static const uint64_t begins[] = {FAR - CHUNK, FAR, CHUNK};
    static const uint8_t value[4005] = {1};
    struct image before = image_begin();
    put_xattr(&find(&before, "", 0)->xattrs, "user.value", value, sizeof value);
    for (uint64_t seed = 9, k = 0; k < 60; k++)
        add_random(&before, &seed);
    image_end(&before);
    for (size_t day = 0; day < GR_ARRAY_SIZE(begins); day++) {
        unsigned both = 0, kept = 0;
        struct image now = begin_upon_at(&before, 0, begins[day]);
        for (size_t k = 0; k < before.items.len; k++)
            copy_item(&now, &before.items.items[k], NULL);
        image_end(&now);
        check_tree(&now);
        check_disjoint(&now);
        assert_true(is_wide(&now) == (begins[day] != CHUNK));
        count_kept(&before, &now, &both, &kept);
        assert_int_equal(kept, both);
        assert_int_equal(lookup(&now, ""), now.result.metadata_offset + BLOCK);
        assert_int_equal(erofs_super_root(super(&now), now.result.metadata_offset), BLOCK / 32);
        image_free(&before);
        before = now;
    }
    image_free(&before);
}

/* Whatever the parent's metadata says, the image is right. */
static void test_fs_erofs_random__a_parent_of_any_bytes(void **state)
{
    struct image before = random_image(4, 200, 0, 0);
    for (uint64_t seed = 1; seed <= many_or(200, 12); seed++) {
        noise = seed;
        struct image now = next_day(&before, seed, 30, 10, 0);
        noise = 0;
        check_tree(&now);
        check_disjoint(&now);
        check_unchanged(&now);
        image_free(&now);
    }
    image_free(&before);
}

/* A file takes the place of another; the days after are equal. Inodes with much room beside them stay. */
static void test_fs_erofs_random__places_that_are_kept(void **state)
{
    static const uint8_t value[2200] = {1};
    char path[16];
    struct image first = image_begin();
    add(&first, "a", S_IFREG | 0644);
    add(&first, "b", S_IFREG | 0644);
    add(&first, "c", S_IFREG | 0644);
    image_end(&first);
    struct image second = begin_upon(&first, 0);
    add(&second, "a", S_IFREG | 0644);
    add(&second, "bb", S_IFREG | 0644);
    add(&second, "c", S_IFREG | 0644);
    image_end(&second);
    assert_int_equal(lookup(&second, "bb"), lookup(&first, "b"));
    assert_int_equal(le32_get(image_at(&second, lookup(&second, "bb")) + 20), 0);
    check_unchanged(&second);
    image_free(&first);
    image_free(&second);
    first = image_begin();
    for (unsigned k = 0; k < 300; k++) {
        snprintf(path, sizeof path, "f%u", k);
        put_xattr(&add(&first, path, S_IFREG | 0644)->xattrs, "user.value", value, sizeof value);
    }
    image_end(&first);
    check_unchanged(&first);
    image_free(&first);
}

/* ------------------------------------------------------------------ directories that grow */

/* Add `count` files or directories of a directory, with names of 100 bytes, or fewer for directories. */
static void add_many(struct image *i, const char *dir, unsigned count)
{
    char path[160];
    for (unsigned k = 0; k < count; k++) {
        const bool directory = !strcmp(dir, "dirs");
        snprintf(path, sizeof path, "%s/%0*u", dir, directory ? 20 : 100, k);
        add(i, path, directory ? S_IFDIR | 0755 : S_IFREG | 0644);
    }
}

static uint64_t place_of(const struct image *i, const char *path)
{
    return lookup(i, path) - i->result.metadata_offset;
}

static uint64_t blocks_of(const struct image *i, const char *path)
{
    return (uint64_t)le32_get(i->data + lookup(i, path) + 16) * BLOCK - i->result.metadata_offset;
}

/* The day after `before`, with what the directories have. */
static struct image grown(struct image *before, unsigned files, unsigned dirs, bool root)
{
    static const uint8_t value[3000] = {1};
    struct image i = before ? begin_upon(before, 0) : image_begin();
    add(&i, "a", S_IFREG | 0644);
    add_many(&i, "dirs", dirs);
    add_many(&i, "files", files);
    add_many(&i, "others", files < 100 ? 3 : 100); /* follow what the first day has, and the second */
    if (before)
        add_many(&i, "zz", files < 100 ? 3 : 100);
    if (root)
        put_xattr(&find(&i, "", 0)->xattrs, "user.value", value, sizeof value);
    image_end(&i);
    for (size_t k = 0; k < i.items.len; k++)
        check_item(&i, &i.items.items[k]);
    check_disjoint(&i);
    check_unchanged(&i);
    check_by_fsck(&i);
    return i;
}

static void test_fs_erofs_random__directories_that_grow(void **state)
{
    struct image first = grown(NULL, 600, 300, false);
    /* the tail of `dirs` becomes a block, the blocks of `files` move, with room for two more */
    struct image second = grown(&first, 640, 350, false);
    assert_int_equal(place_of(&second, "dirs"), place_of(&first, "dirs"));
    assert_int_equal(le16_get(second.data + lookup(&second, "dirs")) >> 1, 0);
    assert_int_equal(place_of(&second, "a"), place_of(&first, "a"));
    assert_true(blocks_of(&second, "files") >= first.result.metadata_len);
    struct image third = grown(&second, 680, 350, false);
    assert_int_equal(blocks_of(&third, "files"), blocks_of(&second, "files"));
    /* the root stays, and what lay behind it moves */
    struct image fourth = grown(&third, 680, 350, true);
    assert_int_equal(place_of(&fourth, ""), place_of(&third, ""));
    assert_int_not_equal(place_of(&fourth, "a"), place_of(&third, "a"));
    /* next to nothing is left of it */
    struct image fifth = grown(&fourth, 3, 3, true);
    assert_true(fifth.result.metadata_len <= 2 * BLOCK);
    image_free(&first);
    image_free(&second);
    image_free(&third);
    image_free(&fourth);
    image_free(&fifth);
}

/* 60 directories of a block, and `extra` files in one of them; on the first day much more. */
static struct image of_one_block(struct image *before, unsigned extra)
{
    char path[160];
    struct image i = before ? begin_upon(before, 0) : image_begin();
    for (unsigned d = 0; d < 60; d++)
        for (unsigned k = 0; k < 38 + (d == 30 ? extra : 0); k++) {
            snprintf(path, sizeof path, "d%02u/%0100u", d, k);
            if (k == 0)
                add_item(&i, path, 3, S_IFDIR | 0755);
            add_item(&i, path, strlen(path), S_IFREG | 0644);
        }
    for (unsigned k = 0; !before && k < 12000; k++) {
        snprintf(path, sizeof path, "x%03u/%03u", k / 100, k % 100);
        if (k % 100 == 0)
            add_item(&i, path, 4, S_IFDIR | 0755);
        add_item(&i, path, strlen(path), S_IFREG | 0644);
    }
    image_end(&i);
    return i;
}

/* The room that a new layout gives is no reason for the next one. */
static void test_fs_erofs_random__the_days_after_a_new_layout(void **state)
{
    struct image before = of_one_block(NULL, 0);
    for (unsigned day = 0; day < 3; day++) {
        struct image now = of_one_block(&before, day);
        unsigned both = 0, kept = 0;
        if (day == 0)
            assert_true(now.result.metadata_len < before.result.metadata_len / 2);
        else
            count_kept(&before, &now, &both, &kept);
        assert_true(kept >= both * 9 / 10);
        image_free(&before);
        before = now;
    }
    image_free(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_erofs_random__days_upon_days),
        cmocka_unit_test(test_fs_erofs_random__to_48_bits_and_back),
        cmocka_unit_test(test_fs_erofs_random__a_parent_of_any_bytes),
        cmocka_unit_test(test_fs_erofs_random__places_that_are_kept),
        cmocka_unit_test(test_fs_erofs_random__directories_that_grow),
        cmocka_unit_test(test_fs_erofs_random__the_days_after_a_new_layout),
        cmocka_unit_test(test_fs_erofs_random__trees_with_and_without_memory),
        cmocka_unit_test(test_fs_erofs_random__a_tree_around_16_tebibytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
