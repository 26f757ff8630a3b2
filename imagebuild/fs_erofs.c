/* erofs behind bodies that lie where the build put them: all metadata in one region on a chunk boundary, the superblock
 * alone in chunk 0.
 *
 *   chunk 0        chunk 1 ...             chunk boundary
 *   | superblock | bodies, 4 KiB-aligned | inodes, root first | directory and symlink blocks | end
 *
 * Three passes. The first walks the nodes and says what each inode needs; a sort brings the inodes into their order on
 * disk, directory by directory, a directory's children side by side, so that the second pass gives each its place. The
 * third walks the nodes again, in path order, and writes every inode and block at its place in a scratch, which then
 * goes to the sink from one end to the other. What the third pass finds is compared with what the first one said.
 *
 * An inode, its attributes and its inline tail share one block; when they cannot, the tail becomes a block; attributes
 * longer than a block run on into the next, which erofs allows, but the inode itself never straddles one.
 *
 * In memory: 8 bytes a node (inode number, first block), 8 more for each file of several names, the sorter's and the
 * scratch's buffers, the open directories (erofs_walk.h). All positions here count from the region's start.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "base/sorter.h"
#include "base/vec.h"
#include "imagebuild/erofs_walk.h"
#include "imagebuild/erofs_xattr.h"
#include "imagebuild/fs.h"

enum { GATHER_MAX = 64 << 10, COPY_PIECE = 1 << 20, STEP_NODES = 1 << 15 };

/* A file of several names, by its first. */
struct linked {
    uint32_t rank, names;
};

/* What a pass says about the inodes, to be compared with what the other said. */
struct tally {
    uint64_t inodes, sum;
};

struct erofs {
    struct fs fs;
    struct fs_config config;
    uint64_t bodies_end;
    VEC(struct linked) links; /* by rank */
    struct sorter *order;
    uint32_t *nids, *blocks; /* by rank; blocks: from the first behind the inodes */
    uint64_t inodes_end, end;
    struct tally planned, written;
    unsigned until_step;
    struct scratch *region;
    struct bytes gathered; /* neighbours on their way to the region, */
    uint64_t gathered_at;  /* from here */
    struct bytes xattrs;   /* of one inode */
    struct hasher *hash;
};

/* The inode counts them in units of 4 bytes, in 16 bits. */
static_assert(NODE_XATTRS_MAX / 4 < UINT16_MAX, "extended attributes that an inode cannot state");

/* Block numbers have 32 bits. */
#define IMAGE_MAX ((uint64_t)(UINT32_MAX - 1) * EROFS_BLOCK)

static int out_of_memory(void)
{
    return error_set(-ENOMEM, "build: out of memory");
}

static int bug(const char *what)
{
    return error_set(-EIO, "erofs: %s: a bug, nothing was published", what);
}

static int too_large(const struct erofs *e)
{
    return error_set(-EFBIG, "build: the image would pass %s; divide the dataset into several images", e->fs.limit);
}

/* Every inode passes here, in both passes. */
static int count(struct erofs *e, struct tally *t, const struct erofs_inode *i)
{
    uint64_t said = (uint64_t)i->rank << 32 ^ (uint64_t)erofs_inode_need(i) << 24 ^ i->blocks;
    t->inodes++;
    t->sum += said * UINT64_C(0x9E3779B97F4A7C15) ^ said >> 29;
    if (!e->config.step || e->until_step++ < STEP_NODES)
        return 0;
    e->until_step = 0;
    return e->config.step(e->config.step_arg);
}

/* ------------------------------------------------------------------ pass 1: what each inode needs */

struct placing {
    uint32_t parent, rank; /* the key, big-endian */
};

static int plan(struct erofs *e, const struct erofs_inode *i)
{
    struct placing key = {htobe32(i->parent), htobe32(i->rank)};
    uint8_t value[8];
    if (i->blocks > UINT32_MAX)
        return too_large(e);
    le32_put(value, erofs_inode_need(i));
    le32_put(value + 4, (uint32_t)i->blocks);
    return sorter_add(e->order, &key, sizeof key, value, sizeof value);
}

