/* The parent of a build: the image it builds upon. This module knows what of the parent stays, what compaction moves
 * and what scrubbing erases; it is build.c's only way to plan.h, live_map.h, compact.h and scrub.h.
 *
 * Call order:
 *
 *   parent_open (or parent_resume) -> parent_look -> fs_*_new (does the filesystem keep the parent's data?)
 *   -> parent_plan -> parent_sink, sink_new -> parent_scrub -> content_writer_run with `live` and `source`
 *   -> parent_hold, before publishing -> parent_free
 *
 * One thread. Errors of the parent's own objects name --parent none as the remedy.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_H

#include "format/image_ref.h"
#include "format/tag.h"
#include "imagebuild/rebuild/compact.h"
#include "imagebuild/rebuild/parent_check.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/rebuild/plan.h"
#include "imagebuild/rebuild/scrub.h"
#include "imagebuild/source/source.h"

/* All pointers are the caller's and outlive the parent. */
struct parent_config {
    struct store *store;
    const struct image_ref *image; /* which image of this store */
    struct digest source;          /* digest of the source's address (struct tag) */
    /* A parent was asked for: -ENOENT if there is none, -EINVAL if its filesystem or chunk size differs. Otherwise,
     * when `image` does not exist, the newest image of its name from this source is taken (lineage_newest); and if
     * there is none, or it is damaged or differs, the build has no parent. */
    bool must_be;
    enum manifest_fs fs; /* of the image to be built */
    uint32_t chunk_size; /* of the image to be built; 0: the parent's */
    /* Compaction budget: a percentage of the kept bytes, plus a number of bytes. Counted in whole blocks. */
    unsigned compact_percent;
    uint64_t compact_bytes;
    const char *dir;            /* for temporary files; as in struct scratch_config */
    const volatile int *cancel; /* NULL is allowed */
    int (*step)(void *arg);     /* called between any two pieces of work; non-zero ends it */
    void *step_arg;
};

/* Members are read by anyone and written only by this module. */
struct parent {
    struct parent_config config;
    struct digest digest;
    struct image_ref found; /* config.image, or the newest image that was found instead */
    bool is_newest;         /* the latter: found, not asked for */
    struct tag tag;         /* zero if a digest named the parent, or for a checkpoint */
    struct manifest manifest;
    struct live_map *live;       /* blocks of kept files */
    struct parent_damage damage; /* by parent_look: what cannot stay because the store lacks it */
    struct source *source;       /* reads NODE_MOVE files; NULL: none are moved */
    struct plan_counts plan;
    struct compact_counts moved;
    uint64_t budget_left; /* what compaction left of its budget, for repacking: bytes */
    struct scrub_counts scrubbed;
    uint64_t dead_bytes; /* unused blocks in chunks that stay */
};

/* Find the parent. *out NULL: there is none; *out_other then tells whether one was found that has another filesystem
 * or chunk size. Errors: see must_be; -EBADMSG: its tag or manifest is damaged; -ENOMEM; those of the store. */
GR_MUST_CHECK int parent_open(const struct parent_config *config, struct parent **out, bool *out_other);
/* Use the checkpoint of an earlier run (checkpoint.h) as the parent. Nothing is moved in it, and parent_hold is not
 * for it. -ENOMEM. */
GR_MUST_CHECK int parent_resume(const struct parent_config *config, const struct manifest *left, struct parent **out);
/* Check that the store has what the parent refers to (parent_check.h), and fill in (*p)->damage. If a
 * parent that was not asked for cannot be used, *p is freed and becomes NULL, which is logged. Errors as from
 * parent_check. */
GR_MUST_CHECK int parent_look(struct parent **p);
void parent_free(struct parent *p); /* NULL is allowed */
DEFINE_CLEANUP(parent, struct parent *, parent_free)

/* Plan each listed node: *nodes is freed and replaced by the planned ones. Errors of plan_make and compact_apply. */
GR_MUST_CHECK int parent_plan(struct parent *p, struct nodes **nodes);
/* Describe the parent to the sink; valid as long as p. */
struct sink_parent parent_sink(struct parent *p);
/* Rewrite the chunks that hold dead bytes, with zeros there (scrub.h). */
GR_MUST_CHECK int parent_scrub(struct parent *p, struct sink *sink);
/* Before publishing, under the build's lease: make sure that the parent's objects are still in the store and stay.
 * lapsed: the lease has lapsed, so all of them are looked up. */
GR_MUST_CHECK int parent_hold(struct parent *p, bool lapsed);
/* Return the parent that the new image's tags name: this one, or its own parent if nothing changed. */
struct digest parent_of_tag(const struct parent *p, const struct digest *image);

#endif
