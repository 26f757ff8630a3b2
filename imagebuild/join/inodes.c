/* Dispatch by filesystem, and finding what a scan kept. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/join/join_internal.h"

struct inodes {
    enum manifest_fs fs;
    struct sorter *found;
    struct sorter_record next; /* the record that was read last, */
    uint64_t number;           /* and its number */
    bool more;
    struct inode_tree *tree; /* erofs whose inodes have no numbers; else NULL */
};

void inodes_free(struct inodes *i)
{
    if (!i)
        return;
    sorter_free(i->found);
    inode_tree_free(i->tree);
    free(i);
}

/* Read the next record. Two of one number would be two inodes for one path. */
static int pull(struct inodes *i, bool first)
{
    int rc = sorter_next(i->found, &i->next);
    uint64_t key;
    i->more = rc == 1;
    if (rc <= 0)
        return rc;
    memcpy(&key, i->next.key, sizeof key);
    key = be64toh(key);
    if (!first && key == i->number)
        return inode_scan_damaged("two have one number");
    i->number = key;
    return 0;
}

/* Scan the image into i->found. */
static int scan(struct inodes *i, const struct inodes_config *config)
{
    struct inode_scan s CLEANUP(inode_scan_release) = {.config = config};
    bool numbered = true;
    int rc = inode_scan_open(&s, config, i->found);
    if (!rc && i->fs == MANIFEST_EROFS)
        rc = inode_erofs_is_numbered(&s, &numbered);
    if (rc)
        return rc;
    if (!numbered) {
        inode_scan_release(&s); /* the tree's own scan holds as much */
        return inode_tree_new(config, &i->tree);
    }
    switch (i->fs) {
    case MANIFEST_EROFS:
        return inode_erofs_scan(&s);
    case MANIFEST_EXT4:
        return inode_ext4_scan(&s);
    case MANIFEST_FILESYSTEMS:
        break;
    }
    return error_set(-EINVAL, "filesystem number %d is not known to this build", (int)i->fs);
}

int inodes_read(const struct inodes_config *config, struct inodes **out)
{
    CLEANUP(cleanup_inodes) struct inodes *i = calloc(1, sizeof *i);
    const struct sorter_config sorter = {.dir = config->dir};
    if (!i)
        return error_no_memory();
    i->fs = config->manifest->fs;
    int rc = sorter_new(&sorter, &i->found);
    if (!rc)
        rc = scan(i, config);
    if (!rc)
        rc = sorter_sort(i->found);
    if (!rc)
        rc = pull(i, true);
    if (!rc)
        *out = steal_ptr(&i);
    return rc;
}

bool inodes_close_directories(const struct inodes *i)
{
    return i->fs == MANIFEST_EROFS && !i->tree;
}

int inodes_find(struct inodes *i, const char *path, size_t len, uint64_t number, struct inode_extra *out)
{
    if (i->tree)
        return inode_tree_find(i->tree, path, len, out);
    /* a record stays valid until the next one is read, so it is passed over only now */
    while (i->more && i->number < number) {
        int rc = pull(i, false);
        if (rc)
            return rc;
    }
    if (!i->more || i->number != number)
        return 0;
    memcpy(out, i->next.value, sizeof *out);
    out->xattrs = i->next.value + sizeof *out;
    return 1;
}
