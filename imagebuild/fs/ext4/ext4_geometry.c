/* A listing needs, at most, the blocks of its data and of the metadata region. A new image gets groups for twice
 * that, plus as much again but at most 2 TiB. The factor of two lets an image of the same size be rebuilt
 * in the parent's geometry even if none of the new data fits between what is kept. The rest is for growth.
 */
#include "imagebuild/fs/ext4/ext4_geometry.h"

#include <errno.h>

#include "base/error.h"

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

/* Return the blocks behind the front that the listing needs at most. */
static uint64_t needed_blocks(const struct fs_config *c)
{
    return c->bytes / EXT4_BLOCK + c->nodes + region_blocks(c);
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

int ext4_geometry_choose(const struct fs_config *config, struct ext4_geometry *out, bool *out_keeps)
{
    uint64_t groups = config->parent_size / EXT4_BLOCK / EXT4_GROUP_BLOCKS;
    *out_keeps = parent_does(config);
    int rc = *out_keeps ? 0 : choose_groups(config, &groups);
    if (!rc)
        *out = geometry_of(groups);
    return rc;
}

uint64_t ext4_geometry_data(const struct ext4_geometry *g, const struct fs_config *config)
{
    return GR_ALIGN_UP(g->front_end * EXT4_BLOCK, (uint64_t)config->chunk_size);
}

uint64_t ext4_geometry_data_max(const struct ext4_geometry *g, const struct fs_config *config)
{
    return (g->groups * EXT4_GROUP_BLOCKS - region_blocks(config)) * EXT4_BLOCK;
}
