/* Building an image: source -> nodes -> sink -> packs -> store.
 * docs/internals/build.md. */
#ifndef GRANARY_IMAGEBUILD_BUILD_H
#define GRANARY_IMAGEBUILD_BUILD_H

#include "base/digest.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "imagebuild/source/source.h"
#include "imagebuild/tree/listing.h"
#include "store/store.h"

#define BUILD_CHECKPOINT_BYTES (UINT64_C(64) << 30) /* between two checkpoints, where nothing else is wanted */

struct build_progress {
    const char *phase; /* "checking the parent", "listing", "reading", "metadata", "publishing" */
    uint64_t files_listed, files_total, files_done, bytes_total, bytes_done, bytes_uploaded;
};

struct build_options {
    enum manifest_fs fs;
    uint32_t chunk_size; /* 0: the parent's, CHUNK_SIZE_DEFAULT without one */
    int zstd_level;      /* 0: none; default 3 */
    unsigned jobs;       /* concurrent reads; 0: as many as fill the link, up to SOURCE_JOBS_MAX */
    bool skip_bad_names, strict, strict_tags, keep_special, dry_run;
    struct listing_directory directory; /* what directories become that the source does not list */
    size_t read_memory;                 /* bytes of bodies read ahead of the writer; 0: 128 MiB */
    size_t pack_size;                   /* target; 0: 32 MiB */
    unsigned uploads;                   /* concurrent puts; 0: 4 */
    unsigned workers;                   /* threads that hash and compress; 0: CPUs */
    bool no_parent; /* read everything; else the image that the tag names now is built upon, or the name's newest */
    const struct image_ref *parent; /* this one is, of the same store; NULL: none is named */
    /* What compaction moves at most: that share of the bytes kept and that number of them. Both 0: nothing. */
    unsigned compact_percent;
    uint64_t compact_bytes;
    bool scrub; /* erase what is dead in the chunks that stay, and in the packs they are in */
    /* Without a parent: bytes of bodies from one checkpoint to the next (checkpoint.h), from which a run after a
     * failure goes on; part of what the digest depends on. 0: none. */
    uint64_t checkpoint_bytes;
    const char *tmpdir; /* for what the build sorts and lists beside memory; NULL: $TMPDIR, else /var/tmp */
    /* Called about five times a second from the building thread; may be NULL. */
    void (*progress)(void *arg, const struct build_progress *p);
    void *progress_arg;
    /* Set asynchronously (a signal) to make the build end with -ECANCELED, nothing published; may
     * be NULL. */
    const volatile int *cancel;
};

/* What was taken over from a parent. Numbers of regular files, a hard-linked one counted once. */
struct build_rebuild {
    struct digest parent;                                 /* zero: none, everything was read */
    char parent_name[IMAGE_NAME_MAX + IMAGE_TAG_MAX + 2]; /* NAME:TAG; "" when there is none or a digest named it */
    bool parent_differs; /* there was one, but nothing could stay: of another filesystem or chunk size, or too small */
    uint64_t unchanged, added, changed, removed;
    /* Packs of the parent that are missing or damaged; unchanged files read again since they lay there. */
    uint64_t packs_damaged, healed, bytes_healed;
    uint64_t bytes_to_read;           /* of files added, changed and healed, as listed */
    uint64_t bytes_kept, bytes_moved; /* of unchanged files: where they were; moved by compaction */
    uint64_t files_moved;
    uint64_t dead_bytes; /* of the chunks that stay: as image_stats counts them */
    uint64_t chunks_scrubbed, bytes_scrubbed;
    uint64_t packs_emptied, bytes_repacked; /* mostly dead ones; bytes of theirs that stay, as stored, copied */
};

struct build_result {
    struct digest image, content_root;
    struct manifest manifest;
    char unique_tag[IMAGE_TAG_MAX + 1]; /* the tag beside the one asked for */
    uint64_t files_changed, files_vanished, names_skipped, special_skipped, xattrs_skipped;
    uint64_t listing_vanished, owners_unknown; /* as in struct source_counts */
    uint64_t dedupe_files, dedupe_bytes;       /* file bodies that shared another's blocks */
    uint64_t packs_new, packs_reused, objects_new;
    uint64_t objects_healed; /* of the new ones: what stood under that name was damaged */
    struct build_rebuild rebuild;
    uint64_t checkpoints;                  /* left on the way */
    uint64_t files_resumed, bytes_resumed; /* taken over from an earlier run's checkpoint */
    uint64_t bytes_read, bytes_uploaded;   /* from the source, into the store */
    double seconds;
};

/* Build and publish ref->name under ref->tag and a unique tag. The source and the store are the
 * caller's; a build that fails may have cancelled the source: open it anew for another one. Nothing is published unless
 * 0 is returned; everything already uploaded is re-used by the next run. */
GR_MUST_CHECK int build_run(struct source *source, struct store *store, const struct image_ref *ref,
                            const struct build_options *options, struct build_result *out);

#endif
