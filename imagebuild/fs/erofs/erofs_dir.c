/* A block is an array of entries, followed by their names:
 *
 *   | nid, name offset, type | nid, name offset, type | ... | name | name | ... | zeros
 *     12 bytes each                                       ^ the first entry's name offset: gives the number of entries
 *
 * A name ends where the next begins; the last one ends at a zero or at the block's end. The number of entries is
 * known only when the block is full, so entries and names are collected apart, with offsets counted from the first
 * name.
 */
#include "imagebuild/fs/erofs/erofs_dir.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/le.h"

/* Return erofs' file type (EROFS_FT_*), which has the values of the kernel's common fs_types.h. */
static uint8_t file_type(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 1;
    case S_IFDIR:
        return 2;
    case S_IFCHR:
        return 3;
    case S_IFBLK:
        return 4;
    case S_IFIFO:
        return 5;
    case S_IFSOCK:
        return 6;
    default:
        return 7; /* a symbolic link */
    }
}

void erofs_dir_begin(struct erofs_dir *d, uint32_t self, uint32_t up, erofs_dir_write *write, void *arg)
{
    struct bytes entries = d->entries, names = d->names;
    bytes_clear(&entries);
    bytes_clear(&names);
    entries.max = names.max = EROFS_BLOCK;
    *d = (struct erofs_dir){.self = self, .up = up, .write = write, .arg = arg, .entries = entries, .names = names};
}

void erofs_dir_release(struct erofs_dir *d)
{
    bytes_release(&d->entries);
    bytes_release(&d->names);
}

void erofs_dir_last(const struct erofs_dir *d, uint8_t out[EROFS_BLOCK])
{
    memset(out, 0, EROFS_BLOCK);
    memcpy(out, d->entries.data, d->entries.len);
    memcpy(out + d->entries.len, d->names.data, d->names.len);
    for (uint8_t *p = out; p < out + d->entries.len; p += EROFS_DIRENT_SIZE)
        le16_put(p + 8, (uint16_t)(le16_get(p + 8) + d->entries.len));
}

/* Write the block in progress, which is full, and begin the next. */
static int next_block(struct erofs_dir *d)
{
    int rc = 0;
    if (d->write) {
        uint8_t block[EROFS_BLOCK];
        erofs_dir_last(d, block);
        rc = d->write(d->arg, d->blocks, block);
    }
    bytes_clear(&d->entries);
    bytes_clear(&d->names);
    d->used = 0;
    d->blocks++;
    return rc;
}

/* Append an entry to the block in progress. */
static int erofs_dir_keep(struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint8_t *p;
    int rc = bytes_extend(&d->entries, EROFS_DIRENT_SIZE, &p);
    if (rc)
        return rc;
    le64_put(p, entry->nid);
    le16_put(p + 8, (uint16_t)d->names.len);
    p[10] = file_type(entry->mode);
    return bytes_append(&d->names, entry->name, entry->len);
}

/* Add an entry to the block in progress, or to the next if that is full. Without `write`, only sizes are counted. */
static int erofs_dir_put(struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint32_t more = EROFS_DIRENT_SIZE + entry->len;
    int rc = d->used + more > EROFS_BLOCK ? next_block(d) : 0;
    if (!rc && d->write)
        rc = erofs_dir_keep(d, entry);
    d->used += more;
    return rc;
}

/* Add the next of "." and "..". */
static int put_dots(struct erofs_dir *d)
{
    struct erofs_entry entry = {.name = "..", .len = ++d->dots, .mode = S_IFDIR};
    entry.nid = d->dots == 1 ? d->self : d->up;
    return erofs_dir_put(d, &entry);
}

/* Return whether the next of "." and ".." comes before the entry's name. */
static bool dots_first(const struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint32_t len = d->dots + 1;
    int order = memcmp("..", entry->name, GR_MIN(len, entry->len));
    return order < 0 || (order == 0 && len < entry->len);
}

int erofs_dir_add(struct erofs_dir *d, const struct erofs_entry *entry)
{
    int rc = 0;
    while (d->dots < 2 && !rc && dots_first(d, entry))
        rc = put_dots(d);
    return rc ? rc : erofs_dir_put(d, entry);
}

int erofs_dir_end(struct erofs_dir *d)
{
    int rc = 0;
    while (d->dots < 2 && !rc)
        rc = put_dots(d);
    return rc;
}

uint64_t erofs_dir_size(const struct erofs_dir *d)
{
    return d->blocks * EROFS_BLOCK + d->used;
}
