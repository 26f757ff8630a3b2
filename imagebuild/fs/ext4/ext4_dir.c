/* Directories. A small one is one block of entries. A larger one is indexed (htree), which libext2fs can read but not
 * make. Its entries come from the sorter by the hashes of their names, so leaves, the blocks of entries, are filled
 * one after the other, and only the first hash of each is remembered:
 *
 *   block 0             "." and "..", then the root of the index
 *   1 ... leaves        entries; a leaf whose first hash is the last hash of the leaf before has bit 0 of it set
 *   leaves + 1 ...      nodes of the index, if the root cannot hold all leaves
 *
 * Records of the sorter, with big-endian numbers in the keys:
 *
 *   rank of the directory                     -> inode of its parent      the directory itself
 *   rank of the directory, hash, minor hash   -> inode, type, name        an entry
 *
 * The shorter key sorts first, so a directory comes before its entries. Equal keys keep the order of paths.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "base/spill/sorter.h"
#include "base/vec.h"
#include "imagebuild/fs/ext4/ext4_internal.h"

enum {
    /* bytes of a block for entries; the rest is the checksum's */
    ROOM = EXT4_BLOCK - (int)sizeof(struct ext2_dir_entry_tail),
    DOTS = 24,               /* bytes of the entries "." and ".." */
    ROOT_INFO = DOTS,        /* offset of the index's header, after the dots */
    ROOT_ENTRIES = DOTS + 8, /* offset of the index's entries: hash and block, 8 bytes each */
    NODE_ENTRIES = 8,
    ROOT_MAX = (EXT4_BLOCK - ROOT_ENTRIES - 8) / 8, /* the last 8 bytes hold a checksum */
    NODE_MAX = (EXT4_BLOCK - NODE_ENTRIES - 8) / 8,
    KEY_MAX = 12,
    VALUE_NAME = 5,
};

/* All directories, and the one in progress. */
struct ext4_dirs {
    struct ext4 *e;
    struct sorter *sorter;
    struct scratch *written; /* struct ext4_dir, in the order of ranks */
    uint64_t read;           /* position in `written` */
    /* The directory in progress, if open: */
    bool open;
    ext2_ino_t ino, parent;
    struct ext4_dir dir;
    VEC(uint32_t) leaves;        /* first hash of each leaf written */
    uint32_t hash, hash_of_last; /* of the leaf's first entry, as the index has it; of the newest entry */
    unsigned used, last;         /* bytes of entries in the leaf; offset of its last entry */
    _Alignas(8) uint8_t leaf[EXT4_BLOCK];
};

/* ------------------------------------------------------------------ sorting */

/* Return ext4's file type (EXT2_FT_*). */
static uint8_t ext4_dir_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return EXT2_FT_REG_FILE;
    case S_IFDIR:
        return EXT2_FT_DIR;
    case S_IFCHR:
        return EXT2_FT_CHRDEV;
    case S_IFBLK:
        return EXT2_FT_BLKDEV;
    case S_IFIFO:
        return EXT2_FT_FIFO;
    case S_IFSOCK:
        return EXT2_FT_SOCK;
    default:
        return EXT2_FT_SYMLINK;
    }
}

static void put_be32(uint8_t *at, uint32_t v)
{
    v = htobe32(v);
    memcpy(at, &v, sizeof v);
}

static uint32_t get_be32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return be32toh(v);
}

/* Add a name to the sorter, under its directory and hash. */
static int add_entry(struct ext4_dirs *d, const struct node *n)
{
    const struct ext2_super_block *super = d->e->e2->super;
    uint8_t key[KEY_MAX], value[VALUE_NAME + EXT2_NAME_LEN];
    ext2_dirhash_t hash, minor;
    if (n->name_len > EXT2_NAME_LEN)
        return error_set(-EIO, "ext4: a name of %zu bytes: a bug, nothing was published", n->name_len);
    int rc = ext4_check(d->e, ext2fs_dirhash2(EXT2_HASH_HALF_MD4_UNSIGNED, n->name, (int)n->name_len, NULL, 0,
                                              super->s_hash_seed, &hash, &minor));
    if (rc)
        return rc;
    put_be32(key, n->parent);
    put_be32(key + 4, hash);
    put_be32(key + 8, minor);
    le32_put(value, ext4_ino(n->link));
    value[4] = ext4_dir_type(n->mode);
    memcpy(value + VALUE_NAME, n->name, n->name_len);
    return sorter_add(d->sorter, key, sizeof key, value, VALUE_NAME + n->name_len);
}

int ext4_dirs_add(struct ext4_dirs *d, const struct node *n)
{
    uint8_t key[4], value[4];
    int rc = n->rank == NODE_ROOT ? 0 : add_entry(d, n);
    if (rc || !S_ISDIR(n->mode))
        return rc;
    put_be32(key, n->rank);
    le32_put(value, ext4_ino(n->parent));
    return sorter_add(d->sorter, key, sizeof key, value, sizeof value);
}

