/* The parent of a build: the image it builds upon, or several images laid end to end (parent_index.h), such as the
 * parts of one source. This module decides which of the parent's files stay, which ones compaction moves, and which
 * dead bytes scrubbing erases. build.c reaches all of it through this header.
 *
 * Call order:
 *
 *   parent_open (or parent_resume) -> parent_look -> fs_*_new (does the filesystem keep the parent's data?)
 *   -> parent_plan -> parent_sink, sink_new -> parent_scrub -> content_writer_run with `live` and `source`
 *   -> parent_hold, before publishing -> parent_free
 *
 * In a join, all file data of all images stays, and nothing is planned (parent_whole.c):
 *
 *   parent_open with `whole` -> fs_*_new -> parent_whole_place -> parent_sink, sink_new -> parent_hold -> parent_free
 *
 * One thread. If the manifest, index or catalog of the parent is damaged, functions return PARENT_DAMAGED. Other
 * errors of the parent's objects name --parent none as the remedy.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_H

#include <errno.h>

#include "base/map.h"
#include "base/step.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/tag.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/source/source.h"
#include "imagebuild/tree/nodes.h"
#include "repository/trust.h"
#include "store/store.h"

/* A certain answer of the store: an object that describes the parent is missing, or has other bytes than it must have.
 * The sentence says which. No store and no source returns this code, and it does not leave build_run. */
#define PARENT_DAMAGED (-ENOTRECOVERABLE)

/* All pointers are the caller's and outlive the parent. */
struct parent_config {
    struct store *store;
    const struct image_ref *images; /* which images of this store */
    size_t image_count;             /* at least 1; several: must_be is set */
    struct digest source;           /* digest of the source's address (struct tag) */
    const struct trust *trust;      /* one of these keys must have signed each; NULL: no key is needed */
    /* The user named this parent: -ENOENT if it does not exist, -EINVAL if its filesystem or chunk size differs. If
     * this is false and the image does not exist or is of another source, the newest image of its name from this source
     * is taken (lineage_newest). If there is none, or it differs or is not signed, the build has no parent. */
    bool must_be;
    /* All file data of the images stays: `live` is NULL, and fs is that of the first image. Needs must_be. */
    bool whole;
    enum manifest_fs fs; /* of the image to be built */
    uint32_t chunk_size; /* of the image to be built; 0: the parent's */
    /* Compaction budget: a percentage of the kept bytes, plus a number of bytes. Counted in whole blocks. */
    unsigned compact_percent;
    bool gaps; /* as in struct alloc_config */
    uint64_t compact_bytes;
    const char *dir;            /* for temporary files; as in struct scratch_config */
    const volatile int *cancel; /* NULL is allowed */
    struct step step;
};

/* Begins as all zero: nothing is damaged. Any thread may read it once parent_check has returned. */
struct parent_damage {
    struct digest_map packs; /* the damaged ones */
    uint8_t *chunks;         /* a bit for each chunk of the parent: it lies in a damaged pack; NULL: none does */
    uint32_t chunk_size;
};

/* Regular files; a hard-linked file counts by its first name. */
struct plan_counts {
    uint64_t unchanged, added, changed, removed;
    uint64_t healed;                               /* unchanged, but read because they lay in damaged packs */
    uint64_t bytes_kept, bytes_read, bytes_healed; /* sizes of unchanged, of all other, of healed files */
};

struct compact_counts {
    uint64_t chunks, files, bytes; /* emptied; moved */
};

/* Chunks in which something was erased; erased bytes that were not zero. */
struct scrub_counts {
    uint64_t chunks, bytes;
};

/* Other modules may read the members; only this module writes them. */
struct parent {
    struct parent_config config;
    struct parent_image *images; /* config.images, or the newest image that was found instead */
    size_t image_count;
    bool is_newest;              /* the image is the newest one, not config.images[0] */
    struct tag tag;              /* of the last image; zero if a digest named it, or for a checkpoint */
    struct manifest manifest;    /* the image's; of several images: only filesystem and sizes, of all together */
    struct live_map *live;       /* blocks of kept files; NULL: config.whole */
    struct parent_damage damage; /* set by parent_look: packs that the store lacks, so their files cannot stay */
    struct source *source;       /* reads NODE_MOVE files; NULL: none are moved */
    struct plan_counts plan;
    struct compact_counts moved;
    uint64_t budget_left; /* bytes of the budget that compaction did not use, for repacking */
    struct scrub_counts scrubbed;
    uint64_t dead_bytes; /* unused blocks in chunks that stay */
};