static int plan_leaf(void *arg, struct erofs_inode *i, const struct node *n)
{
    struct erofs *e = arg;
    struct linked link = {n->rank, 1};
    if (n->linked && vec_push(&e->links, link))
        return out_of_memory();
    int rc = count(e, &e->planned, i);
    return rc ? rc : plan(e, i);
}

static int compare_links(const void *key, const void *item)
{
    uint32_t rank = *(const uint32_t *)key, other = ((const struct linked *)item)->rank;
    return (rank > other) - (rank < other);
}

static struct linked *find_link(const struct erofs *e, uint32_t rank)
{
    return e->links.len ? bsearch(&rank, e->links.items, e->links.len, sizeof *e->links.items, compare_links) : NULL;
}

static int plan_again(void *arg, const struct node *n)
{
    struct linked *link = find_link(arg, n->link);
    if (!link)
        return bug("a hard link without its first name");
    link->names++;
    return 0;
}

static int plan_enter(void *arg, const struct erofs_inode *dir, const struct node *n)
{
    return 0;
}

static int plan_leave(void *arg, const struct erofs_inode *dir, const uint8_t *last)
{
    struct erofs *e = arg;
    int rc = count(e, &e->planned, dir);
    return rc ? rc : plan(e, dir);
}

static const struct erofs_walk_ops planning = {
    .leaf = plan_leaf, .again = plan_again, .enter = plan_enter, .leave = plan_leave};

/* ------------------------------------------------------------------ pass 2: where it goes */

static int place_inode(struct erofs *e, uint32_t rank, uint32_t need)
{
    uint64_t at = GR_ALIGN_UP(e->end, (uint64_t)EROFS_NID_UNIT);
    uint32_t room = EROFS_BLOCK - (uint32_t)(at % EROFS_BLOCK);
    if (room < (need <= EROFS_BLOCK ? need : EROFS_INODE_SIZE))
        at += room;
    if (at / EROFS_NID_UNIT > UINT32_MAX)
        return error_set(-EFBIG, "build: more than 128 GiB of inodes; divide the dataset into several images");
    e->nids[rank] = (uint32_t)(at / EROFS_NID_UNIT);
    e->end = at + need;
    return 0;
}

static int place(struct erofs *e)
{
    uint64_t blocks = 0;
    struct sorter_record r;
    struct placing key;
    int rc = sorter_sort(e->order);
    if (rc)
        return rc;
    e->end = EROFS_NID_ROOT * EROFS_NID_UNIT;
    while ((rc = sorter_next(e->order, &r)) > 0) {
        memcpy(&key, r.key, sizeof key);
        uint32_t rank = be32toh(key.rank);
        rc = place_inode(e, rank, le32_get(r.value));
        if (rc)
            return rc;
        if (le32_get(r.value + 4)) /* most have none: their pages of the array stay untouched */
            e->blocks[rank] = (uint32_t)blocks;
        blocks += le32_get(r.value + 4);
        if (blocks > UINT32_MAX)
            return too_large(e);
    }
    e->inodes_end = GR_ALIGN_UP(e->end, (uint64_t)EROFS_BLOCK);
    e->end = e->inodes_end + blocks * EROFS_BLOCK;
    return rc;
}

/* ------------------------------------------------------------------ pass 3: writing */

static uint64_t metadata_of(const struct erofs *e)
{
    return GR_ALIGN_UP(e->bodies_end, (uint64_t)e->config.chunk_size);
}

static int flush(struct erofs *e)
{
    int rc = e->gathered.len ? scratch_write(e->region, e->gathered_at, e->gathered.data, e->gathered.len) : 0;
    bytes_clear(&e->gathered);
    return rc;
}

/* Do the bytes at `at` belong behind what is gathered? An inode may: between it and the end of the one before is
 * padding only, less than a unit. Nothing else may, since a directory's attributes are written long before its tail. */
