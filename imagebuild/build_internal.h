/* The listing (ingest.c), and the state of a running build, shared by build.c (the order of steps), build_parent.c (the
 * parent or checkpoint), build_publish.c (manifest and tags) and build_step.c (progress and lease). Private to these
 * files. Only the thread that called build_run uses it. */
#ifndef GRANARY_IMAGEBUILD_BUILD_INTERNAL_H
#define GRANARY_IMAGEBUILD_BUILD_INTERNAL_H

#include "imagebuild/build.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/content/content.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/sink/catalog_writer.h"
#include "imagebuild/sink/upload.h"
#include "imagebuild/tar/tar.h"
#include "imagebuild/tree/listing.h"
#include "repository/lease.h"

/* ---- listing (ingest.c) ---- */

/* Ingest a source: list it, and turn its entries into nodes in path order. File data that comes with the entries (tar
 * shards) is written to the image at once. A hard link in an archive becomes another name of the file it refers to.
 * Used from one thread.
 */

/* All pointers are the caller's. */
struct ingest_config {
    struct source *source;
    struct listing_options listing;
    struct known_shards *known; /* the parent's shards, as the source knows them (source_set_known); NULL: none */
    uint64_t parent_size;       /* bytes of the image that `known` describes */
    /* Where file data that comes with the listing is written; NULL: it is not written. */
    struct sink *sink;
    const struct fs *fs;
    uint32_t chunk_size;
    bool gaps;                /* as in struct alloc_config */
    int (*listed)(void *arg); /* called after every entry; non-zero ends the run */
    /* Called between any two pieces of work, with the files and bytes done since the last call; non-zero ends the
     * run. */
    int (*step)(void *arg, uint64_t files, uint64_t bytes);
    void *arg;
};

struct ingest_result {
    struct nodes *nodes; /* as listed; owned by the caller. Files whose data was written are NODE_KEEP */
    struct listing_stats stats;
    uint64_t written_end; /* content_stream_end; 0: no data was written */
    struct content_stream_counts written;
};

/* List the whole source. Memory: that of the listing, of the stream in content.h, and of hard links in archives
 * (ingest.c), and upon a parent that of live_map.h. Returns 0 or -errno with a sentence: -EINVAL for names that an
 * image cannot have, -EBADMSG for damaged archives, others from source, sink and callbacks. */
GR_MUST_CHECK int ingest_run(const struct ingest_config *config, struct ingest_result *out);

/* ---- the build ---- */

/* One run of build_run. build_release (build.c) frees all members it owns. */
struct build {
    struct source *source; /* the caller's, or `joined`, once that is open */
    struct source *joined; /* what a join lists; else NULL */
    struct store *store;
    const struct image_ref *ref;
    struct build_options options; /* with defaults filled in */
    char *identity; /* the source's address, and which part of it is built: what a parent found by name must equal */
    struct build_result *result;
    struct build_progress progress;
    const char *phase;             /* current phase, for build_same_step */
    uint64_t reported_ms;          /* time of the last progress call */
    struct lease_handle *lease;    /* NULL in a dry run */
    bool resumed;                  /* `parent` is the checkpoint of an earlier run of this build */
    struct checkpoint *checkpoint; /* NULL: this build writes no checkpoints */
    struct parent *parent;         /* NULL: no parent, or nothing of it can stay */
    struct nodes *planned;         /* nodes still to be read; NULL once they are */
    bool reading;                  /* file data is read, or was: the source may have been cancelled since */
    struct upload *upload;
    struct sink *sink;
    struct fs *fs;
    struct known_shards *known;           /* shards of the parent, if the source streams; NULL: none */
    bool streams;                         /* file data comes with the listing and is written while listing */
    struct ingest_result ingested;        /* its nodes become `planned` */
    struct content_writer_result written; /* including the final nodes */
};

/* Whether files are placed with gaps between them, as in struct alloc_config. In a chunk that is stored as it is, the
 * zeros of a gap would be stored, too. */
static inline bool build_leaves_gaps(const struct build *b)
{
    return b->options.zstd_level > 0;
}

/* ---- build_step.c: called between any two pieces of work ---- */

/* Report progress of `phase` and renew the lease. -ECANCELED: the caller of build_run asked to stop. */
GR_MUST_CHECK int build_step(struct build *b, const char *phase);
/* Do a step of the current phase: a callback for modules that work for a long time. build: the struct build. */
GR_MUST_CHECK int build_same_step(void *build);

/* ---- build_publish.c: the last step ---- */

/* Put the manifest, the unique tag and the requested tag, and fill in the result's counts of objects. All other objects
 * were handed to b->upload, which has stored them. Errors of the store; those of repository_publish_both and
 * lease_check_held. */
GR_MUST_CHECK int build_publish(struct build *b);

/* ---- build_join.c: a join (options.join_at); build.c calls these in this order ---- */

/* Check the directories, and fill in b->identity. */
GR_MUST_CHECK int build_join_name(struct build *b);
/* Say what the filesystem must have room for, once the images are found. */
void build_join_size(const struct build *b, struct fs_config *out);
/* Once the filesystem is open: place the images' data in the new image, and open the source that lists their files. */
GR_MUST_CHECK int build_join_open(struct build *b);
/* Once they are listed: all data is in its place. */
void build_join_take(struct build *b);
/* Name the images as the sources. */
void build_join_describe(const struct build *b, struct provenance *out);

/* ---- build_parent.c: the image or checkpoint to build upon; build.c calls these in this order ---- */

/* Find the parent, if there is one, and check its index and packs. Settles the chunk size. */
GR_MUST_CHECK int build_parent_find(struct build *b);
/* For a source that streams, before it is listed: tell it which shards the parent has. With options that make this
 * uncertain the parent is dropped: its catalog records neither device numbers nor names that were left out. */
GR_MUST_CHECK int build_parent_know_shards(struct build *b);
/* Take back what build_parent_know_shards told the source, because the filesystem cannot keep the parent's data. */
GR_MUST_CHECK int build_parent_forget_shards(struct build *b);
/* Decide which of the listed files stay where the parent or the checkpoint has them, and which compaction moves. */
GR_MUST_CHECK int build_parent_plan(struct build *b);
/* Read the metadata of the parent, in which things may stay in their places (struct fs_config). *out NULL: there is
 * none that can be used. build: the struct build. */
GR_MUST_CHECK int build_parent_metadata(void *build, struct scratch **out);
/* Return whether this build may store metadata and catalog pages upon the parent's. */
bool build_parent_has_bases(const struct build *b);
/* Return whether this build erases the parent's dead bytes (--scrub). */
bool build_parent_erases(const struct build *b);
/* Rewrite the parent's chunks that hold dead bytes, if build_parent_erases. */
GR_MUST_CHECK int build_parent_scrub(struct build *b);
/* Start to write checkpoints, if this build writes any. */
GR_MUST_CHECK int build_parent_open_checkpoint(struct build *b);
/* Write the catalog of the final nodes, in pages that may be deltas of the parent's. */
GR_MUST_CHECK int build_parent_catalog(struct build *b, struct catalog_root *out);
/* Before publishing: make sure that what the image takes over from the parent or checkpoint is still in the store. */
GR_MUST_CHECK int build_parent_hold(struct build *b);
/* After publishing: remove this build's checkpoint. */
void build_parent_forget_checkpoint(struct build *b);

#endif
