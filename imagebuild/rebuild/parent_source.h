/* The parent's image as a source of the bodies that compaction moves: struct source_read's address says where a body
 * lies. There is nothing to list and nothing to stat in it. Read may be called from any thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_SOURCE_H

#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "store/store.h"

/* Store and manifest are the caller's and stay. */
GR_MUST_CHECK int parent_source_new(struct store *store, const struct manifest *parent, struct source **out);

#endif
