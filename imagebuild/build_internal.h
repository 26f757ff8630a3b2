/* A build under way, shared by build.c (the order of things), build_parent.c (what it goes on from),
 * build_publish.c and build_step.c. Nobody else includes this. All of it is used from the thread that called build_run.
 */
#ifndef GRANARY_IMAGEBUILD_BUILD_INTERNAL_H
#define GRANARY_IMAGEBUILD_BUILD_INTERNAL_H

#include "imagebuild/build.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/content/content_writer.h"
#include "imagebuild/ingest.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/sink/upload.h"
#include "imagebuild/tar/known_shards.h"
#include "store/lease.h"

struct build {
    struct source *source;
    struct store *store;
    const struct image_ref *ref;
    struct build_options options; /* defaults filled in */
    struct build_result *result;
    struct build_progress progress;
    const char *phase;
    uint64_t reported_ms;
    struct lease_handle *lease;
    bool resumed;                  /* parent is what an earlier run of this build left */
    struct checkpoint *checkpoint; /* NULL: none are left */
    struct parent *parent;         /* NULL: there is none, or none of which anything can stay */
    struct nodes *planned;         /* what is to be read; gone once it was */
    struct upload *upload;
    struct sink *sink;
    struct fs *fs;
    struct known_shards *known;           /* of the parent, for such a source; NULL: there is none */
    bool streams;                         /* bodies come with the listing, and are written then */
    struct ingest_result ingested;        /* its nodes are `planned` */
    struct content_writer_result written; /* the final nodes among it */
};

/* ---- build_step.c: between any two pieces of work ---- */

/* -ECANCELED when asked to stop; progress; the lease. */
GR_MUST_CHECK int build_step(struct build *b, const char *phase);
/* For what works long by itself: a step of the phase that goes on. build: the struct build. */
GR_MUST_CHECK int build_same_step(void *build);

/* ---- build_parent.c: the image, or the checkpoint of an earlier run, that is built upon; in this order ---- */

/* Which image is the parent, if any. */
GR_MUST_CHECK int build_parent_find(struct build *b);
/* For a source that streams, before it is listed: which shards the parent has. A parent that cannot say so for sure is
 * none: the catalog has no device numbers, and no names that were left out. */
GR_MUST_CHECK int build_parent_know_shards(struct build *b);
/* The filesystem cannot keep the parent's bodies: there are none to know. */
GR_MUST_CHECK int build_parent_forget_shards(struct build *b);
/* What was listed, upon the parent or what an earlier run left: which files stay, which are moved. */
GR_MUST_CHECK int build_parent_plan(struct build *b);
/* Is what is dead in the parent to be erased? */
bool build_parent_erases(const struct build *b);
GR_MUST_CHECK int build_parent_scrub(struct build *b);
/* From here on checkpoints are left, where they are. */
GR_MUST_CHECK int build_parent_open_checkpoint(struct build *b);
/* Under the lease, before publishing: what the image takes over is still there. */
GR_MUST_CHECK int build_parent_hold(struct build *b);
/* It was published. */
void build_parent_forget_checkpoint(struct build *b);

/* ---- build_publish.c ---- */

/* The manifest, the unique tag, the tag asked for; the result's numbers of objects. */
GR_MUST_CHECK int build_publish(struct build *b);

#endif