/* An image that was found but is not used: its filesystem or chunk size differs; or the name has images, but none of
 * them is known to be of this source. */
struct parent_unused {
    bool differs, other_source;
};

/* Find the parent. *out NULL: there is none; *unused then says why an image was not used. Errors: see must_be;
 * -ENOTSUP: several images, but not of erofs, nor whole; PARENT_DAMAGED: *out has nothing but the image's name;
 * -EKEYREJECTED: see trust; -ENOMEM; those of the store. */
GR_MUST_CHECK int parent_open(const struct parent_config *config, struct parent **out, struct parent_unused *unused);
/* Use the checkpoint of an earlier run (checkpoint.h) as the parent. No files are moved in it. parent_hold must not be
 * called for it; checkpoint_hold is. -ENOMEM. */
GR_MUST_CHECK int parent_resume(const struct parent_config *config, const struct manifest *left, struct parent **out);
/* Check that the store has the objects that the parent refers to (parent_check.c), and fill in (*p)->damage. If a
 * parent that the user did not name cannot be used, this is logged, and *p is freed and becomes NULL. Errors as from
 * parent_check. */
GR_MUST_CHECK int parent_look(struct parent **p);
void parent_free(struct parent *p); /* NULL is allowed */
DEFINE_CLEANUP(parent, struct parent *, parent_free)

/* Plan each listed node: *nodes is freed and replaced by the planned ones. Errors of plan_make and compact_apply. */
GR_MUST_CHECK int parent_plan(struct parent *p, struct nodes **nodes);
/* Describe the parent to the sink; valid as long as p. */
struct sink_parent parent_sink(struct parent *p);
/* Scrub: read the kept chunks that have dead blocks, and write them again with zeros in these blocks, through
 * SINK_SCRUB in ascending order. If the dead blocks held only zeros, the sink recognizes the parent's chunk and stores
 * nothing. Errors of the parent's chunks name --parent none; others come from the sink and step; -ECANCELED. */
GR_MUST_CHECK int parent_scrub(struct parent *p, struct sink *sink);
/* Before publishing, under the build's lease: make sure that the parent's objects are still in the store, and that gc
 * does not count them as unneeded. lapsed: the lease has lapsed, so all of them are looked up. Errors as from
 * gc_hold_parent. */
GR_MUST_CHECK int parent_hold(struct parent *p, bool lapsed);
/* Return the parent that the new image's tags name: this one, or its own parent if nothing changed; zero if it is
 * several images. */
struct digest parent_of_tag(const struct parent *p, const struct digest *image);

/* ---- a parent of which everything stays (parent_whole.c) ---- */

/* Lay the images end to end, the first file data at `begin` or later and the last before `end`; limit: `end` in words.
 * Once. -EFBIG: there is not enough room; -EBADMSG: a chunk of an image holds file data beside something else;
 * PARENT_DAMAGED: an index is; others come from the store and step. */
GR_MUST_CHECK int parent_whole_place(struct parent *p, uint64_t begin, uint64_t end, const char *limit);
/* Return the address after all file data. */
uint64_t parent_whole_end(const struct parent *p);
/* Return the bytes that the images need at most where they are laid end to end. */
uint64_t parent_whole_size(const struct parent *p);
/* sink_parent.kept and kept_all; parent: the struct parent. */
bool parent_whole_kept(void *parent, uint64_t chunk);
bool parent_whole_kept_all(void *parent, uint64_t first, uint64_t count);

/* For a failure to read an object that describes the parent: PARENT_DAMAGED for -ENOENT and -EBADMSG, with the thread's
 * sentence as it is; else parent_refused. */
int parent_failed(int code);
/* Return `code` with the thread's sentence extended by the remedy: "...; the parent image cannot be used: --parent
 * none builds without it". */
int parent_refused(int code);

/* Return whether [address, address + len), which lies within the parent's image, touches a damaged chunk. */
bool parent_damage_touches(const struct parent_damage *d, uint64_t address, uint64_t len);
void parent_damage_release(struct parent_damage *d);

#endif
