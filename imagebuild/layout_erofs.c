/* erofs as a stream: bodies upward from chunk 1, then all metadata in one region on a chunk boundary, block 0 last.
 *
 *   chunk 0        chunk 1 ...            chunk boundary
 *   | superblock | bodies, 4 KiB-aligned | inodes, root first | directory and symlink blocks | end
 *
 * Everything is decided first (place_*), then written in address order (emit_*), and what was written is compared with
 * what was planned. Inodes stand directory by directory, a directory's children side by side. An inode, its
 * attributes and its inline tail share one block; when they cannot, the tail becomes a block; attributes longer than a
 * block run on into the next, which erofs allows, but the inode itself never straddles one.
 *
 * In memory, beside the tree: 4 bytes a node (inode numbers) and a stack of directories. A directory's size and
 * address and a long symlink's address are kept in its node.
 */
#include "imagebuild/layout.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "base/vec.h"
#include "imagebuild/erofs_dir.h"
#include "imagebuild/erofs_format.h"
#include "imagebuild/erofs_xattr.h"

struct erofs {
    struct layout layout;
    struct layout_config config;
    uint64_t file;       /* address of the file whose parts come */
    uint64_t end;        /* of the bodies; then of the planned metadata */
    uint64_t metadata;   /* start of the region */
    uint64_t inodes_end; /* planned */
    uint64_t written;    /* end of the metadata emitted so far */
    uint64_t inodes;
    uint32_t *nids; /* by node */
    struct hasher *hash;
    struct bytes xattrs;
};

/* The inode counts them in units of 4 bytes, in 16 bits. */
static_assert(TREE_XATTRS_MAX / 4 < UINT16_MAX, "extended attributes that an inode cannot state");

static struct erofs *erofs_of(struct layout *l)
{
    return (struct erofs *)l;
}

/* Block numbers have 32 bits. */
#define IMAGE_MAX ((uint64_t)(UINT32_MAX - 1) * EROFS_BLOCK)

/* Is there room for `more` bytes behind the end? */
static int check_room(const struct erofs *e, uint64_t more)
{
    if (e->end <= IMAGE_MAX && more <= IMAGE_MAX - e->end)
        return 0;
    return error_set(-EFBIG, "build: the image would pass 16 TiB, the limit of erofs with 4096-byte blocks; divide the "
                             "dataset into several images");
}

/* ------------------------------------------------------------------ bodies */

static int erofs_body(struct layout *l, const struct body_part *part)
{
    struct erofs *e = erofs_of(l);
    if (part->first) {
        int rc = check_room(e, part->size);
        if (rc)
            return rc;
        e->file = e->end;
        tree_node(e->config.tree, part->node)->address = e->file;
    }
    uint64_t at = e->file + part->offset;
    e->end = GR_ALIGN_UP(at + part->len, (uint64_t)EROFS_BLOCK);
    return sink_write(e->config.sink, at, part->data, part->len);
}

/* ------------------------------------------------------------------ what an inode consists of */

struct parts {
    const void *xattrs;
    size_t xattrs_len;   /* as the tree has them */
    uint32_t xattr_size; /* as erofs has them */
    uint32_t tail;       /* bytes behind the inode and its attributes */
    uint64_t blocks;     /* blocks of a directory or symlink in the metadata region */
};

static struct parts parts_of(const struct erofs *e, const struct node *n)
{
    struct parts p = {0};
    p.xattrs = tree_xattrs(e->config.tree, n, &p.xattrs_len);
    p.xattr_size = erofs_xattr_size(p.xattrs, p.xattrs_len);
    if (!S_ISDIR(n->mode) && !S_ISLNK(n->mode))
        return p;
    uint32_t tail = (uint32_t)(n->size % EROFS_BLOCK);
    if (EROFS_INODE_SIZE + p.xattr_size + tail <= EROFS_BLOCK)
        p.tail = tail;
    p.blocks = (n->size - p.tail + EROFS_BLOCK - 1) / EROFS_BLOCK;
    return p;
}

