/* The image a build is made upon: what of it stays, what is moved, what is erased. One home for what build.c would
 * otherwise know about plan.h, live_map.h, compact.h and scrub.h.
 *
 *   parent_open, parent_look, fs_*_new (does the filesystem keep the parent's bodies?), parent_plan, parent_sink ->
 * sink_new, parent_scrub, content_writer_run with live and source, parent_hold before publishing, parent_free
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

struct parent_config {
    struct store *store;           /* the caller's */
    const struct image_ref *image; /* which image, of this store */
    struct digest source;          /* of the address that is built (struct tag) */
    /* -ENOENT, -EINVAL when it is not there or of other geometry. Else the newest image of the name that was built
     * from this source (lineage_newest) is taken when the tag is not there, and when there is none, or it is damaged
     * or of other geometry, there is no parent. */
    bool must_be;
    enum manifest_fs fs; /* of the image to be built */
    uint32_t chunk_size; /* likewise; 0: the parent's will do */
    /* Files moved by compaction have at most so many bytes, in blocks: that share of what is kept, and that number. */
    unsigned compact_percent;
    uint64_t compact_bytes;
    const char *dir; /* for temporary files; as in struct scratch_config */
    const volatile int *cancel;
    int (*step)(void *arg); /* between any two pieces of work; not 0 ends it */
    void *step_arg;
};

/* Read by everybody, written here. */
struct parent {
    struct parent_config config;
    struct digest digest;
    struct image_ref found; /* config.image, or the newest image's */
    bool is_newest;         /* the latter, which nobody asked for */
    struct tag tag;         /* zero when it was named by digest */
    struct manifest manifest;
    struct live_map *live;
    struct parent_damage damage; /* parent_look: what cannot stay, since the store lacks it */
    struct source *source;       /* of NODE_MOVE bodies; NULL: nothing is moved */
    struct plan_counts plan;
    struct compact_counts moved;
    uint64_t budget_left; /* of compaction's: bytes that may be copied from one pack into another */
    struct scrub_counts scrubbed;
    uint64_t dead_bytes; /* blocks that no file uses in chunks that stay */
};

/* Find it. *out NULL: there is none to build upon; *out_other then says whether that is because it is of another
 * filesystem or chunk size. */
GR_MUST_CHECK int parent_open(const struct parent_config *config, struct parent **out, bool *out_other);
/* What an earlier run of this build left (checkpoint.h) is gone on from as from a parent. Nothing is moved in it, and
 * it is not held by parent_hold. */
GR_MUST_CHECK int parent_resume(const struct parent_config *config, const struct manifest *left, struct parent **out);
/* Once it was found: is what it refers to in the store (parent_check.h)? Fills (*p)->damage. *p becomes NULL when
 * nobody asked for it and it cannot be built upon. */
GR_MUST_CHECK int parent_look(struct parent **p);
void parent_free(struct parent *p); /* NULL is allowed */
DEFINE_CLEANUP(parent, struct parent *, parent_free)

/* Take the listed nodes over into planned ones: *nodes is freed and replaced. */
GR_MUST_CHECK int parent_plan(struct parent *p, struct nodes **nodes);
/* What the sink needs to know; valid as long as p. */
struct sink_parent parent_sink(struct parent *p);
/* Erase what is dead. */
GR_MUST_CHECK int parent_scrub(struct parent *p, struct sink *sink);
/* Under the build's lease, before publishing: the parent's objects are still there, and stay. lapsed: the lease was. */
GR_MUST_CHECK int parent_hold(struct parent *p, bool lapsed);
/* The parent that the new image's tags name: this one, or its own when nothing changed. */
struct digest parent_of_tag(const struct parent *p, const struct digest *image);

#endif