static bool follows(const struct erofs *e, uint64_t at, size_t len)
{
    uint64_t end = e->gathered_at + e->gathered.len;
    if (at < end || e->gathered.len + len > GATHER_MAX)
        return false;
    return at == end || (at % EROFS_NID_UNIT == 0 && at - end < EROFS_NID_UNIT);
}

/* Children of one directory stand side by side and mostly come one behind the other: they are written together. */
static int emit(struct erofs *e, uint64_t at, const void *data, size_t len)
{
    uint8_t *padding;
    int rc = 0;
    if (follows(e, at, len)) {
        rc = bytes_extend(&e->gathered, at - e->gathered_at - e->gathered.len, &padding);
    } else {
        rc = flush(e);
        e->gathered_at = at;
    }
    return rc ? rc : bytes_append(&e->gathered, data, len);
}

static uint64_t block_position(const struct erofs *e, uint32_t rank, uint64_t number)
{
    return e->inodes_end + (e->blocks[rank] + number) * EROFS_BLOCK;
}

static uint32_t inode_union(const struct erofs *e, const struct erofs_inode *i)
{
    if (S_ISCHR(i->mode) || S_ISBLK(i->mode))
        return i->rdev;
    if (i->blocks)
        return (uint32_t)((metadata_of(e) + block_position(e, i->rank, 0)) / EROFS_BLOCK);
    return S_ISREG(i->mode) && i->size ? (uint32_t)(i->address / EROFS_BLOCK) : EROFS_NO_BLOCK;
}

static void encode_inode(const struct erofs *e, const struct erofs_inode *i, uint8_t out[EROFS_INODE_SIZE])
{
    unsigned layout = i->tail ? EROFS_FLAT_INLINE : EROFS_FLAT_PLAIN;
    memset(out, 0, EROFS_INODE_SIZE);
    le16_put(out, (uint16_t)(1 | layout << 1)); /* 1: extended */
    le16_put(out + 2, erofs_xattr_count_field(i->xattr_size));
    le16_put(out + 4, i->mode);
    le64_put(out + 8, i->size);
    le32_put(out + 16, inode_union(e, i));
    le32_put(out + 20, (uint32_t)e->written.inodes); /* for 32-bit stat only */
    le32_put(out + 24, i->uid);
    le32_put(out + 28, i->gid);
    le64_put(out + 32, (uint64_t)i->mtime);
    le32_put(out + 40, i->mtime_nsec);
    le32_put(out + 44, i->nlink);
}

static uint64_t inode_position(const struct erofs *e, const struct erofs_inode *i)
{
    return (uint64_t)e->nids[i->rank] * EROFS_NID_UNIT;
}

static int emit_xattrs(struct erofs *e, const struct erofs_inode *i, const struct node *n)
{
    bytes_clear(&e->xattrs);
    int rc = erofs_xattr_encode(n->xattrs, n->xattrs_len, &e->xattrs);
    if (rc || !i->xattr_size)
        return rc;
    return emit(e, inode_position(e, i) + EROFS_INODE_SIZE, e->xattrs.data, e->xattrs.len);
}

static int emit_inode(struct erofs *e, const struct erofs_inode *i)
{
    uint8_t inode[EROFS_INODE_SIZE];
    int rc = count(e, &e->written, i);
    if (rc)
        return rc;
    encode_inode(e, i, inode);
    return emit(e, inode_position(e, i), inode, sizeof inode);
}

/* What is left of a directory or symbolic link when its whole blocks are written: behind the inode, or its last block.
 * The rest of that is zeros. */
static int emit_last(struct erofs *e, const struct erofs_inode *i, const uint8_t block[EROFS_BLOCK])
{
    if (i->tail)
        return emit(e, inode_position(e, i) + EROFS_INODE_SIZE + i->xattr_size, block, i->tail);
    return i->blocks ? emit(e, block_position(e, i->rank, i->blocks - 1), block, EROFS_BLOCK) : 0;
}

