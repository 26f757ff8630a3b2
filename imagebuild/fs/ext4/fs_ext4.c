/* The ext4 implementation of fs.h, written through libext2fs into its own space (ext4_space.h).
 * docs/reference/format-ext4.md has the bytes and the reasons.
 *
 *   block 0    | superblock | descriptors | block bitmaps | inode bitmaps | inode tables |     front, mostly zeros
 *   file data  | from the next chunk boundary on; the build writes it                  |
 *   region     | from the next chunk boundary on: directories, extent trees, attributes |
 *
 * The number of groups decides everything in front of the file data (ext4_geometry.h). Inode numbers follow from
 * ranks.
 *
 *   finish:  names -> sorter -> directories
 *            nodes in order -> inodes, block bitmap
 *            counts, bitmaps, superblock
 *            space -> sink
 *
 * Everything that libext2fs would take from the clock or at random is set, so that equal nodes give equal bytes.
 *
 * Memory: descriptors (64 bytes for 128 MiB of addresses), the block bitmap as extents, sorters and scratches.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "base/spill/sorter.h"
#include "imagebuild/fs/ext4/ext4_internal.h"

static struct ext4 *ext4_of(struct fs *f)
{
    return (struct ext4 *)f;
}

/* ------------------------------------------------------------------ the filesystem in libext2fs */

/* Set what ext2fs_initialize takes from its parameters. */
static void fill_parameters(const struct ext4_geometry *g, struct ext2_super_block *p)
{
    ext2fs_blocks_count_set(p, g->groups * EXT4_GROUP_BLOCKS);
    p->s_inodes_count = (uint32_t)(g->groups * g->inodes_per_group);
    p->s_log_block_size = p->s_log_cluster_size = 2;
    p->s_rev_level = EXT2_DYNAMIC_REV;
    p->s_inode_size = EXT4_INODE;
    p->s_first_ino = EXT4_FIRST_INODE;
    p->s_feature_compat =
        EXT2_FEATURE_COMPAT_DIR_INDEX | EXT4_FEATURE_COMPAT_SPARSE_SUPER2 | EXT2_FEATURE_COMPAT_EXT_ATTR;
    p->s_feature_incompat = EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_EXTENTS |
                            EXT4_FEATURE_INCOMPAT_64BIT | EXT4_FEATURE_INCOMPAT_FLEX_BG |
                            EXT4_FEATURE_INCOMPAT_CSUM_SEED;
    p->s_feature_ro_compat = EXT2_FEATURE_RO_COMPAT_LARGE_FILE | EXT4_FEATURE_RO_COMPAT_HUGE_FILE |
                             EXT4_FEATURE_RO_COMPAT_DIR_NLINK | EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE |
                             EXT4_FEATURE_RO_COMPAT_METADATA_CSUM | EXT4_FEATURE_RO_COMPAT_READONLY;
    p->s_log_groups_per_flex = 31; /* one flex group holds all groups, so that the tables lie together in front */
    p->s_desc_size = 64;
    p->s_errors = EXT2_ERRORS_CONTINUE;
}