/* ------------------------------------------------------------------ the order of inodes */

typedef int inode_visit(struct erofs *e, node_id id, struct node *n);

static int visit_children(struct erofs *e, node_id dir, inode_visit *visit)
{
    uint32_t count;
    const node_id *children = tree_children(e->config.tree, dir, &count);
    for (uint32_t i = 0; i < count; i++) {
        struct node *n = tree_node(e->config.tree, children[i]);
        int rc = n->link == children[i] ? visit(e, children[i], n) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* Visit every inode once: the root, then directory by directory its children; what is below a directory's first
 * subdirectory comes before what is in its second. */
static int walk_inodes(struct erofs *e, inode_visit *visit)
{
    struct tree *t = e->config.tree;
    VEC(node_id) stack = {0};
    int rc = visit(e, NODE_ROOT, tree_node(t, NODE_ROOT));
    if (!rc && vec_push(&stack, NODE_ROOT))
        rc = error_set(-ENOMEM, "build: out of memory");
    while (!rc && stack.len) {
        uint32_t count;
        node_id dir = stack.items[--stack.len];
        rc = visit_children(e, dir, visit);
        const node_id *children = tree_children(t, dir, &count);
        while (!rc && count-- > 0)
            if (S_ISDIR(tree_node(t, children[count])->mode) && vec_push(&stack, children[count]))
                rc = error_set(-ENOMEM, "build: out of memory");
    }
    vec_release(&stack);
    return rc;
}

/* ------------------------------------------------------------------ deciding */

static int place_inode(struct erofs *e, node_id id, struct node *n)
{
    size_t target_len;
    if (S_ISDIR(n->mode)) {
        n->size = erofs_dir_size(e->config.tree, id);
    } else if (S_ISLNK(n->mode)) {
        (void)tree_target(e->config.tree, n, &target_len);
        n->size = target_len;
    }
    struct parts p = parts_of(e, n);
    uint32_t need = EROFS_INODE_SIZE + p.xattr_size + p.tail;
    uint64_t at = GR_ALIGN_UP(e->end, (uint64_t)EROFS_NID_UNIT);
    uint32_t room = EROFS_BLOCK - (uint32_t)(at % EROFS_BLOCK);
    if (room < (need <= EROFS_BLOCK ? need : EROFS_INODE_SIZE))
        at += room;
    uint64_t nid = (at - e->metadata) / EROFS_NID_UNIT;
    if (nid > UINT32_MAX)
        return error_set(-EFBIG, "build: more than 128 GiB of inodes; divide the dataset into several images");
    e->nids[id] = (uint32_t)nid;
    e->end = at + need;
    e->inodes++;
    return 0;
}

static int place_blocks(struct erofs *e, node_id id, struct node *n)
{
    struct parts p = parts_of(e, n);
    if (p.blocks) {
        n->address = e->end;
        e->end += p.blocks * EROFS_BLOCK;
    }
    return 0;
}

/* ------------------------------------------------------------------ writing */

/* A failure here is a mistake in this file, found before anything is published. */
static int check_written(const struct erofs *e, const char *section, uint64_t planned)
{
    if (e->written == planned)
        return 0;
    return error_set(-EIO, "erofs: %s end at %llu instead of the planned %llu: a bug, nothing was published", section,
                     (unsigned long long)e->written, (unsigned long long)planned);
}

static int emit(struct erofs *e, uint64_t at, const void *data, size_t len)
{
    if (at < e->written)
        return check_written(e, "metadata", at);
    hasher_update(e->hash, data, len);
    e->written = at + len;
    return sink_write(e->config.sink, at, data, len);
}

static uint32_t inode_union(const struct node *n, const struct parts *p)
{
    if (S_ISCHR(n->mode) || S_ISBLK(n->mode))
        return n->rdev;
    bool has_blocks = p->blocks || (S_ISREG(n->mode) && n->size);
    return has_blocks ? (uint32_t)(n->address / EROFS_BLOCK) : EROFS_NO_BLOCK;
}

static void encode_inode(struct erofs *e, const struct node *n, const struct parts *p, uint8_t out[EROFS_INODE_SIZE])
{
    unsigned layout = p->tail ? EROFS_FLAT_INLINE : EROFS_FLAT_PLAIN;
    bool sized = S_ISREG(n->mode) || S_ISDIR(n->mode) || S_ISLNK(n->mode);
    memset(out, 0, EROFS_INODE_SIZE);
    le16_put(out, (uint16_t)(1 | layout << 1)); /* 1: extended */
    le16_put(out + 2, erofs_xattr_count_field(p->xattr_size));
    le16_put(out + 4, n->mode);
    le64_put(out + 8, sized ? n->size : 0);
    le32_put(out + 16, inode_union(n, p));
    le32_put(out + 20, (uint32_t)++e->inodes); /* for 32-bit stat only */
    le32_put(out + 24, n->uid);
    le32_put(out + 28, n->gid);
    le64_put(out + 32, (uint64_t)n->mtime);
    le32_put(out + 40, n->mtime_nsec);
    le32_put(out + 44, n->nlink);
}

static int emit_tail(struct erofs *e, node_id id, const struct node *n, uint64_t at, const struct parts *p)
{
    if (S_ISLNK(n->mode)) {
        size_t len;
        const char *target = tree_target(e->config.tree, n, &len);
        return emit(e, at, target, len);
    }
    struct erofs_dir d;
    uint8_t block[EROFS_BLOCK];
    erofs_dir_begin(&d, e->config.tree, id);
    for (uint64_t i = 0; i < p->blocks; i++)
        erofs_dir_skip(&d);
    erofs_dir_block(&d, e->nids, block);
    return emit(e, at, block, p->tail);
}

static int emit_inode(struct erofs *e, node_id id, struct node *n)
{
    uint64_t at = e->metadata + (uint64_t)e->nids[id] * EROFS_NID_UNIT;
    struct parts p = parts_of(e, n);
    uint8_t inode[EROFS_INODE_SIZE];
    if (S_ISREG(n->mode) && n->size) {
        if (!n->address)
            return error_set(-EIO, "erofs: a file of %llu bytes has no address: a bug, nothing was published",
                             (unsigned long long)n->size);
        hasher_update(e->hash, n->content.b, DIGEST_SIZE);
    }
    encode_inode(e, n, &p, inode);
    int rc = emit(e, at, inode, sizeof inode);
    if (!rc && p.xattr_size) {
        bytes_clear(&e->xattrs);
        rc = erofs_xattr_encode(p.xattrs, p.xattrs_len, &e->xattrs);
        if (!rc)
            rc = emit(e, at + EROFS_INODE_SIZE, e->xattrs.data, e->xattrs.len);
    }
    if (!rc && p.tail)
        rc = emit_tail(e, id, n, at + EROFS_INODE_SIZE + p.xattr_size, &p);
    return rc;
}

static int emit_blocks(struct erofs *e, node_id id, struct node *n)
{
    struct parts p = parts_of(e, n);
    uint8_t block[EROFS_BLOCK] = {0};
    if (S_ISLNK(n->mode) && p.blocks) {
        size_t len;
        const char *target = tree_target(e->config.tree, n, &len);
        memcpy(block, target, GR_MIN(len, sizeof block));
        return emit(e, n->address, block, sizeof block);
    }
    struct erofs_dir d;
    int rc = 0;
    if (p.blocks)
        erofs_dir_begin(&d, e->config.tree, id);
    for (uint64_t i = 0; i < p.blocks && !rc; i++) {
        erofs_dir_block(&d, e->nids, block);
        rc = emit(e, n->address + i * EROFS_BLOCK, block, sizeof block);
    }
    return rc;
}

/* The superblock's UUID: a digest of all metadata and the files' digests, so that it follows from the content. */
static void make_uuid(struct erofs *e, uint8_t out[16])
{
    struct digest d = hasher_finish(e->hash);
    memcpy(out, d.b, 16);
    out[6] = (out[6] & 0x0f) | 0x80; /* version 8: of the maker's own making */
    out[8] = (out[8] & 0x3f) | 0x80;
}

static int emit_front(struct erofs *e)
{
    uint8_t block[EROFS_BLOCK] = {0}, *sb = block + EROFS_SUPER_OFFSET;
    le32_put(sb, EROFS_MAGIC);
    le32_put(sb + 8, EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME);
    sb[12] = EROFS_BLOCK_BITS;
    le16_put(sb + 14, (uint16_t)e->nids[NODE_ROOT]);
    le64_put(sb + 16, e->inodes);
    le32_put(sb + 36, (uint32_t)(e->end / EROFS_BLOCK));
    le32_put(sb + 40, (uint32_t)(e->metadata / EROFS_BLOCK));
    make_uuid(e, sb + 48);
    memcpy(sb + 64, "granary", 7);
    /* over the rest of the block, its own field zero */
    le32_put(sb + 4, crc32c_raw(UINT32_MAX, sb, EROFS_BLOCK - EROFS_SUPER_OFFSET));
    return sink_write_front(e->config.sink, block, sizeof block);
}

/* ------------------------------------------------------------------ the vtable */

static int place(struct erofs *e)
{
    e->nids = calloc(tree_count(e->config.tree), sizeof *e->nids);
    if (!e->nids)
        return error_set(-ENOMEM, "build: out of memory");
    e->metadata = GR_ALIGN_UP(e->end, (uint64_t)e->config.chunk_size);
    e->end = e->metadata + EROFS_NID_ROOT * EROFS_NID_UNIT;
    int rc = walk_inodes(e, place_inode);
    e->inodes_end = e->end;
    e->end = GR_ALIGN_UP(e->end, (uint64_t)EROFS_BLOCK);
    if (!rc)
        rc = walk_inodes(e, place_blocks);
    return rc ? rc : check_room(e, 0);
}

static int erofs_finish(struct layout *l, struct layout_result *out)
{
    struct erofs *e = erofs_of(l);
    int rc = place(e);
    if (rc)
        return rc;
    uint64_t planned = e->inodes;
    e->inodes = 0;
    e->written = e->metadata;
    rc = walk_inodes(e, emit_inode);
    if (!rc)
        rc = check_written(e, "inodes", e->inodes_end);
    if (!rc && e->inodes != planned)
        rc = error_set(-EIO, "erofs: another number of inodes than planned: a bug, nothing was published");
    e->written = GR_ALIGN_UP(e->written, (uint64_t)EROFS_BLOCK);
    if (!rc)
        rc = walk_inodes(e, emit_blocks);
    if (!rc)
        rc = check_written(e, "directory blocks", e->end);
    if (!rc)
        rc = emit_front(e);
    if (rc)
        return rc;
    *out = (struct layout_result){
        .image_size = e->end, .metadata_offset = e->metadata, .metadata_len = e->end - e->metadata};
    return 0;
}

static void erofs_free(struct layout *l)
{
    struct erofs *e = erofs_of(l);
    free(e->nids);
    hasher_free(e->hash);
    bytes_release(&e->xattrs);
    free(e);
}

static const struct layout_ops erofs_ops = {.body = erofs_body, .finish = erofs_finish, .free = erofs_free};

int layout_erofs_new(const struct layout_config *config, struct layout **out)
{
    struct erofs *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(-ENOMEM, "build: out of memory");
    e->layout.ops = &erofs_ops;
    e->config = *config;
    e->end = config->chunk_size;
    e->xattrs = (struct bytes)BYTES_INIT(4 * (size_t)TREE_XATTRS_MAX);
    e->hash = hasher_new();
    if (!e->hash) {
        erofs_free(&e->layout);
        return error_set(-ENOMEM, "build: out of memory");
    }
    *out = &e->layout;
    return 0;
}
