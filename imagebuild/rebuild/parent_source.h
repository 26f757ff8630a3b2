/* The parent's image as the source of the files that compaction moves: source_read.address tells where a file lies.
 * Has nothing to list or stat. Any thread may read. */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

/* Store and manifest are the caller's and outlive the source. -ENOMEM; errors of image_bytes_new. */
GR_MUST_CHECK int parent_source_new(struct store *store, const struct manifest *parent, struct source **out);

#endif