/* Set what ext2fs_initialize does not take from its parameters, and what it took from the clock. */
static void fill_super(ext2_filsys e2)
{
    struct ext2_super_block *s = e2->super;
    e2->now = 1; /* 0 would mean the time of day */
    s->s_mkfs_time = s->s_lastcheck = s->s_wtime = 1;
    s->s_kbytes_written = 0;
    s->s_max_mnt_count = -1;
    s->s_checksum_type = EXT2_CRC32C_CHKSUM;
    /* fixed: a seed from the UUID, which depends on the content, would change every checksum with the content */
    s->s_checksum_seed = 0x6e617267;
    memcpy(s->s_hash_seed, "granary htree v1", sizeof s->s_hash_seed);
    memset(s->s_uuid, 0, sizeof s->s_uuid);
    s->s_def_hash_version = EXT2_HASH_HALF_MD4;
    s->s_flags = EXT2_FLAGS_UNSIGNED_HASH;
    s->s_default_mount_opts = EXT2_DEFM_XATTR_USER | EXT2_DEFM_ACL;
    s->s_min_extra_isize = s->s_want_extra_isize = sizeof(struct ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
    ext2fs_init_csum_seed(e2);
}

/* Place every group's bitmaps and inode table in the front, and mark the reserved inodes as used. */
static void place_tables(struct ext4 *e)
{
    const struct ext4_geometry *g = &e->geometry;
    ext2_filsys e2 = e->e2;
    for (dgrp_t i = 0; i < g->groups; i++) {
        ext2fs_block_bitmap_loc_set(e2, i, g->block_bitmaps + i);
        ext2fs_inode_bitmap_loc_set(e2, i, g->inode_bitmaps + i);
        ext2fs_inode_table_loc_set(e2, i, g->inode_tables + i * (g->inodes_per_group / EXT4_BLOCK_INODES));
        ext2fs_bg_flags_set(e2, i, EXT2_BG_INODE_ZEROED);
    }
    ext2fs_mark_block_bitmap_range2(e2->block_map, 0, (blk_t)g->front_end);
    for (ext2_ino_t i = 1; i < EXT4_FIRST_INODE; i++)
        if (i != EXT2_ROOT_INO)
            ext2fs_inode_alloc_stats2(e2, i, +1, 0);
}

/* Create the filesystem in the space, and check that libext2fs laid it out as ext4_geometry.c did. */
static int open_filesystem(struct ext4 *e)
{
    struct ext2_super_block parameters = {0};
    struct scratch_config scratch = {.dir = e->config.dir, .memory = e->config.memory};
    fill_parameters(&e->geometry, &parameters);
    int rc = ext4_space_init(&e->space, &scratch);
    if (!rc)
        rc = ext4_check(e, ext2fs_initialize("granary", EXT2_FLAG_64BITS | EXT2_FLAG_EXCLUSIVE, &parameters,
                                             &ext4_space_manager, &e->e2));
    if (rc)
        return rc;
    const struct ext2_super_block *s = e->e2->super;
    if (e->e2->group_desc_count != e->geometry.groups || s->s_inodes_per_group != e->geometry.inodes_per_group ||
        e->e2->desc_blocks != e->geometry.descriptor_blocks)
        return error_set(-EIO, "ext4: libext2fs plans another geometry: a bug, nothing was published");
    e->e2->io->private_data = &e->space;
    fill_super(e->e2);
    place_tables(e);
    return 0;
}

/* ------------------------------------------------------------------ inodes */

/* Counts the names of hard-linked files: a sorter of first names' ranks, one record a name. */
struct links {
    struct sorter *sorter;
    uint32_t rank, count, next_rank;
    bool more;
};

/* Note a name of a hard-linked file. */
static int links_add(struct links *l, const struct node *n)
{
    uint32_t key = htobe32(n->link);
    return n->linked || n->link != n->rank ? sorter_add(l->sorter, &key, sizeof key, NULL, 0) : 0;
}

/* Read the next record ahead. */
static int links_pull(struct links *l)
{
    struct sorter_record r;
    int rc = sorter_next(l->sorter, &r);
    l->more = rc == 1;
    if (l->more) {
        memcpy(&l->next_rank, r.key, sizeof l->next_rank);
        l->next_rank = be32toh(l->next_rank);
    }
    return rc < 0 ? rc : 0;
}

static int links_stray(void)
{
    return error_set(-EIO, "ext4: a further name without its first: a bug, nothing was published");
}

/* Return in *out how many names the file with this first name has. Called in the order of ranks. */
static int links_count(struct links *l, const struct node *n, uint32_t *out)
{
    int rc = 0;
    *out = n->linked ? 0 : 1;
    while (!rc && n->linked && l->more && l->next_rank == n->rank) {
        ++*out;
        rc = links_pull(l);
    }
    return !rc && !*out ? links_stray() : rc;
}

/* Mark the blocks of a file as used. Equal files share blocks, which ext4 has a feature flag for. */
static int mark_content(struct ext4 *e, const struct node *n, uint64_t data_end)
{
    uint64_t block = n->address / EXT4_BLOCK, left = (n->size + EXT4_BLOCK - 1) / EXT4_BLOCK;
    if (!S_ISREG(n->mode) || !n->size || n->link != n->rank)
        return 0;
    if (n->address % EXT4_BLOCK || n->address < e->fs.data_begin || n->address > data_end ||
        n->size > data_end - n->address)
        return error_set(-EIO, "ext4: a file of %llu bytes has address %llu: a bug, nothing was published",
                         (unsigned long long)n->size, (unsigned long long)n->address);
    while (left) {
        blk_t some = (blk_t)GR_MIN(left, (uint64_t)1 << 30);
        if (!ext2fs_test_block_bitmap_range2(e->e2->block_map, block, some))
            ext2fs_set_feature_shared_blocks(e->e2->super);
        ext2fs_mark_block_bitmap_range2(e->e2->block_map, block, some);
        block += some;
        left -= some;
    }
    return 0;
}

/* Hash everything that a node says, for the UUID. */
static void hash_node(struct hasher *h, const struct node *n)
{
    uint8_t fields[60];
    le32_put(fields, n->rank);
    le32_put(fields + 4, n->link);
    le32_put(fields + 8, n->mode);
    le32_put(fields + 12, n->uid);
    le32_put(fields + 16, n->gid);
    le32_put(fields + 20, n->rdev);
    le64_put(fields + 24, (uint64_t)n->mtime);
    le32_put(fields + 32, n->mtime_nsec);
    le64_put(fields + 36, n->size);
    le64_put(fields + 44, n->address);
    le32_put(fields + 52, (uint32_t)n->path_len);
    le32_put(fields + 56, (uint32_t)n->xattrs_len);
    hasher_update(h, fields, sizeof fields);
    hasher_update(h, n->content.b, DIGEST_SIZE);
    hasher_update(h, n->path, n->path_len);
    hasher_update(h, n->xattrs, n->xattrs_len);
    hasher_update(h, n->target, S_ISLNK(n->mode) ? n->target_len : 0);
}

/* Write a node's inode, unless it is a further name. */
static int write_node(struct ext4 *e, const struct node *n, struct ext4_dirs *dirs, struct links *links)
{
    struct ext4_dir dir;
    uint32_t count;
    if (n->link != n->rank)
        return 0;
    int rc = S_ISDIR(n->mode) ? ext4_dirs_next(dirs, n->rank, &dir) : links_count(links, n, &count);
    if (rc)
        return rc;
    return S_ISDIR(n->mode) ? ext4_inode_write(e, n, dir.links, &dir) : ext4_inode_write(e, n, count, NULL);
}

/* Set the UUID: a digest of all nodes, so that it follows from the content. RFC 9562, version 8. */
static void put_uuid(struct ext4 *e, struct hasher *hash)
{
    struct digest d = hasher_finish(hash);
    d.b[6] = (d.b[6] & 0x0f) | 0x80; /* version 8: vendor-specific */
    d.b[8] = (d.b[8] & 0x3f) | 0x80; /* variant of RFC 9562 */
    memcpy(e->e2->super->s_uuid, d.b, sizeof e->e2->super->s_uuid);
}

/* Write all inodes, in the order of ranks. */
static int write_inodes(struct ext4 *e, const struct nodes *nodes, uint64_t data_end, struct ext4_dirs *dirs,
                        struct links *links)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    CLEANUP(cleanup_hasher) struct hasher *hash = hasher_new();
    struct node n;
    uint64_t done = 0;
    int rc = hash ? nodes_cursor_new(nodes, &cursor) : error_no_memory();
    if (!rc)
        rc = sorter_sort(links->sorter);
    if (!rc)
        rc = links_pull(links);
    while (!rc && (rc = nodes_next(cursor, &n)) == 1) {
        hash_node(hash, &n);
        rc = mark_content(e, &n, data_end);
        if (!rc)
            rc = write_node(e, &n, dirs, links);
        if (!rc)
            rc = ext4_step(e, ++done);
    }
    if (!rc && links->more)
        rc = links_stray();
    if (!rc)
        put_uuid(e, hash);
    return rc;
}

