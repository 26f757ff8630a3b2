/* Directories in erofs' form: blocks of entries sorted by the bytes of their names over the whole directory, "." and
 * ".." in their places among them. Each block is filled with as many entries as fit. Entries come one by one, so a
 * directory takes one block of memory, whatever its size. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_DIR_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_DIR_H

#include "base/bytes.h"
#include "imagebuild/fs/erofs/erofs_format.h"

struct erofs_entry {
    const char *name;
    uint32_t len;
    uint32_t nid;
    uint16_t mode; /* the file type is taken from it */
};

/* Receive the complete block `number` of a directory. A non-zero result ends the directory with that value. */
typedef int erofs_dir_write(void *arg, uint64_t number, const uint8_t block[EROFS_BLOCK]);

/* Begin with zeros and the members up to arg; the others belong to erofs_dir.c. */
struct erofs_dir {
    uint32_t self, up;      /* inode numbers of "." and ".." */
    erofs_dir_write *write; /* NULL: only count */
    void *arg;
    uint64_t blocks;      /* complete blocks */
    uint32_t used;        /* bytes in the block in progress */
    unsigned dots;        /* how many of "." and ".." have been added */
    struct bytes entries; /* of the block in progress */
    struct bytes names;
};

/* Begin another directory, re-using the memory of the last. */
void erofs_dir_begin(struct erofs_dir *d, uint32_t self, uint32_t up, erofs_dir_write *write, void *arg);
void erofs_dir_release(struct erofs_dir *d);

/* Add the next entry; names ascend, "." and ".." are added by themselves. -ENOMEM; what `write` returns. */
GR_MUST_CHECK int erofs_dir_add(struct erofs_dir *d, const struct erofs_entry *entry);
/* End the directory: the block in progress is the last. Errors as from erofs_dir_add. */
GR_MUST_CHECK int erofs_dir_end(struct erofs_dir *d);

/* After the end: return the directory's bytes, full blocks of 4096 and the used part of the last one. */
uint64_t erofs_dir_size(const struct erofs_dir *d);
/* After the end: write the last block, padded with zeros. */
void erofs_dir_last(const struct erofs_dir *d, uint8_t out[EROFS_BLOCK]);

#endif
