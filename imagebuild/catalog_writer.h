/* The file catalog of an image being built: every path of the tree, in the byte order of the full path, as pages put
 * into the store while the tree is walked. One page a level is in memory.
 */
#ifndef GRANARY_IMAGEBUILD_CATALOG_WRITER_H
#define GRANARY_IMAGEBUILD_CATALOG_WRITER_H

#include "format/catalog.h"
#include "imagebuild/tree.h"
#include "imagebuild/upload.h"

struct catalog_root {
    struct digest digest;
    uint32_t len, crc;
    uint64_t entries;
    unsigned levels; /* 1: the root is a page of entries */
};

/* Write the catalog of t, whose bodies have their addresses. The pages have been handed to the upload when this
 * returns. A hard link's further names carry the first one's path as target, and the same version, content and extent.
 */
GR_MUST_CHECK int catalog_write(struct tree *t, struct upload *upload, struct catalog_root *out);

#endif
