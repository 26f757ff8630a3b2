/* The parent's image as a source, from which compaction reads the files that it moves. source_read.address says where
 * in the image a file lies. Only source_read, source_cancel and source_close may be called. Any thread may read. */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

/* Store and manifest are the caller's and outlive the source. -ENOMEM; errors of image_bytes_new. */
GR_MUST_CHECK int parent_source_new(struct store *store, const struct manifest *parent, struct source **out);

#endif
