/* The erofs implementation of fs.h. File data lies where the build put it; all metadata is in one region after it,
 * and the superblock alone in chunk 0. Upon a parent, a hole may lie between data and metadata.
 *
 *   chunk 0       chunk 1 ...                       chunk boundary
 *   | superblock | file data, 4 KiB-aligned         | inodes, root first | directory and symlink blocks |
 *
 * The plan first gives every inode its place (erofs_plan.c). Then the nodes are walked in path order, and every inode
 * and block is written at its place in a scratch. The scratch goes to the sink from front to back. The walk's inodes
 * are summed up and compared with the plan's.
 *
 * Memory: the plan, the scratch's buffers, and the open directories (erofs_internal.h). Positions count from the start
 * of the region.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/fs/fs.h"

/* ------------------------------------------------------------------ the region */

enum { GATHER_MAX = 64 << 10, COPY_PIECE = 1 << 20 }; /* bytes */
enum { EROFS_ROOM_CHUNKS = 8 };                       /* before the region, in a small image */

/* Used from one thread. config.dir is the caller's. */
struct erofs {
    struct fs fs;
    struct fs_config config;
    uint64_t data_end, metadata;     /* address of the region, once the plan is made */
    bool wide;                       /* 48-bit block numbers, likewise */
    struct scratch *parent_metadata; /* NULL: none */
    struct erofs_tree *parent;       /* reads it */
    struct erofs_plan plan;
    bool numbered;              /* inodes state running numbers: so far, upon a parent */
    struct erofs_tally written; /* what the walk wrote, to be compared with plan.tally */
    struct scratch *region;
    struct bytes gathered; /* neighbouring bytes on their way to the region, */
    uint64_t gathered_at;  /* from this position on */
    struct bytes xattrs;   /* of the current inode */
    struct hasher *hash;   /* of all metadata and the files' digests: the UUID */
};

/* the inode states their size in units of 4 bytes, in 16 bits */
static_assert(NODE_XATTRS_MAX / 4 < UINT16_MAX, "extended attributes that an inode cannot state");

/* Choose the address of the region, and the size of block numbers: 48 bits only where 32 cannot do. Directories and
 * symbolic links state the addresses of their blocks, so the region stays where the parent has it as long as the data
 * ends before it. Else it moves, with room for the data to grow: holes, which cost nothing but count in the image's
 * size. So it moves, too, where the data has become much less. */
static int choose_metadata(struct erofs *e)
{
    const uint64_t size = e->config.chunk_size, parent = e->config.parent_data_end;
    uint64_t room = GR_ALIGN_UP(e->data_end + e->data_end / 8, size);
    e->metadata = GR_ALIGN_UP(e->data_end, size);
    e->wide = e->metadata + e->plan.end > MANIFEST_EROFS_32BIT_MAX;
    const uint64_t max = e->wide ? EROFS_IMAGE_MAX : MANIFEST_EROFS_32BIT_MAX;
    const uint64_t most = max - GR_MIN(e->plan.end, max);
    if (parent >= e->data_end && parent - e->data_end <= e->data_end / 4 + EROFS_ROOM_CHUNKS * size)
        room = GR_ALIGN_UP(parent, size);
    if (parent && room <= most)
        e->metadata = room;
    return e->metadata <= most ? 0 : erofs_too_large();
}

/* Write what was gathered to the region. */
static int fs_erofs_flush(struct erofs *e)
{
    int rc = e->gathered.len ? scratch_write(e->region, e->gathered_at, e->gathered.data, e->gathered.len) : 0;
    bytes_clear(&e->gathered);
    return rc;
}

/* Return whether the bytes at `at` can join what is gathered. An inode can: between it and the end of the one before
 * lies only padding, less than a unit. Nothing else can across a gap, because a directory's attributes are written
 * long before its inode and tail. */
static bool follows(const struct erofs *e, uint64_t at, size_t len)
{
    uint64_t end = e->gathered_at + e->gathered.len;
    if (at < end || e->gathered.len + len > GATHER_MAX)
        return false;
    return at == end || (at % EROFS_NID_UNIT == 0 && at - end < EROFS_NID_UNIT);
}

/* Write bytes at a position. Inodes of one directory lie side by side and mostly come one after the other, so they
 * are gathered and written together. */
static int fs_erofs_emit(struct erofs *e, uint64_t at, const void *data, size_t len)
{
    uint8_t *padding;
    int rc = 0;
    if (follows(e, at, len)) {
        rc = bytes_extend(&e->gathered, at - e->gathered_at - e->gathered.len, &padding);
    } else {
        rc = fs_erofs_flush(e);
        e->gathered_at = at;
    }
    return rc ? rc : bytes_append(&e->gathered, data, len);
}