static int check_body(struct erofs *e, const struct erofs_inode *i, const struct node *n)
{
    if (!S_ISREG(i->mode) || !i->size)
        return 0;
    if (i->address < e->fs.bodies || i->address % EROFS_BLOCK || i->address > e->bodies_end ||
        i->size > e->bodies_end - i->address)
        return error_set(-EIO, "erofs: a file of %llu bytes has no address: a bug, nothing was published",
                         (unsigned long long)i->size);
    hasher_update(e->hash, n->content.b, DIGEST_SIZE);
    return 0;
}

static int write_leaf(void *arg, struct erofs_inode *i, const struct node *n)
{
    struct erofs *e = arg;
    uint8_t target[EROFS_BLOCK] = {0};
    const struct linked *link = n->linked ? find_link(e, n->rank) : NULL;
    int rc = check_body(e, i, n);
    if (link)
        i->nlink = link->names;
    if (!rc)
        rc = emit_inode(e, i);
    if (!rc)
        rc = emit_xattrs(e, i, n);
    if (rc || !S_ISLNK(n->mode))
        return rc;
    memcpy(target, n->target, GR_MIN(n->target_len, sizeof target));
    return emit_last(e, i, target);
}

static int write_again(void *arg, const struct node *n)
{
    return 0;
}

static int write_enter(void *arg, const struct erofs_inode *dir, const struct node *n)
{
    return emit_xattrs(arg, dir, n);
}

static int write_block(void *arg, const struct erofs_inode *dir, uint64_t number, const uint8_t block[EROFS_BLOCK])
{
    struct erofs *e = arg;
    return emit(e, block_position(e, dir->rank, number), block, EROFS_BLOCK);
}

static int write_leave(void *arg, const struct erofs_inode *dir, const uint8_t *last)
{
    int rc = emit_inode(arg, dir);
    return rc ? rc : emit_last(arg, dir, last);
}

static const struct erofs_walk_ops writing = {
    .leaf = write_leaf, .again = write_again, .enter = write_enter, .block = write_block, .leave = write_leave};

/* Nothing may lie behind the planned end; what nobody wrote up to there is zeros. */
static int close_region(struct erofs *e)
{
    int rc = flush(e);
    if (rc)
        return rc;
    if (e->written.inodes != e->planned.inodes || e->written.sum != e->planned.sum || scratch_len(e->region) > e->end)
        return bug("inodes were not written as they were planned");
    return scratch_len(e->region) < e->end ? scratch_write(e->region, e->end - 1, "", 1) : 0;
}

static int copy_region(struct erofs *e, struct sink *sink)
{
    CLEANUP_FREE uint8_t *piece = malloc(COPY_PIECE);
    int rc = piece ? 0 : out_of_memory();
    for (uint64_t at = 0; at < e->end && !rc; at += COPY_PIECE) {
        size_t n = (size_t)GR_MIN(e->end - at, (uint64_t)COPY_PIECE);
        rc = scratch_read(e->region, at, piece, n);
        if (rc)
            break;
        hasher_update(e->hash, piece, n);
        rc = sink_write(sink, SINK_METADATA, metadata_of(e) + at, piece, n);
        if (!rc && e->config.step)
            rc = e->config.step(e->config.step_arg);
    }
    return rc;
}

/* ------------------------------------------------------------------ the superblock */

/* The UUID: a digest of the files' digests and all metadata, so that it follows from the content. */
static void make_uuid(struct erofs *e, uint8_t out[16])
{
    struct digest d = hasher_finish(e->hash);
    memcpy(out, d.b, 16);
    out[6] = (out[6] & 0x0f) | 0x80; /* version 8: of the maker's own making */
    out[8] = (out[8] & 0x3f) | 0x80;
}

