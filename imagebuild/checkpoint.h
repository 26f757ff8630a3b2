/* Checkpoints let a build resume. After every `bytes` bytes of file data, a build without a parent writes a
 * description of what is stored so far to builds/<key>.checkpoint (docs/reference/format-store.md, "Checkpoints").
 * When the same build runs again after a failure, it finds this object with one get and uses it like a parent: files
 * that have not changed stay where they are.
 *
 * At a checkpoint the file data continues at the next chunk and in a new pack. This happens whether or not a build
 * fails, so that an interrupted build and an uninterrupted one give the same image. A file is never divided: the
 * distance of two checkpoints is at least `bytes`, and less than `bytes` plus one file.
 *
 * Memory: a catalog page, and about 150 bytes for each full page (1,024 files). Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_CHECKPOINT_H
#define GRANARY_IMAGEBUILD_CHECKPOINT_H

#include "format/manifest.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/tree/nodes.h"
#include "repository/lease.h"

/* What makes two runs the same build, so that one may resume where the other stopped. Strings are the caller's. */
struct checkpoint_identity {
    const char *name, *tag, *source;
    enum manifest_fs fs;
    uint32_t chunk_size;
    int zstd_level;
    size_t pack_size;
    uint64_t bytes; /* of file data between two checkpoints */
};

/* Return the <key> of the checkpoint's name: a digest of the identity. */
struct digest checkpoint_key(const struct checkpoint_identity *id);

/* Find the checkpoint that an earlier run of the same build left. The caller holds the lease. data_begin: as in struct
 * fs; the checkpoint must have the same. 1: found, in *out; 0: there is none, or it cannot be used, which is logged; or
 * -errno of the store. */
GR_MUST_CHECK int checkpoint_find(struct store *s, const struct checkpoint_identity *id, uint64_t data_begin,
                                  struct manifest *out);
/* Before publishing a build that resumed: check that its checkpoint still exists. As long as it does, gc has swept
 * nothing that it names. -EAGAIN: it is gone. */
GR_MUST_CHECK int checkpoint_hold(struct store *s, const struct checkpoint_identity *id);
/* Remove the checkpoint of a build that was published. A failure is only logged, since gc removes it later. */
void checkpoint_remove(struct store *s, const struct checkpoint_identity *id);

/* Writes checkpoints of one build. */
struct checkpoint;

/* All members are the caller's and outlive the checkpoint. */
struct checkpoint_config {
    struct store *store;
    struct upload *upload;
    struct sink *sink;
    const struct lease_handle *lease; /* once it has lapsed, no more are written: objects they name may be gone */
    struct checkpoint_identity id;
    uint64_t data_begin; /* as in struct fs */
};

/* -ENOMEM. */
GR_MUST_CHECK int checkpoint_new(const struct checkpoint_config *config, struct checkpoint **out);
void checkpoint_free(struct checkpoint *c); /* NULL is allowed */
DEFINE_CLEANUP(checkpoint, struct checkpoint *, checkpoint_free)

/* Begin, before the first node is added. File data starts at `end`. */
void checkpoint_start(struct checkpoint *c, uint64_t end);
/* Add a node to the catalog. Called for every final node, in path order, after its data was written to the sink. */
GR_MUST_CHECK int checkpoint_add(struct checkpoint *c, const struct node *n);
/* Write a checkpoint if one is due; then it blocks until all uploads are done. `end` is where file data ends now, and
 * *out_end where it continues, the start of a chunk, also after an error; 0: none was due. Errors of the sink, the
 * upload and the store. */
GR_MUST_CHECK int checkpoint_reach(struct checkpoint *c, uint64_t end, uint64_t *out_end);
/* Return how many checkpoints were written. */
uint64_t checkpoint_count(const struct checkpoint *c);

#endif
