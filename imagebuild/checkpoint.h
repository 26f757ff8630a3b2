/* Checkpoints: every so many bytes of bodies a build without a parent leaves a description of what is stored so far in
 * builds/<key>.checkpoint (docs/reference/format-store.md, "Checkpoints"). A build that is run again after it failed
 * finds it with one get and goes on upon it as upon a parent: files that are in it unchanged stay where they are.
 *
 * At a checkpoint the bodies go on at a chunk's begin and in a new pack, whether or not a build ever fails, so that the
 * image of a build that was interrupted is the same. A file is never divided: between two checkpoints lie at least
 * `bytes`, and at most those and one file.
 *
 * Memory: a catalog page, and about 150 bytes for each page that is full (1,024 files). One thread.
 */
#ifndef GRANARY_IMAGEBUILD_CHECKPOINT_H
#define GRANARY_IMAGEBUILD_CHECKPOINT_H

#include "format/manifest.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/tree/nodes.h"
#include "store/lease.h"

/* What makes two runs the same build: the other may go on where this one ended. */
struct checkpoint_identity {
    const char *name, *tag, *source;
    enum manifest_fs fs;
    uint32_t chunk_size;
    int zstd_level;
    size_t pack_size;
    uint64_t bytes; /* between two checkpoints */
};

struct digest checkpoint_key(const struct checkpoint_identity *id);

/* After the lease has begun: what an earlier run of the same build left, whose bodies begin at `bodies` (struct fs). 1:
 * found; 0: nothing (what cannot be used is warned of); or -errno. */
GR_MUST_CHECK int checkpoint_find(struct store *s, const struct checkpoint_identity *id, uint64_t bodies,
                                  struct manifest *out);
/* Before a build that went on upon one publishes: while the document is there, gc has swept nothing that it names.
 * -EAGAIN: it is gone. */
GR_MUST_CHECK int checkpoint_hold(struct store *s, const struct checkpoint_identity *id);
/* The build has been published. A failure is warned of; gc forgets it later. */
void checkpoint_remove(struct store *s, const struct checkpoint_identity *id);

struct checkpoint;

struct checkpoint_config {
    struct store *store;
    struct upload *upload;
    struct sink *sink;
    const struct lease_handle *lease; /* when it has lapsed, none are left any more: what they name may be gone */
    struct checkpoint_identity id;
    uint64_t bodies; /* as in struct fs */
};

GR_MUST_CHECK int checkpoint_new(const struct checkpoint_config *config, struct checkpoint **out);
void checkpoint_free(struct checkpoint *c); /* NULL is allowed */
DEFINE_CLEANUP(checkpoint, struct checkpoint *, checkpoint_free)

/* Before the first node: where the first body goes. */
void checkpoint_start(struct checkpoint *c, uint64_t end);
/* Every node in its final form, in path order; its body has been written into the sink. */
GR_MUST_CHECK int checkpoint_add(struct checkpoint *c, const struct node *n);
/* Bodies end at `end`. When a checkpoint is due it is left, and they go on at *out_end; else that is `end`. */
GR_MUST_CHECK int checkpoint_reach(struct checkpoint *c, uint64_t end, uint64_t *out_end);
/* How many were left. */
uint64_t checkpoint_count(const struct checkpoint *c);

#endif
