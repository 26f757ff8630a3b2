/* The ext4 implementation of fs.h, written through libext2fs into its own space (ext4_space.c).
 * docs/reference/format-ext4.md has the bytes and the reasons.
 *
 *   block 0    | superblock | descriptors | block bitmaps | inode bitmaps | inode tables |     front, mostly zeros
 *   file data  | from the next chunk boundary on; the build writes it                  |
 *   region     | from the next chunk boundary on: directories, extent trees, attributes |
 *
 * The number of groups decides everything in front of the file data. Inode numbers follow from ranks.
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

/* ------------------------------------------------------------------ the size of the image */

/* The number of groups is chosen well above what the listing needs: unused groups cost nothing, and a rebuild that
 * keeps the number keeps every address. A listing needs, at most, the blocks of its data and of the metadata region. A
 * new image gets groups for twice that, plus as much again but at most 2 TiB. The factor of two lets an image of the
 * same size be rebuilt in the parent's geometry even if none of the new data fits between what is kept. The rest is for
 * growth.
 */

enum {
    GROUPS_MAX = 1 << 20, /* 128 TiB of addresses */
    GROUPS_MIN = 2,
    GROUP_INODES_MAX = 8 * EXT4_BLOCK, /* what one block of bitmap covers */
    BLOCK_DESCRIPTORS = EXT4_BLOCK / 64,
    GROUP_DATA = 30700, /* blocks of a group left for file data and region; a little less than there are */
    NODE_BLOCKS = 3,    /* of the region, a node at most: its name, a directory's or long link's block, attributes */
};

static const uint64_t spare_blocks_max = (UINT64_C(2) << 40) / EXT4_BLOCK;

/* Lay out the front for a number of groups. Inode numbers have 32 bits, so many groups get fewer inodes each. */
static struct ext4_geometry geometry_of(uint64_t groups)
{
    struct ext4_geometry g = {.groups = groups, .inodes_per_group = GROUP_INODES_MAX};
    if (groups * GROUP_INODES_MAX > UINT32_MAX)
        g.inodes_per_group = (uint32_t)(UINT32_MAX / groups) & ~(uint32_t)(EXT4_BLOCK_INODES - 1);
    g.descriptor_blocks = (groups + BLOCK_DESCRIPTORS - 1) / BLOCK_DESCRIPTORS;
    g.block_bitmaps = 1 + g.descriptor_blocks;
    g.inode_bitmaps = g.block_bitmaps + groups;
    g.inode_tables = g.inode_bitmaps + groups;
    g.front_end = g.inode_tables + groups * (g.inodes_per_group / EXT4_BLOCK_INODES);
    return g;
}

/* Return the blocks that the region needs at most: what every node may need, and extent trees. */
static uint64_t region_blocks(const struct fs_config *c)
{
    return NODE_BLOCKS * c->nodes + c->bytes / EXT4_BLOCK / 1024 + c->chunk_size / EXT4_BLOCK + 1024;
}

/* Return the blocks after the front that the listing needs at most. */
static uint64_t needed_blocks(const struct fs_config *c)
{
    return c->bytes / EXT4_BLOCK + c->nodes + c->gaps / EXT4_BLOCK + region_blocks(c);
}

/* Return whether the parent's geometry is large enough, even if none of the new data fits between what is kept. */
static bool parent_does(const struct fs_config *c)
{
    const uint64_t group_size = (uint64_t)EXT4_GROUP_BLOCKS * EXT4_BLOCK;
    if (!c->parent_size || c->parent_size % group_size || c->parent_size / group_size > GROUPS_MAX)
        return false;
    uint64_t end = GR_ALIGN_UP(c->parent_data_end, (uint64_t)EXT4_BLOCK) / EXT4_BLOCK;
    struct ext4_geometry g = geometry_of(c->parent_size / group_size);
    return end + needed_blocks(c) <= c->parent_size / EXT4_BLOCK &&
           c->nodes + EXT4_FIRST_INODE < g.groups * g.inodes_per_group;
}

/* Round up to a number of four significant bits, so that a listing that changed a little between two runs of a build
 * mostly gets the same geometry. The second run can then use what the first one stored. */
static uint64_t round_up(uint64_t groups)
{
    uint64_t step = 1;
    while (groups / step >= 16)
        step *= 2;
    return GR_ALIGN_UP(groups, step);
}

/* Choose the number of groups for a new image. */
static int choose_groups(const struct fs_config *c, uint64_t *out)
{
    uint64_t needed = needed_blocks(c), capacity = (uint64_t)GROUPS_MAX * GROUP_DATA;
    if (needed > capacity)
        return error_set(-EFBIG, "ext4: %llu files of %llu bytes are over its limit of 128 TiB; divide the dataset",
                         (unsigned long long)c->nodes, (unsigned long long)c->bytes);
    uint64_t wanted = 2 * needed + GR_MIN(2 * needed, spare_blocks_max);
    *out = GR_MIN(round_up(GR_MIN(wanted, capacity) / GROUP_DATA + GROUPS_MIN), (uint64_t)GROUPS_MAX);
    return 0;
}

/* Choose the geometry for what config says was listed. *out_keeps: it is the parent's, so the parent's data can stay.
 * -EFBIG: over the limit of 128 TiB. */
static int ext4_geometry_choose(const struct fs_config *config, struct ext4_geometry *out, bool *out_keeps)
{
    uint64_t groups = config->parent_size / EXT4_BLOCK / EXT4_GROUP_BLOCKS;
    *out_keeps = parent_does(config);
    int rc = *out_keeps ? 0 : choose_groups(config, &groups);
    if (!rc)
        *out = geometry_of(groups);
    return rc;
}

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

/* Create the filesystem in the space, and check that libext2fs laid it out as planned. */
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
    e->fs.data_begin = GR_ALIGN_UP(e->geometry.front_end * EXT4_BLOCK, (uint64_t)config->chunk_size);
    /* the rest is for metadata */
    e->fs.data_max = (e->geometry.groups * EXT4_GROUP_BLOCKS - region_blocks(config)) * EXT4_BLOCK;
    e->fs.limit = "the room this ext4 image has, chosen by what was listed";
    *out = &steal_ptr(&e)->fs;
    return 0;
}