/* ------------------------------------------------------------------ blocks */

/* Put an entry at an offset. room: bytes that it takes, which its record length states. */
static void ext4_dir_put_entry(uint8_t *block, unsigned at, unsigned room, ext2_ino_t ino, uint8_t type,
                               const void *name, size_t len)
{
    le32_put(block + at, ino);
    le16_put(block + at + 4, (uint16_t)room);
    block[at + 6] = (uint8_t)len;
    block[at + 7] = type;
    memcpy(block + at + 8, name, len);
}

/* Put "." and "..". second_room: bytes for the latter. */
static void put_dots(const struct ext4_dirs *d, uint8_t *block, unsigned second_room)
{
    ext4_dir_put_entry(block, 0, DOTS / 2, d->ino, EXT2_FT_DIR, ".", 1);
    ext4_dir_put_entry(block, DOTS / 2, second_room, d->parent, EXT2_FT_DIR, "..", 2);
}

static int ext4_dir_write_block(struct ext4_dirs *d, uint64_t block, uint8_t *data)
{
    return ext4_check(d->e, ext2fs_write_dir_block4(d->e->e2, block, data, 0, d->ino));
}

/* Write the leaf with its checksum, and empty it. */
static int write_leaf(struct ext4_dirs *d, uint64_t block)
{
    ext2fs_initialize_dirent_tail(d->e->e2, EXT2_DIRENT_TAIL(d->leaf, EXT4_BLOCK));
    int rc = ext4_dir_write_block(d, block, d->leaf);
    memset(d->leaf, 0, sizeof d->leaf);
    d->used = d->last = 0;
    return rc;
}

/* End a leaf. The first one takes the index root's block before its own, so that the root is the directory's first
 * block. */
static int close_leaf(struct ext4_dirs *d)
{
    uint64_t block;
    int rc = d->leaves.len ? 0 : ext4_take_block(d->e, &d->dir.block); /* for the index's root, which is written last */
    if (!rc)
        rc = ext4_take_block(d->e, &block);
    if (!rc)
        rc = vec_push(&d->leaves, d->hash);
    if (rc)
        return rc;
    le16_put(d->leaf + d->last + 4, (uint16_t)(ROOM - d->last));
    return write_leaf(d, block);
}

/* Add an entry to the leaf, beginning another leaf if it is full. */
static int ext4_dir_put(struct ext4_dirs *d, const struct sorter_record *r)
{
    size_t len = r->value_len - VALUE_NAME;
    unsigned need = GR_ALIGN_UP(8 + (unsigned)len, 4u);
    uint32_t hash = get_be32(r->key + 4);
    int rc = d->used + need > ROOM ? close_leaf(d) : 0;
    if (rc)
        return rc;
    if (!d->used)
        d->hash = d->leaves.len && hash == d->hash_of_last ? hash | 1 : hash;
    d->hash_of_last = hash;
    ext4_dir_put_entry(d->leaf, d->used, need, le32_get(r->value), r->value[4], r->value + VALUE_NAME, len);
    d->last = d->used;
    d->used += need;
    d->dir.links += r->value[4] == EXT2_FT_DIR;
    return 0;
}

/* ------------------------------------------------------------------ the index */

/* Put index entries for `count` blocks from `block` on, with every step-th hash. The first entry's hash is implied:
 * its place holds the number of entries that there are and that fit. */
static void put_index(uint8_t *at, unsigned max, const uint32_t *hashes, size_t step, size_t count, uint64_t block)
{
    for (size_t i = 0; i < count; i++) {
        le32_put(at + 8 * i, hashes[i * step]);
        le32_put(at + 8 * i + 4, (uint32_t)(block + i));
    }
    le16_put(at, (uint16_t)max);
    le16_put(at + 2, (uint16_t)count);
}

/* Write the index nodes between root and leaves. A node looks like an empty directory block to code without htree. */
static int write_nodes(struct ext4_dirs *d, size_t *out_nodes)
{
    _Alignas(8) uint8_t data[EXT4_BLOCK];
    int rc = 0;
    *out_nodes = 0;
    for (size_t done = 0; !rc && done < d->leaves.len; done += NODE_MAX, ++*out_nodes) {
        uint64_t block;
        memset(data, 0, sizeof data);
        ext4_dir_put_entry(data, 0, EXT4_BLOCK, 0, 0, "", 0);
        put_index(data + NODE_ENTRIES, NODE_MAX, d->leaves.items + done, 1, GR_MIN(d->leaves.len - done, NODE_MAX),
                  1 + done);
        rc = ext4_take_block(d->e, &block);
        if (!rc)
            rc = ext4_dir_write_block(d, block, data);
    }
    return rc;
}

