/* The chunk index of an image being written, put into the store node by node as nodes become complete.
 *
 * Chunks come in ascending order from chunk 1 on, chunk 0 at any time; numbers left out are holes. Memory is bounded
 * whatever the image's size: the leaf in progress and leaf 0, and for each of the upper levels the node in progress
 * and the level's first node (which waits for chunk 0): about 0.8 MiB.
 */
#ifndef GRANARY_IMAGEBUILD_INDEX_WRITER_H
#define GRANARY_IMAGEBUILD_INDEX_WRITER_H

#include "format/index.h"
#include "imagebuild/upload.h"

struct index_writer;

GR_MUST_CHECK int index_writer_new(struct upload *upload, struct index_writer **out);
void index_writer_free(struct index_writer *w);

GR_MUST_CHECK int index_writer_add(struct index_writer *w, uint64_t number, const struct chunk_ref *ref);

/* The image has chunk_count chunks. *out_root: as a child of a level above. -EFBIG: more chunks than an index can hold.
 */
GR_MUST_CHECK int index_writer_finish(struct index_writer *w, uint64_t chunk_count, struct index_child *out_root,
                                      unsigned *out_levels);

#endif
