/* Directories in the form erofs has them: blocks of entries sorted by the names' bytes over the whole directory (the
 * dot entries stand in their places among them), each block filled with as many as fit. Entries come one by one, so a
 * directory holds one block in memory, whatever its size.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_DIR_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_DIR_H

#include "base/bytes.h"
#include "imagebuild/fs/erofs/erofs_format.h"

struct erofs_entry {
    const char *name;
    uint32_t len;
    uint32_t nid;
    uint16_t mode; /* its type is noted */
};

/* A complete block, the number-th of its directory. Not 0 ends the directory with that value. */
typedef int erofs_dir_write(void *arg, uint64_t number, const uint8_t block[EROFS_BLOCK]);

/* Begin with zeros and the fields up to arg; the rest belongs to erofs_dir.c. */
struct erofs_dir {
    uint32_t self, up;      /* inode numbers of "." and ".." */
    erofs_dir_write *write; /* NULL: only count, nothing is kept */
    void *arg;
    uint64_t blocks;      /* complete ones */
    uint32_t used;        /* bytes of the block in progress */
    unsigned dots;        /* of "." and "..", how many are behind */
    struct bytes entries; /* of the block in progress */
    struct bytes names;
};

/* Begin another directory with the memory of the last. */
void erofs_dir_begin(struct erofs_dir *d, uint32_t self, uint32_t up, erofs_dir_write *write, void *arg);
void erofs_dir_release(struct erofs_dir *d);

/* The next entry; names ascend. */
GR_MUST_CHECK int erofs_dir_add(struct erofs_dir *d, const struct erofs_entry *entry);
/* No more entries: what is in progress now is the last block. */
GR_MUST_CHECK int erofs_dir_end(struct erofs_dir *d);

/* After the end: bytes of the whole directory: full blocks of 4096, the last one as long as its entries are. */
uint64_t erofs_dir_size(const struct erofs_dir *d);
/* After the end: the last block; what its entries do not use is zero. */
void erofs_dir_last(const struct erofs_dir *d, uint8_t out[EROFS_BLOCK]);

#endif