/* Return the position of a block of an inode that has some. */
static uint64_t block_position(const struct erofs *e, uint32_t rank, uint64_t number)
{
    return (erofs_plan_block(&e->plan, rank) + number) * EROFS_BLOCK;
}

/* Return the field that holds a device number or the first block of the data. */
static uint64_t inode_union(const struct erofs *e, const struct erofs_inode *i)
{
    if (S_ISCHR(i->mode) || S_ISBLK(i->mode))
        return i->rdev;
    if (i->blocks)
        return (e->metadata + block_position(e, i->rank, 0)) / EROFS_BLOCK;
    if (S_ISREG(i->mode) && i->size)
        return i->address / EROFS_BLOCK;
    return e->wide ? EROFS_NO_BLOCK_48BIT : EROFS_NO_BLOCK;
}

static uint64_t inode_position(const struct erofs *e, const struct erofs_inode *i)
{
    return (uint64_t)e->plan.nids[i->rank] * EROFS_NID_UNIT;
}

/* Find the number that an inode states. A running number would change in all inodes after a new one, so upon a parent
 * an inode in its place keeps its number, and others state 0, not what lay there. The root, which is written last,
 * tells whether these are running numbers still; once they are not, only a new layout numbers again. */
static int inode_running(struct erofs *e, const struct erofs_inode *i, uint32_t *out)
{
    const uint32_t running = (uint32_t)e->written.inodes;
    uint8_t kept[4] = {0};
    *out = running;
    if (!e->plan.upon)
        return 0;
    int rc = erofs_plan_is_kept(&e->plan, i->rank)
                 ? erofs_tree_read(e->parent, inode_position(e, i) + EROFS_INODE_RUNNING, kept, sizeof kept)
                 : 0;
    e->numbered = e->numbered && running == le32_get(kept);
    *out = i->rank == NODE_ROOT && !e->numbered ? 0 : le32_get(kept);
    return rc;
}

/* Encode an inode (struct erofs_inode_extended). There is no more than one time, the mtime. */
static void encode_inode(const struct erofs *e, const struct erofs_inode *i, uint32_t running,
                         uint8_t out[EROFS_INODE_SIZE])
{
    const unsigned layout = i->tail ? EROFS_FLAT_INLINE : EROFS_FLAT_PLAIN;
    const uint64_t block = inode_union(e, i);
    memset(out, 0, EROFS_INODE_SIZE);
    le16_put(out, (uint16_t)(1 | layout << 1)); /* bit 0: extended */
    le16_put(out + 2, erofs_xattr_count_field(i->xattr_size));
    le16_put(out + 4, i->mode);
    le16_put(out + 6, (uint16_t)(block >> 32)); /* 0 unless wide */
    le64_put(out + 8, i->size);
    le32_put(out + 16, (uint32_t)block);
    le32_put(out + EROFS_INODE_RUNNING, running);
    le32_put(out + 24, i->uid);
    le32_put(out + 28, i->gid);
    le64_put(out + 32, (uint64_t)i->mtime);
    le32_put(out + 40, i->mtime_nsec);
    le32_put(out + 44, i->nlink);
}

static int emit_xattrs(struct erofs *e, const struct erofs_inode *i, const struct node *n)
{
    bytes_clear(&e->xattrs);
    int rc = erofs_xattr_encode(n->xattrs, n->xattrs_len, &e->xattrs);
    if (rc || !i->xattr_size)
        return rc;
    return fs_erofs_emit(e, inode_position(e, i) + EROFS_INODE_SIZE, e->xattrs.data, e->xattrs.len);
}

static int emit_inode(struct erofs *e, const struct erofs_inode *i)
{
    uint8_t inode[EROFS_INODE_SIZE];
    uint32_t running;
    int rc = inode_running(e, i, &running);
    if (rc)
        return rc;
    encode_inode(e, i, running, inode);
    return fs_erofs_emit(e, inode_position(e, i), inode, sizeof inode);
}

/* Write the end of a directory or symbolic link, after its whole blocks: the tail after the inode, or the last
 * block, which is padded with zeros. */
static int emit_last(struct erofs *e, const struct erofs_inode *i, const uint8_t block[EROFS_BLOCK])
{
    if (i->tail)
        return fs_erofs_emit(e, inode_position(e, i) + EROFS_INODE_SIZE + i->xattr_size, block, i->tail);
    return i->blocks ? fs_erofs_emit(e, block_position(e, i->rank, i->blocks - 1), block, EROFS_BLOCK) : 0;
}