/* Add all names to the directories and to the counts of links. */
static int add_names(struct ext4 *e, const struct nodes *nodes, struct ext4_dirs *dirs, struct links *links)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct node n;
    uint64_t done = 0;
    int rc = nodes_cursor_new(nodes, &cursor);
    while (!rc && (rc = nodes_next(cursor, &n)) == 1) {
        rc = ext4_dirs_add(dirs, &n);
        if (!rc)
            rc = links_add(links, &n);
        if (!rc)
            rc = ext4_step(e, ++done);
    }
    return rc;
}

/* Write directories first: their inodes need to know the blocks. */
static int write_tree(struct ext4 *e, const struct nodes *nodes, uint64_t data_end)
{
    CLEANUP(cleanup_ext4_dirs) struct ext4_dirs *dirs = NULL;
    CLEANUP(cleanup_sorter) struct sorter *sorter = NULL;
    const struct sorter_config config = {.dir = e->config.dir, .memory = e->config.memory};
    struct links links = {0};
    int rc = sorter_new(&config, &sorter);
    links.sorter = sorter;
    if (!rc)
        rc = ext4_dirs_new(e, &dirs);
    if (!rc)
        rc = add_names(e, nodes, dirs, &links);
    if (!rc)
        rc = ext4_dirs_write(dirs);
    return rc ? rc : write_inodes(e, nodes, data_end, dirs, &links);
}

