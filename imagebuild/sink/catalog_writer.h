/* Write the catalog of an image: an entry for every node, in the byte order of the full path, in pages that are put
 * into the store as they fill up. docs/reference/format-store.md describes the pages. Memory: one page a level, and
 * with bases some 20 pages. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_CATALOG_WRITER_H
#define GRANARY_IMAGEBUILD_SINK_CATALOG_WRITER_H

#include "format/catalog.h"
#include "imagebuild/sink/upload.h"
#include "imagebuild/tree/nodes.h"
#include "repository/read/catalog_read.h"

/* The top page, as the manifest refers to it. */
struct catalog_root {
    struct digest digest;
    uint32_t len, crc; /* bytes; CRC-32C */
    uint64_t entries;
    unsigned levels; /* 1: the root is a page of entries */
};

/* Write the catalog of the final nodes, whose files have addresses. All pages have been handed to `upload` when this
 * returns, but have not necessarily arrived. A further name of a hard-linked file (link != rank) has the first name's
 * path as target, and the same version, content and extent. A page is a delta of its base (NULL: there are no bases)
 * where that is worth it. If a base cannot be read, this is logged, and the rest is written in full. -EFBIG: too many
 * paths; -ENOMEM; errors of the upload and scratch. */
GR_MUST_CHECK int catalog_write(const struct nodes *nodes, struct catalog_bases *bases, struct upload *upload,
                                struct catalog_root *out);

/* Return the catalog entry of a node; *extent is where its data lies, if it has any. Both point into the node's
 * strings. */
struct catalog_entry catalog_entry_of(const struct node *n, struct catalog_extent *extent);

/* Write the levels above `count` pages of entries (at least 1) that were put already, in the order of their paths.
 * Errors as from catalog_write. */
GR_MUST_CHECK int catalog_from_pages(const struct catalog_child *pages, size_t count, struct upload *upload,
                                     struct catalog_root *out);

#endif