/* Write the root of the index, and nodes if the root cannot hold all leaves. */
static int write_index(struct ext4_dirs *d)
{
    _Alignas(8) uint8_t root[EXT4_BLOCK] = {0};
    size_t leaves = d->leaves.len, nodes = 0;
    if (leaves > (size_t)ROOT_MAX * NODE_MAX)
        return error_set(-EFBIG,
                         "ext4: a directory of %zu blocks of names is over its limit of %d; use --fs erofs, or spread "
                         "the files over several directories",
                         leaves, ROOT_MAX * NODE_MAX);
    int rc = leaves > ROOT_MAX ? write_nodes(d, &nodes) : 0;
    if (rc)
        return rc;
    put_dots(d, root, EXT4_BLOCK - DOTS / 2);
    root[ROOT_INFO + 4] = EXT2_HASH_HALF_MD4;
    root[ROOT_INFO + 5] = 8; /* bytes of this header */
    root[ROOT_INFO + 6] = nodes > 0;
    if (nodes)
        put_index(root + ROOT_ENTRIES, ROOT_MAX, d->leaves.items, NODE_MAX, nodes, 1 + leaves);
    else
        put_index(root + ROOT_ENTRIES, ROOT_MAX, d->leaves.items, 1, leaves, 1);
    d->dir.blocks = 1 + leaves + nodes;
    return ext4_dir_write_block(d, d->dir.block, root);
}

/* ------------------------------------------------------------------ directory by directory */

/* Write a directory of one block: all entries after the dots. */
static int write_linear(struct ext4_dirs *d)
{
    memmove(d->leaf + DOTS, d->leaf, d->used);
    memset(d->leaf, 0, DOTS);
    put_dots(d, d->leaf, d->used ? DOTS / 2 : ROOM - DOTS / 2);
    if (d->used)
        le16_put(d->leaf + DOTS + d->last + 4, (uint16_t)(ROOM - DOTS - d->last));
    d->dir.blocks = 1;
    int rc = ext4_take_block(d->e, &d->dir.block);
    return rc ? rc : write_leaf(d, d->dir.block);
}

/* Write the rest of the directory in progress, and note its place for the inode. */
static int end_directory(struct ext4_dirs *d)
{
    int rc = 0;
    if (!d->open)
        return 0;
    if (!d->leaves.len && DOTS + d->used <= ROOM) {
        rc = write_linear(d);
    } else {
        rc = close_leaf(d);
        if (!rc)
            rc = write_index(d);
    }
    d->dir.links = d->dir.links > EXT4_LINKS_MAX ? 1 : d->dir.links;
    d->leaves.len = 0;
    d->open = false;
    return rc ? rc : scratch_write(d->written, scratch_len(d->written), &d->dir, sizeof d->dir);
}

/* End the directory in progress and begin another. */
static int begin_directory(struct ext4_dirs *d, const struct sorter_record *r)
{
    int rc = end_directory(d);
    d->dir = (struct ext4_dir){.rank = get_be32(r->key), .links = 2};
    d->ino = ext4_ino(d->dir.rank);
    d->parent = le32_get(r->value);
    d->open = true;
    return rc;
}

int ext4_dirs_write(struct ext4_dirs *d)
{
    struct sorter_record r;
    uint64_t done = 0;
    int rc = sorter_sort(d->sorter);
    while (!rc && (rc = sorter_next(d->sorter, &r)) == 1) {
        if (r.key_len == 4)
            rc = begin_directory(d, &r);
        else if (!d->open || get_be32(r.key) != d->dir.rank)
            rc = error_set(-EIO, "ext4: a name without its directory: a bug, nothing was published");
        else
            rc = ext4_dir_put(d, &r);
        if (!rc)
            rc = ext4_step(d->e, ++done);
    }
    return rc ? rc : end_directory(d);
}

int ext4_dirs_next(struct ext4_dirs *d, uint32_t rank, struct ext4_dir *out)
{
    int rc = d->read < scratch_len(d->written) ? scratch_read(d->written, d->read, out, sizeof *out) : -ENOENT;
    d->read += sizeof *out;
    if (rc == -ENOENT || (!rc && out->rank != rank))
        rc = error_set(-EIO, "ext4: directories in another order than planned: a bug, nothing was published");
    return rc;
}

/* ------------------------------------------------------------------ its life */

void ext4_dirs_free(struct ext4_dirs *d)
{
    if (!d)
        return;
    sorter_free(d->sorter);
    scratch_free(d->written);
    vec_release(&d->leaves);
    free(d);
}

int ext4_dirs_new(struct ext4 *e, struct ext4_dirs **out)
{
    CLEANUP(cleanup_ext4_dirs) struct ext4_dirs *d = calloc(1, sizeof *d);
    if (!d)
        return error_no_memory();
    d->e = e;
    const struct sorter_config sorter = {.dir = e->config.dir, .memory = e->config.memory};
    const struct scratch_config scratch = {.dir = e->config.dir, .memory = e->config.memory};
    int rc = sorter_new(&sorter, &d->sorter);
    if (!rc)
        rc = scratch_new(&scratch, &d->written);
    if (!rc)
        *out = steal_ptr(&d);
    return rc;
}