/* ------------------------------------------------------------------ the front */

/* Count the free blocks of every group. A group without used blocks keeps its "bitmap unwritten" flag. */
static int count_blocks(struct ext4 *e)
{
    ext2_filsys e2 = e->e2;
    uint64_t free_blocks = 0;
    int rc = 0;
    for (dgrp_t i = 0; !rc && i < e->geometry.groups; i++) {
        blk64_t used = 0, first = (blk64_t)i * EXT4_GROUP_BLOCKS;
        rc = ext4_check(e, ext2fs_count_used_clusters(e2, first, first + EXT4_GROUP_BLOCKS - 1, &used));
        if (used)
            ext2fs_bg_flags_clear(e2, i, EXT2_BG_BLOCK_UNINIT);
        ext2fs_bg_free_blocks_count_set(e2, i, (uint32_t)(EXT4_GROUP_BLOCKS - used));
        ext2fs_group_desc_csum_set(e2, i);
        free_blocks += EXT4_GROUP_BLOCKS - used;
    }
    ext2fs_free_blocks_count_set(e2->super, free_blocks);
    return rc;
}

/* Write counts, bitmaps, descriptors and superblock, and close. */
static int close_filesystem(struct ext4 *e)
{
    int rc = count_blocks(e);
    ext2fs_mark_super_dirty(e->e2);
    ext2fs_mark_bb_dirty(e->e2);
    ext2fs_mark_ib_dirty(e->e2);
    return rc ? rc : ext4_check(e, ext2fs_close_free(&e->e2));
}

/* ------------------------------------------------------------------ the vtable */

/* Write the whole filesystem. */
static int write_all(struct ext4 *e, const struct nodes *nodes, uint64_t data_end, struct sink *sink,
                     struct fs_result *out)
{
    uint64_t end = GR_ALIGN_UP(GR_MAX(data_end, e->fs.data_begin), (uint64_t)e->config.chunk_size);
    uint64_t begin = end / EXT4_BLOCK;
    e->next = begin;
    e->space.front_end = e->geometry.front_end;
    e->space.region_begin = begin;
    e->space.region_end = e->geometry.groups * EXT4_GROUP_BLOCKS;
    if (nodes_rank_end(nodes) + (uint64_t)EXT4_FIRST_INODE > e->geometry.groups * e->geometry.inodes_per_group ||
        begin > e->space.region_end)
        return error_set(-EIO, "ext4: more files or bytes than were listed: a bug, nothing was published");
    int rc = open_filesystem(e);
    if (!rc)
        rc = write_tree(e, nodes, data_end);
    if (!rc)
        rc = close_filesystem(e);
    if (!rc)
        rc = ext4_space_emit(&e->space, sink, &out->front_len);
    out->image_size = e->space.region_end * EXT4_BLOCK;
    out->metadata_offset = end;
    out->metadata_len = (e->next - begin) * EXT4_BLOCK;
    out->xattrs_skipped = e->xattrs_skipped;
    return rc;
}

static int ext4_finish(struct fs *f, const struct nodes *nodes, uint64_t data_end, struct sink *sink,
                       struct fs_result *out)
{
    struct ext4 *e = ext4_of(f);
    int rc = write_all(e, nodes, data_end, sink, out);
    if (e->e2)
        ext2fs_free(steal_ptr(&e->e2));
    ext4_space_release(&e->space);
    return rc;
}

static void ext4_free(struct fs *f)
{
    free(ext4_of(f));
}

static const struct fs_ops ext4_ops = {.finish = ext4_finish, .free = ext4_free};

int fs_ext4_new(const struct fs_config *config, struct fs **out)
{
    CLEANUP_FREE struct ext4 *e = calloc(1, sizeof *e);
    if (!e)
        return error_no_memory();
    int rc = ext4_geometry_choose(config, &e->geometry, &e->fs.keeps);
    if (rc)
        return rc;
    initialize_ext2_error_table(); /* texts for error_message */
    e->fs.ops = &ext4_ops;
    e->config = *config;
    e->fs.data_begin = ext4_geometry_data(&e->geometry, config);
    e->fs.data_max = ext4_geometry_data_max(&e->geometry, config);
    e->fs.limit = "the room this ext4 image has, chosen by what was listed";
    *out = &steal_ptr(&e)->fs;
    return 0;
}