/* Check a file's address, and add its digest to the UUID's hash. */
static int check_content(struct erofs *e, const struct erofs_inode *i, const struct node *n)
{
    if (!S_ISREG(i->mode) || !i->size)
        return 0;
    if (i->address < e->fs.data_begin || i->address % EROFS_BLOCK || i->address > e->data_end ||
        i->size > e->data_end - i->address)
        return error_set(-EIO, "erofs: a file of %llu bytes has no address: a bug, nothing was published",
                         (unsigned long long)i->size);
    hasher_update(e->hash, n->content.b, DIGEST_SIZE);
    return 0;
}

/* Write an inode that is not a directory. */
static int write_leaf(void *arg, struct erofs_inode *i, const struct node *n)
{
    struct erofs *e = arg;
    uint8_t target[EROFS_BLOCK] = {0};
    int rc = check_content(e, i, n);
    i->nlink = n->linked ? erofs_plan_names(&e->plan, n->rank) : 1;
    if (!rc)
        rc = erofs_tally_add(&e->written, i, &e->config);
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

static int fs_erofs_write_block(void *arg, const struct erofs_inode *dir, uint64_t number,
                                const uint8_t block[EROFS_BLOCK])
{
    struct erofs *e = arg;
    return fs_erofs_emit(e, block_position(e, dir->rank, number), block, EROFS_BLOCK);
}

/* Write a directory's inode and last block, now that its size is known. */
static int write_leave(void *arg, const struct erofs_inode *dir, const uint8_t *last)
{
    struct erofs *e = arg;
    struct erofs_inode parts = *dir;
    int rc = erofs_tally_add(&e->written, dir, &e->config);
    if (erofs_plan_is_plain(&e->plan, dir->rank)) {
        parts.blocks++;
        parts.tail = 0;
    }
    if (!rc)
        rc = emit_inode(e, &parts);
    return rc ? rc : emit_last(e, &parts, last);
}

static const struct erofs_walk_ops writing = {.leaf = write_leaf,
                                              .again = write_again,
                                              .enter = write_enter,
                                              .block = fs_erofs_write_block,
                                              .leave = write_leave};

/* Check that exactly what was planned was written. Positions without a write are zeros. */
static int close_region(struct erofs *e)
{
    int rc = fs_erofs_flush(e);
    if (rc)
        return rc;
    if (e->written.inodes != e->plan.tally.inodes || e->written.sum != e->plan.tally.sum ||
        scratch_len(e->region) > e->plan.end)
        return error_set(-EIO, "erofs: inodes were not written as they were planned: a bug, nothing was published");
    return scratch_len(e->region) < e->plan.end ? scratch_write(e->region, e->plan.end - 1, "", 1) : 0;
}

/* Copy the region from the scratch to the sink. */
static int copy_region(struct erofs *e, struct sink *sink)
{
    CLEANUP_FREE uint8_t *piece = malloc(COPY_PIECE);
    int rc = piece ? 0 : error_no_memory();
    for (uint64_t at = 0; at < e->plan.end && !rc; at += COPY_PIECE) {
        size_t n = (size_t)GR_MIN(e->plan.end - at, (uint64_t)COPY_PIECE);
        rc = scratch_read(e->region, at, piece, n);
        if (rc)
            break;
        scratch_forget(e->region, at, at + n); /* the store holds it soon */
        hasher_update(e->hash, piece, n);
        rc = sink_write(sink, SINK_METADATA, e->metadata + at, piece, n);
        if (!rc)
            rc = step_take(&e->config.step);
    }
    return rc;
}

/* ------------------------------------------------------------------ the superblock */

/* Make the UUID from the digests of files and metadata, so that it follows from the content. RFC 9562, version 8. */
static void make_uuid(struct erofs *e, uint8_t out[16])
{
    struct digest d = hasher_finish(e->hash);
    memcpy(out, d.b, 16);
    out[6] = (out[6] & 0x0f) | 0x80; /* version 8: vendor-specific */
    out[8] = (out[8] & 0x3f) | 0x80; /* variant of RFC 9562 */
}

/* Return the inode number that the first bytes of the region would have. The superblock has 32 bits for the region's
 * block, whatever the size of other block numbers: above that, inodes count from the image's beginning. */
static uint64_t first_nid(const struct erofs *e)
{
    return e->wide ? e->metadata / EROFS_NID_UNIT : 0;
}

/* Put what depends on the size of block numbers into the superblock. The upper bits of the number of blocks lie where
 * a root's number of 16 bits does. */
static void put_numbers(const struct erofs *e, uint8_t *sb)
{
    const uint64_t blocks = (e->metadata + e->plan.end) / EROFS_BLOCK;
    const uint32_t root = e->plan.nids[NODE_ROOT];
    le32_put(sb + 36, (uint32_t)blocks);
    if (!e->wide) {
        le16_put(sb + 14, (uint16_t)root);
        le32_put(sb + 40, (uint32_t)(e->metadata / EROFS_BLOCK));
        return;
    }
    le16_put(sb + 14, (uint16_t)(blocks >> 32));
    le32_put(sb + 80, EROFS_INCOMPAT_48BIT);
    le64_put(sb + 112, first_nid(e) + root);
}

/* Write the superblock (struct erofs_super_block), last, since it holds UUID and counts. */
static int write_front(struct erofs *e, struct sink *sink)
{
    uint8_t block[EROFS_BLOCK] = {0}, *sb = block + EROFS_SUPER_OFFSET;
    le32_put(sb, EROFS_MAGIC);
    le32_put(sb + 8, EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME);
    sb[12] = EROFS_BLOCK_BITS;
    put_numbers(e, sb);
    le64_put(sb + 16, e->written.inodes);
    make_uuid(e, sb + 48);
    memcpy(sb + 64, "granary", 7);
    /* over the rest of the block from the superblock on, with this field still zero */
    le32_put(sb + 4, crc32c_raw(UINT32_MAX, sb, EROFS_BLOCK - EROFS_SUPER_OFFSET));
    return sink_write(sink, SINK_FRONT, 0, block, sizeof block);
}

/* ------------------------------------------------------------------ the vtable */

/* Prepare for the walk, once data_end is known. */
static int fs_erofs_begin(struct erofs *e, uint64_t data_end)
{
    struct scratch_config region = {.dir = e->config.dir, .memory = e->config.memory};
    e->data_end = GR_MAX(data_end, e->fs.data_begin);
    if (e->data_end > e->fs.data_max)
        return erofs_too_large();
    e->hash = hasher_new();
    return e->hash ? scratch_new(&region, &e->region) : error_no_memory();
}

/* Get the parent's metadata. */
static int open_parent(struct erofs *e)
{
    int rc = e->config.parent_metadata(e->config.parent_arg, &e->parent_metadata);
    return rc || !e->parent_metadata ? rc : erofs_tree_new(e->parent_metadata, e->config.parent_data_end, &e->parent);
}

/* Lay out the image. Room and gaps are given up where they alone would take 48-bit block numbers. */
static int plan_image(struct erofs *e, const struct nodes *nodes)
{
    int rc = erofs_plan_make(&e->plan, nodes, e->parent, &e->config);
    if (!rc)
        rc = choose_metadata(e);
    const uint64_t least = GR_ALIGN_UP(e->data_end, (uint64_t)e->config.chunk_size) + e->plan.used;
    if (!rc && e->parent && e->wide && least <= MANIFEST_EROFS_32BIT_MAX) {
        erofs_plan_release(&e->plan);
        rc = erofs_plan_make(&e->plan, nodes, NULL, &e->config);
        if (!rc)
            rc = choose_metadata(e);
    }
    e->numbered = !e->plan.moved;
    return rc;
}

static int erofs_finish(struct fs *f, const struct nodes *nodes, uint64_t data_end, struct sink *sink,
                        struct fs_result *out)
{
    struct erofs *e = (struct erofs *)f;
    int rc = fs_erofs_begin(e, data_end);
    if (!rc && e->config.parent_metadata)
        rc = open_parent(e);
    if (!rc)
        rc = plan_image(e, nodes);
    if (!rc)
        rc = erofs_walk(nodes, (struct erofs_nids){first_nid(e), e->plan.nids}, &writing, e);
    if (!rc)
        rc = close_region(e);
    if (!rc)
        rc = copy_region(e, sink);
    if (!rc)
        rc = write_front(e, sink);
    if (rc)
        return rc;
    *out = (struct fs_result){.image_size = e->metadata + e->plan.end,
                              .metadata_offset = e->metadata,
                              .metadata_len = e->plan.end,
                              .front_len = EROFS_BLOCK};
    return 0;
}

static void erofs_free(struct fs *f)
{
    struct erofs *e = (struct erofs *)f;
    erofs_tree_free(e->parent);
    scratch_free(e->parent_metadata);
    erofs_plan_release(&e->plan);
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
        return error_no_memory();
    e->fs = (struct fs){.ops = &erofs_ops,
                        .data_begin = config->chunk_size,
                        .data_max = EROFS_IMAGE_MAX,
                        .limit = EROFS_LIMIT,
                        .keeps = true};
    e->config = *config;
    e->gathered.max = GATHER_MAX + 4 * (size_t)NODE_XATTRS_MAX;
    e->xattrs.max = 4 * (size_t)NODE_XATTRS_MAX;
    *out = &e->fs;
    return 0;
}