static int write_front(struct erofs *e, struct sink *sink)
{
    uint8_t block[EROFS_BLOCK] = {0}, *sb = block + EROFS_SUPER_OFFSET;
    le32_put(sb, EROFS_MAGIC);
    le32_put(sb + 8, EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME);
    sb[12] = EROFS_BLOCK_BITS;
    le16_put(sb + 14, (uint16_t)e->nids[NODE_ROOT]);
    le64_put(sb + 16, e->written.inodes);
    le32_put(sb + 36, (uint32_t)((metadata_of(e) + e->end) / EROFS_BLOCK));
    le32_put(sb + 40, (uint32_t)(metadata_of(e) / EROFS_BLOCK));
    make_uuid(e, sb + 48);
    memcpy(sb + 64, "granary", 7);
    /* over the rest of the block, its own field zero */
    le32_put(sb + 4, crc32c_raw(UINT32_MAX, sb, EROFS_BLOCK - EROFS_SUPER_OFFSET));
    return sink_write(sink, SINK_FRONT, 0, block, sizeof block);
}

/* ------------------------------------------------------------------ the vtable */

static int begin(struct erofs *e, const struct nodes *nodes, uint64_t bodies_end)
{
    struct sorter_config order = {.dir = e->config.dir, .memory = e->config.memory};
    struct scratch_config region = {.dir = e->config.dir, .memory = e->config.memory};
    uint32_t ranks = nodes_rank_end(nodes);
    e->bodies_end = GR_MAX(bodies_end, e->fs.bodies);
    if (e->bodies_end > e->fs.bodies_max)
        return too_large(e);
    e->nids = calloc(ranks, sizeof *e->nids);
    e->blocks = calloc(ranks, sizeof *e->blocks);
    e->hash = hasher_new();
    if (!e->nids || !e->blocks || !e->hash)
        return out_of_memory();
    int rc = sorter_new(&order, &e->order);
    return rc ? rc : scratch_new(&region, &e->region);
}

static int erofs_finish(struct fs *f, const struct nodes *nodes, uint64_t bodies_end, struct sink *sink,
                        struct fs_result *out)
{
    struct erofs *e = (struct erofs *)f;
    int rc = begin(e, nodes, bodies_end);
    if (!rc)
        rc = erofs_walk(nodes, NULL, &planning, e);
    if (!rc)
        rc = place(e);
    if (!rc && metadata_of(e) + e->end > IMAGE_MAX)
        rc = too_large(e);
    if (!rc)
        rc = erofs_walk(nodes, e->nids, &writing, e);
    if (!rc)
        rc = close_region(e);
    if (!rc)
        rc = copy_region(e, sink);
    if (!rc)
        rc = write_front(e, sink);
    if (rc)
        return rc;
    *out = (struct fs_result){.image_size = metadata_of(e) + e->end,
                              .metadata_offset = metadata_of(e),
                              .metadata_len = e->end,
                              .front_len = EROFS_BLOCK};
    return 0;
}

static void erofs_free(struct fs *f)
{
    struct erofs *e = (struct erofs *)f;
    vec_release(&e->links);
    sorter_free(e->order);
    free(e->nids);
    free(e->blocks);
    scratch_free(e->region);
    bytes_release(&e->gathered);
    bytes_release(&e->xattrs);
    hasher_free(e->hash);
    free(e);
}

static const struct fs_ops erofs_ops = {.finish = erofs_finish, .free = erofs_free};

int fs_erofs_new(const struct fs_config *config, struct fs **out)
{
    struct erofs *e = calloc(1, sizeof *e);
    if (!e)
        return out_of_memory();
    e->fs = (struct fs){.ops = &erofs_ops,
                        .bodies = config->chunk_size,
                        .bodies_max = IMAGE_MAX,
                        .limit = "16 TiB, the limit of erofs with 4096-byte blocks",
                        .keeps = true};
    e->config = *config;
    e->gathered.max = GATHER_MAX + 4 * (size_t)NODE_XATTRS_MAX;
    e->xattrs.max = 4 * (size_t)NODE_XATTRS_MAX;
    *out = &e->fs;
    return 0;
}
