/* Inodes of erofs that are not in path order, since the image was built upon another (docs/reference/format-erofs.md):
 * the metadata is copied to a scratch, and each path is looked up in its directories. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/join/join_internal.h"
#include "imagebuild/tree/nodes.h"

enum { COPY_PIECE = 64 << 10 };

/* Append a range of the image to the scratch. */
static int copy_range(struct inode_scan *s, uint64_t from, uint64_t to, struct scratch *out)
{
    const uint8_t *p;
    int rc = inode_scan_range(s, from, to);
    for (uint64_t at = from; at < to && !rc; at += COPY_PIECE) {
        const size_t n = (size_t)GR_MIN(to - at, (uint64_t)COPY_PIECE);
        rc = inode_scan_need(s, at, n, &p);
        if (!rc)
            rc = scratch_write(out, scratch_len(out), p, n);
        if (!rc)
            rc = step_take(&s->config->step);
    }
    return rc;
}

int inodes_copy_metadata(const struct inodes_config *config, struct scratch **out)
{
    const struct manifest *m = config->manifest;
    const struct scratch_config scratch = {.dir = config->dir};
    struct inode_scan s CLEANUP(inode_scan_release) = {.config = config};
    CLEANUP(cleanup_scratch) struct scratch *copy = NULL;
    uint8_t front[EROFS_BLOCK] = {0};
    int rc = inode_scan_open(&s, config, NULL);
    if (!rc)
        rc = image_bytes_read(s.bytes, 0, GR_MIN(m->size, (uint64_t)sizeof front), front);
    if (!rc)
        rc = scratch_new(&scratch, &copy);
    if (!rc)
        rc = scratch_write(copy, 0, front, sizeof front);
    if (!rc)
        rc = copy_range(&s, m->metadata_offset, m->metadata_offset + m->metadata_len, copy);
    if (!rc)
        *out = steal_ptr(&copy);
    return rc;
}

/* ------------------------------------------------------------------ looking up */

struct inode_tree {
    struct scratch *metadata;
    struct erofs_tree *tree;
    struct bytes encoded, xattrs; /* of the last inode */
};

int inode_tree_new(const struct inodes_config *config, struct inode_tree **out)
{
    CLEANUP(cleanup_inode_tree) struct inode_tree *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
    t->encoded = t->xattrs = (struct bytes)BYTES_INIT(4 * (size_t)NODE_XATTRS_MAX);
    int rc = inodes_copy_metadata(config, &t->metadata);
    if (!rc)
        rc = erofs_tree_new(t->metadata, config->manifest->metadata_offset, &t->tree);
    if (!rc && !t->tree)
        rc = inode_scan_damaged("there is no superblock");
    if (!rc)
        *out = steal_ptr(&t);
    return rc;
}

void inode_tree_free(struct inode_tree *t)
{
    if (!t)
        return;
    erofs_tree_free(t->tree);
    scratch_free(t->metadata);
    bytes_release(&t->encoded);
    bytes_release(&t->xattrs);
    free(t);
}

/* Read the attributes of the inode at a position. */
static int read_xattrs(struct inode_tree *t, uint64_t at, size_t len)
{
    uint8_t *p;
    bytes_clear(&t->encoded);
    bytes_clear(&t->xattrs);
    int rc = len ? bytes_extend(&t->encoded, len, &p) : 0;
    if (!rc && len)
        rc = erofs_tree_read(t->tree, at + EROFS_INODE_SIZE, p, len);
    return !rc && len ? inode_erofs_xattrs(t->encoded.data, len, &t->xattrs) : rc;
}

/* A path of the catalog has no inode. */
static int has_none(const char *path, size_t len)
{
    char what[256];
    snprintf(what, sizeof what, "'%.*s' has none", (int)GR_MIN(len, (size_t)200), path);
    return inode_scan_damaged(what);
}

int inode_tree_find(struct inode_tree *t, const char *path, size_t len, struct inode_extra *out)
{
    uint8_t inode[EROFS_INODE_SIZE];
    uint32_t nid;
    int rc = erofs_tree_find(t->tree, path, len, &nid);
    if (!rc && !nid)
        rc = has_none(path, len);
    if (!rc)
        rc = erofs_tree_read(t->tree, (uint64_t)nid * EROFS_NID_UNIT, inode, sizeof inode);
    if (!rc)
        rc = inode_erofs_extra(inode, out);
    if (!rc)
        rc = read_xattrs(t, (uint64_t)nid * EROFS_NID_UNIT, erofs_xattr_bytes(inode));
    if (rc)
        return rc;
    out->xattrs = t->xattrs.data;
    out->xattrs_len = t->xattrs.len;
    return 1;
}
