/* The file catalog of an image being built: every node, in the byte order of the full path, as pages put into the
 * store while the nodes are read. One page a level is in memory.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_CATALOG_WRITER_H
#define GRANARY_IMAGEBUILD_SINK_CATALOG_WRITER_H

#include "format/catalog.h"
#include "imagebuild/sink/upload.h"
#include "imagebuild/tree/nodes.h"

struct catalog_root {
    struct digest digest;
    uint32_t len, crc;
    uint64_t entries;
    unsigned levels; /* 1: the root is a page of entries */
};

/* Write the catalog of the final nodes, whose bodies have their addresses. The pages have been handed to the upload
 * when this returns. A hard link's further names (link != rank) carry the first one's path as target, and the same
 * version, content and extent.
 */
GR_MUST_CHECK int catalog_write(const struct nodes *nodes, struct upload *upload, struct catalog_root *out);

/* What the catalog says of a node; *extent is the entry's, if it has one. */
struct catalog_entry catalog_entry_of(const struct node *n, struct catalog_extent *extent);

/* The upper levels over pages of entries that have been put already; their order is that of their paths. count: above
 * 0.
 */
GR_MUST_CHECK int catalog_from_pages(const struct catalog_child *pages, size_t count, struct upload *upload,
                                     struct catalog_root *out);

#endif
