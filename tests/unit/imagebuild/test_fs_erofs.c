/* erofs images of small trees, looked at byte by byte with a reader of the tests' own, and by fsck.erofs where it is.
 */
#include "unit/erofs_image.h"

static void test_fs_erofs__an_empty_tree_is_a_root(void **state)
{
    struct image i = image_begin();
    image_end(&i);
    struct names names;
    assert_int_equal(i.result.metadata_offset, CHUNK);
    assert_int_equal(i.result.metadata_len, BLOCK);
    assert_int_equal(i.result.image_size, CHUNK + BLOCK);
    assert_int_equal(le64_get(super(&i) + 16), 1);
    read_directory(&i, lookup(&i, ""), &names);
    assert_int_equal(names.count, 2);
    /* the root's parent is the root; a number of 0 would hide "." and ".." from readdir(3) */
    assert_int_equal(names.items[0].nid, 1);
    assert_int_equal(names.items[1].nid, 1);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_fs_erofs__superblock(void **state)
{
    struct image i = image_begin();
    image_end(&i);
    uint8_t *sb = i.data + 1024;
    uint32_t crc = le32_get(sb + 4);
    assert_int_equal(le32_get(sb), 0xE0F5E1E2);
    assert_int_equal(sb[12], 12);
    assert_int_equal(le16_get(sb + 14), 1);
    assert_int_equal((uint64_t)le32_get(sb + 36) * BLOCK, i.result.image_size);
    assert_int_equal((uint64_t)le32_get(sb + 40) * BLOCK, i.result.metadata_offset);
    assert_int_equal(le32_get(sb + 80), 0); /* nothing a Linux 5.4 does not know */
    assert_string_equal((char *)sb + 64, "granary");
    le32_put(sb + 4, 0);
    assert_int_equal(crc32c_raw(UINT32_MAX, sb, BLOCK - 1024), crc);
    image_free(&i);
}

static void test_fs_erofs__inodes_hold_what_the_nodes_say(void **state)
{
    struct image i = image_begin();
    add_file(&i, "d/file", 5000, 'x');
    struct node *n = &find(&i, "d/file", 6)->node;
    n->mode = S_IFREG | S_ISUID | 0751;
    n->uid = 70000;
    n->gid = UINT32_MAX - 1;
    n->mtime = -5;
    n->mtime_nsec = 999999999;
    add(&i, "device", S_IFBLK | 0660)->node.rdev = 0x10305;
    image_end(&i);
    const uint8_t *inode = i.data + lookup(&i, "d/file");
    assert_int_equal(le16_get(inode), 1); /* extended, plain */
    assert_int_equal(le16_get(inode + 4), S_IFREG | S_ISUID | 0751);
    assert_int_equal(le64_get(inode + 8), 5000);
    assert_int_equal(le32_get(inode + 16), CHUNK / BLOCK); /* bodies begin in chunk 1 */
    assert_int_equal(le32_get(inode + 24), 70000);
    assert_int_equal(le32_get(inode + 28), UINT32_MAX - 1);
    assert_int_equal((int64_t)le64_get(inode + 32), -5);
    assert_int_equal(le32_get(inode + 40), 999999999);
    assert_int_equal(le32_get(inode + 44), 1);
    assert_int_equal(*inode_data(&i, lookup(&i, "d/file"), 4999), 'x');
    assert_int_equal(*inode_data(&i, lookup(&i, "d/file"), 5000), 0);
    assert_int_equal(le32_get(i.data + lookup(&i, "d") + 44), 2);
    assert_int_equal(le32_get(i.data + lookup(&i, "") + 44), 3);
    assert_int_equal(le32_get(i.data + lookup(&i, "device") + 16), 0x10305);
    assert_int_equal(i.result.metadata_offset, 2 * CHUNK);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_fs_erofs__dots_stand_among_the_names(void **state)
{
    struct image i = image_begin();
    static const char *const files[] = {"!", "-", "...", "..a", ".a", "a", "\xff"};
    static const char *const expected[] = {"!", "-", ".", "..", "...", "..a", ".a", "a", "\xff"};
    for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
        add_file(&i, files[k], 0, 0);
    image_end(&i);
    struct names names;
    read_directory(&i, lookup(&i, ""), &names);
    assert_int_equal(names.count, GR_ARRAY_SIZE(expected));
    for (size_t k = 0; k < names.count; k++)
        assert_string_equal(names.items[k].name, expected[k]);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_fs_erofs__hard_links_share_an_inode(void **state)
{
    struct image i = image_begin();
    static const char *const paths[] = {"a/one", "b/two", "three"};
    for (size_t k = 0; k < 3; k++) {
        add_file(&i, paths[k], 10, 'l');
        find(&i, paths[k], strlen(paths[k]))->link = paths[0];
    }
    add_file(&i, "alone", 10, 'm');
    image_end(&i);
    uint64_t at = lookup(&i, "a/one");
    assert_int_equal(lookup(&i, "b/two"), at);
    assert_int_equal(lookup(&i, "three"), at);
    assert_int_equal(le32_get(i.data + at + 44), 3);
    assert_int_equal(le32_get(i.data + lookup(&i, "alone") + 44), 1);
    assert_int_equal(le64_get(super(&i) + 16), 5); /* root, a, b, the file, the other */
    check_by_fsck(&i);
    image_free(&i);
}

/* Directories whose entries end just before and just after what fits beside the inode, and a block. */
static void test_fs_erofs__directory_tails_at_every_border(void **state)
{
    struct image i = image_begin();
    char path[600], name[256];
    memset(name, 'n', 255);
    for (int len = 160; len <= 255; len++) {
        for (int k = 0; k < 18; k++) {
            snprintf(path, sizeof path, "d%03d/%c%.199s", len, 'a' + k, name);
            add_file(&i, path, 0, 0);
        }
        snprintf(path, sizeof path, "d%03d/z%.*s", len, len - 1, name);
        add_file(&i, path, 0, 0);
    }
    image_end(&i);
    struct names *names = malloc(sizeof *names);
    unsigned inlined = 0, plain = 0;
    for (int len = 160; len <= 255; len++) {
        snprintf(path, sizeof path, "d%03d", len);
        uint64_t at = lookup(&i, path);
        read_directory(&i, at, names);
        assert_int_equal(names->count, 21);
        assert_int_equal(strlen(names->items[20].name), len);
        inlined += le16_get(i.data + at) >> 1 == 2;
        plain += le16_get(i.data + at) >> 1 == 0;
    }
    assert_true(inlined > 10 && plain > 10);
    free(names);
    check_by_fsck(&i);
    image_free(&i);
}

static void test_fs_erofs__symlinks_inline_up_to_a_block(void **state)
{
    static const int lengths[] = {1, 59, 60, 4000, 4031, 4032, 4033, 4095};
    static char targets[GR_ARRAY_SIZE(lengths)][4097];
    struct image i = image_begin();
    char path[16];
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        memset(targets[k], 't', (size_t)lengths[k]);
        snprintf(path, sizeof path, "s%d", lengths[k]);
        add_symlink(&i, path, targets[k]);
    }
    image_end(&i);
    for (size_t k = 0; k < GR_ARRAY_SIZE(lengths); k++) {
        snprintf(path, sizeof path, "s%d", lengths[k]);
        uint64_t at = lookup(&i, path);
        assert_int_equal(le64_get(i.data + at + 8), lengths[k]);
        assert_int_equal(le16_get(i.data + at) >> 1, lengths[k] <= 4032 ? 2 : 0);
        assert_int_equal(*inode_data(&i, at, 0), 't');
        assert_int_equal(*inode_data(&i, at, (uint64_t)lengths[k] - 1), 't');
    }
    check_by_fsck(&i);
    image_free(&i);
}

static void test_fs_erofs__xattrs_of_any_length_never_split_an_inode(void **state)
{
    struct image i = image_begin();
    uint8_t value[5000];
    char path[16];
    memset(value, 'v', sizeof value);
    for (uint32_t len = 3900; len < 4300; len += 12) { /* inode and attributes end around a block's border */
        snprintf(path, sizeof path, "f%u", len);
        put_xattr(&add(&i, path, len % 24 ? S_IFREG | 0644 : S_IFDIR | 0755)->xattrs, "user.value", value, len);
    }
    image_end(&i);
    for (uint32_t len = 3900; len < 4300; len += 12) {
        snprintf(path, sizeof path, "f%u", len);
        check_xattr(&i, path, value, len);
    }
    check_by_fsck(&i);
    image_free(&i);
}

/* A directory's attributes are written when it begins, its inode and tail when it ends, its neighbours in between. */
static void test_fs_erofs__attributes_of_open_directories(void **state)
{
    static const char *const dirs[] = {"a", "a!", "a-", "a-b", "a/x", "a/x-", "b"};
    struct image i = image_begin();
    for (size_t k = 0; k < GR_ARRAY_SIZE(dirs); k++)
        put_xattr(&add(&i, dirs[k], S_IFDIR | 0755)->xattrs, "user.value", "0123456789", (uint32_t)k);
    image_end(&i);
    for (size_t k = 0; k < GR_ARRAY_SIZE(dirs); k++)
        check_xattr(&i, dirs[k], "0123456789", (uint32_t)k);
    check_by_fsck(&i);
    image_free(&i);
}

/* Metadata after 9 TiB: block numbers over 2^31, an index of three levels, in a sparse file for fsck. */
static void test_fs_erofs__metadata_far_up(void **state)
{
    const uint64_t size = UINT64_C(9) << 40;
    struct image i = image_begin();
    struct sink_result sink;
    add_file(&i, "f", size, 0);
    find(&i, "f", 1)->node.address = CHUNK;
    assert_int_equal(sink_write(i.sink, SINK_DATA, CHUNK, "begin", 5), 0);
    assert_int_equal(sink_write(i.sink, SINK_DATA, CHUNK + size - 3, "end", 3), 0);
    i.data_end = CHUNK + size;
    order(&i);
    assert_int_equal(finish(&i), 0);
    assert_int_equal(sink_finish(i.sink, i.result.image_size, &sink), 0);
    assert_int_equal(upload_flush(i.upload), 0);
    assert_int_equal(i.result.metadata_offset, CHUNK + size);
    assert_int_equal(sink.index_levels, 3);
    char path[] = "/tmp/granary-erofs-XXXXXX";
    struct read_back_file file = {.fd = mkstemp(path), .chunk_size = CHUNK};
    assert_true(file.fd >= 0);
    if (!ftruncate(file.fd, (off_t)i.result.image_size)) { /* some filesystems have no files of that size */
        read_back_node(i.store, &sink.index_root, sink.index_levels - 1, 0, read_back_into_file, &file);
        fsck_file(path);
    }
    close(file.fd);
    unlink(path);
    image_free(&i);
}

/* Make an image whose parent has its metadata at `parent`, with one file of `chunks` chunks. */
static struct image make_upon(uint64_t parent, unsigned chunks)
{
    const struct fs_config config = {.chunk_size = CHUNK, .parent_size = parent + CHUNK, .parent_data_end = parent};
    struct image i = image_begin_as(fs_erofs_new, &config);
    add_file(&i, "d/file", (uint64_t)chunks * CHUNK, 'x');
    add_symlink(&i, "link", "d/file");
    image_end(&i);
    return i;
}

static void test_fs_erofs__metadata_stays_where_the_parent_has_it(void **state)
{
    static const struct {
        uint64_t parent; /* its metadata's address, and that of the new image, in chunks */
        unsigned chunks, expected;
    } cases[] = {
        {9, 3, 9},                              /* there is room */
        {9, 8, 9},                              /* exactly */
        {9, 9, 12},                             /* none: the data ends at 10, and gets an eighth */
        {9, 16, 20},                            /* 17 and two more, rounded up */
        {2, 32, 38},                            /* 33 and four more */
        {0, 32, 33},                            /* no parent, no room */
        {49, 32, 49},                           /* 16 chunks of room: a quarter and eight more */
        {50, 32, 38},                           /* too much room */
        {(UINT64_C(16) << 40) / CHUNK, 32, 38}, /* likewise, far up */
    };
    for (size_t k = 0; k < GR_ARRAY_SIZE(cases); k++) {
        struct image i = make_upon(cases[k].parent * CHUNK, cases[k].chunks);
        assert_int_equal(i.result.metadata_offset, (uint64_t)cases[k].expected * CHUNK);
        assert_int_equal((uint64_t)le32_get(super(&i) + 40) * BLOCK, i.result.metadata_offset);
        assert_int_equal(*inode_data(&i, lookup(&i, "d/file"), CHUNK), 'x');
        check_by_fsck(&i);
        image_free(&i);
    }
}

static void test_fs_erofs__one_exbibyte_is_the_limit(void **state)
{
    struct image i = image_begin();
    order(&i);
    assert_true(i.fs->data_max < UINT64_C(1) << 60);
    i.data_end = UINT64_C(2) << 60;
    assert_int_equal(finish(&i), -EFBIG);
    assert_non_null(strstr(error_text(), "1 EiB"));
    image_free(&i);
    i = image_begin();
    order(&i);
    i.data_end = i.fs->data_max; /* no room after it for the metadata */
    assert_int_equal(finish(&i), -EFBIG);
    assert_non_null(strstr(error_text(), "1 EiB"));
    image_free(&i);
}

static void test_fs_erofs__block_numbers_of_32_bits_as_long_as_they_do(void **state)
{
    const struct fs_config upon = {.chunk_size = CHUNK, .parent_size = 2 * CHUNK, .parent_data_end = CHUNK};
    struct image i = image_begin_as(fs_erofs_new, &upon);
    order(&i);
    i.data_end = UINT64_C(15) << 40; /* an eighth more would take 48 bits */
    assert_int_equal(finish(&i), 0);
    assert_int_equal(i.result.metadata_offset, i.data_end);
    image_free(&i);
}

static void test_fs_erofs__a_body_without_its_address_is_noticed(void **state)
{
    static const uint64_t wrong[] = {0, BLOCK, CHUNK + 1, 2 * CHUNK, UINT64_MAX - 4095};
    for (size_t k = 0; k < GR_ARRAY_SIZE(wrong); k++) {
        struct image i = image_begin();
        add_file(&i, "f", 10, 0);
        find(&i, "f", 1)->node.address = wrong[k];
        i.data_end = 2 * CHUNK;
        order(&i);
        assert_int_equal(finish(&i), -EIO);
        image_free(&i);
    }
}

static int stop(void *arg)
{
    return --*(int *)arg > 0 ? 0 : -ECANCELED;
}

/* Finish an image of many files, ending it at the step of this number. */
static void stop_at(int steps)
{
    struct image i = image_begin();
    const struct fs_config config = {.chunk_size = CHUNK, .step = {.call = stop, .arg = &steps}};
    fs_free(i.fs);
    assert_int_equal(fs_erofs_new(&config, &i.fs), 0);
    struct node n = {.mode = S_IFDIR | 0755, .path = ""};
    assert_int_equal(nodes_add(i.nodes, &n), 0);
    for (uint32_t k = 1; k < 200000; k++) {
        char path[16];
        n = (struct node){.rank = k, .link = k, .mode = S_IFREG | 0644, .path = path};
        n.path_len = (size_t)snprintf(path, sizeof path, "%08u", k);
        assert_int_equal(nodes_add(i.nodes, &n), 0);
    }
    assert_int_equal(nodes_end(i.nodes), 0);
    assert_int_equal(finish(&i), -ECANCELED);
    image_free(&i);
}

/* There are 35 steps, six of them while inodes are placed. */
static void test_fs_erofs__a_build_that_stops_stops_it(void **state)
{
    stop_at(3);
    stop_at(35);
}

/* The bytes of one image, pinned: a change of the layout changes every image's digest and must be meant. */
static struct image make_golden(char letter)
{
    struct image i = image_begin();
    char path[300];
    for (int k = 0; k < 300; k++) {
        snprintf(path, sizeof path, "many/%d", k);
        add_file(&i, path, k % 3 ? 0 : 100, letter);
    }
    add_symlink(&i, "link", "many/7");
    image_end(&i);
    return i;
}

static void test_fs_erofs__golden_image(void **state)
{
    static const char expected[] = "ff0c7d93b7da22df557ba18d668b708e988c712111eb3eb06c55ebb4762f4415";
    struct image a = make_golden('a'), b = make_golden('b');
    char hex[DIGEST_HEX_SIZE];
    struct digest d = digest_of(a.data, a.result.image_size);
    assert_string_equal(digest_hex(&d, hex), expected);
    assert_int_equal(a.result.image_size, b.result.image_size);
    assert_memory_not_equal(super(&a) + 48, super(&b) + 48, 16); /* another content, another UUID */
    image_free(&a);
    image_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_erofs__an_empty_tree_is_a_root),
        cmocka_unit_test(test_fs_erofs__superblock),
        cmocka_unit_test(test_fs_erofs__inodes_hold_what_the_nodes_say),
        cmocka_unit_test(test_fs_erofs__dots_stand_among_the_names),
        cmocka_unit_test(test_fs_erofs__hard_links_share_an_inode),
        cmocka_unit_test(test_fs_erofs__directory_tails_at_every_border),
        cmocka_unit_test(test_fs_erofs__symlinks_inline_up_to_a_block),
        cmocka_unit_test(test_fs_erofs__xattrs_of_any_length_never_split_an_inode),
        cmocka_unit_test(test_fs_erofs__attributes_of_open_directories),
        cmocka_unit_test(test_fs_erofs__metadata_far_up),
        cmocka_unit_test(test_fs_erofs__metadata_stays_where_the_parent_has_it),
        cmocka_unit_test(test_fs_erofs__one_exbibyte_is_the_limit),
        cmocka_unit_test(test_fs_erofs__block_numbers_of_32_bits_as_long_as_they_do),
        cmocka_unit_test(test_fs_erofs__a_body_without_its_address_is_noticed),
        cmocka_unit_test(test_fs_erofs__a_build_that_stops_stops_it),
        cmocka_unit_test(test_fs_erofs__golden_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
