/* Build an image: list a source, read its files, and store the image as packs, index, catalog, manifest and tags.
 * docs/internals/build.md walks through the steps. */
#ifndef GRANARY_IMAGEBUILD_BUILD_H
#define GRANARY_IMAGEBUILD_BUILD_H

#include "base/digest.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "format/provenance.h"
#include "imagebuild/source/source.h"
#include "imagebuild/tree/listing.h"
#include "imagebuild/tree/share.h"
#include "repository/nesting.h"
#include "repository/trust.h"
#include "store/store.h"

enum { BUILD_ZSTD_LEVEL = 3 };                      /* default level of compression */
#define BUILD_CHECKPOINT_BYTES (UINT64_C(64) << 30) /* default distance between two checkpoints */

/* How far a build is. Numbers of files and bytes; the totals are 0 until the source is listed. */
struct build_progress {
    const char *phase; /* "checking the parent", "listing", "reading", "metadata", "publishing" */
    uint64_t files_listed, files_total, files_done, bytes_total, bytes_done, bytes_uploaded;
};

/* What to build and how. Zero-initialise it; 0 or NULL selects the default that a member names. */
struct build_options {
    struct nesting place; /* what nesting_check found about the store; all zero: it is made a store if it is none */
    enum manifest_fs fs;
    uint32_t chunk_size; /* bytes; 0: the parent's, or CHUNK_SIZE_DEFAULT without one */
    int zstd_level;      /* 0: do not compress; the CLI's default is 3 */
    unsigned jobs;       /* concurrent reads; 0: find the number that fills the link, up to SOURCE_JOBS_MAX */
    /* skip_bad_names: leave out names that no filesystem can hold, instead of failing. strict: a file that changes or
     * vanishes while the build runs is an error. strict_tags: refuse a store without conditional writes, where another
     * build could replace the tag unseen. keep_special: keep devices, FIFOs, sockets and the setuid and setgid bits.
     * dry_run: list and plan only, and write nothing. */
    bool skip_bad_names, strict, strict_tags, keep_special, dry_run;
    struct listing_directory directory; /* attributes of directories that the source does not list */
    size_t read_memory;                 /* bytes of file data read ahead of the writer, at most; 0: 128 MiB */
    size_t pack_size;                   /* target in bytes, 1 GiB at most; 0: 32 MiB */
    unsigned uploads;                   /* concurrent puts; 0: 4 */
    unsigned workers;                   /* threads that hash and compress; 0: one per CPU */
    /* Build only this share of the source, which may not be one that streams. All zero: all of it. */
    struct share part;
    /* no_parent: read everything. Otherwise the parent is `parents`, images of the same store (several: of erofs); if
     * parent_count is 0, the image that the tag names now, or the newest image of the name from the same source (and
     * of the same part of it); and if that is damaged, none, with a warning. */
    bool no_parent;
    const struct image_ref *parents;
    size_t parent_count;
    /* Join `parents`: the image has all their files and no others, the files of each below the directory of the same
     * number ("": the root), and no file's bytes are read. Chunk size and filesystem are theirs. NULL: the files are
     * those of the source. Goes with no option that chooses, reads or moves files. */
    const char *const *join_at;
    /* Build only upon a parent that one of these keys has signed, and upon no checkpoint; NULL: no key is needed. */
    const struct trust *trust;
    /* Compaction budget: a percentage of the kept bytes plus a number of bytes. Both 0: no compaction. */
    unsigned compact_percent;
    uint64_t compact_bytes;
    bool scrub; /* erase dead bytes from the kept chunks and from the packs that hold them */
    /* Without a parent: bytes of file data between two checkpoints (checkpoint.h), from which a run after a failure
     * resumes. The image's digest depends on it. 0: no checkpoints. */
    uint64_t checkpoint_bytes;
    /* Its sources and tool go into the tags, with what the build finds out; NULL: the tags have no provenance. */
    const struct provenance *provenance;
    const char *tmpdir; /* directory for sorting and lists that outgrow memory; NULL: $TMPDIR, else /var/tmp */
    /* Called about five times a second from the building thread; may be NULL. */
    void (*progress)(void *arg, const struct build_progress *p);
    void *progress_arg;
    /* A signal handler may set it: the build then ends with -ECANCELED and publishes nothing. NULL is allowed. */
    const volatile int *cancel;
};

/* What the image takes over from its parent. The numbers count regular files; a hard-linked file counts once. */
struct build_rebuild {
    uint64_t parents;                                     /* images; 0: no parent, everything was read */
    struct digest parent;                                 /* zero: there is none, or there are several */
    char parent_name[IMAGE_NAME_MAX + IMAGE_TAG_MAX + 2]; /* NAME:TAG; "" without one, or if a digest named it */
    bool parent_differs;      /* a parent was found but not used: other filesystem or chunk size, or too small */
    bool parent_other_source; /* there is none: the images of the name are not known to be of this source */
    bool parent_damaged;      /* found, but not used: its manifest, index or catalog is damaged or missing */
    uint64_t unchanged, added, changed, removed;
    /* Missing or damaged packs of the parent; unchanged files that were read again because their data was in such
     * packs. */
    uint64_t packs_damaged, healed, bytes_healed;
    uint64_t bytes_to_read;           /* added, changed and healed files, as listed */
    uint64_t bytes_kept, bytes_moved; /* unchanged files: kept in place; moved by compaction */
    uint64_t files_moved;
    uint64_t dead_bytes; /* in the chunks that stay; counted as image_stats does */
    uint64_t chunks_scrubbed, bytes_scrubbed;
    /* Packs left because most of their bytes are dead; live stored bytes copied out of them. */
    uint64_t packs_emptied, bytes_repacked;
};

/* What build_run did. After a failure the members hold what was known by then. */
struct build_result {
    struct digest image, content_root;
    struct manifest manifest;
    char unique_tag[IMAGE_TAG_MAX + 1]; /* the second tag, unique to this build */
    uint64_t files_changed, files_vanished, names_skipped, special_skipped, xattrs_skipped;
    uint64_t listing_vanished, owners_unknown; /* as in struct source_counts */
    uint64_t dedupe_files, dedupe_bytes;       /* files that share the blocks of an equal file */
    uint64_t packs_new, packs_reused, objects_new;
    uint64_t objects_healed; /* part of objects_new: the store had a damaged object of that name */
    struct build_rebuild rebuild;
    uint64_t checkpoints;                  /* checkpoints written */
    uint64_t files_resumed, bytes_resumed; /* taken over from an earlier run's checkpoint */
    uint64_t bytes_read, bytes_uploaded;   /* from the source, into the store */
    double seconds;
};

/* Build an image and publish it in `store` as ref->name, under ref->tag and a unique tag. source is NULL with
 * options->join_at. Blocks; calls options->progress from this thread. Source and store stay the caller's, but a failed
 * build may have cancelled the source: open a new one for the next build. On failure nothing is published, and the next
 * run reuses what was uploaded.
 *
 * Returns 0 or -errno with a sentence. -EINVAL: an option is out of range, or names cannot be kept. -ENOTSUP:
 * strict_tags, but the store has no conditional writes; a part of a source that streams; several parents of ext4.
 * -ECANCELED: options->cancel was set. -EAGAIN: something that the build relied on vanished from the store; run it
 * again. -EFBIG: over a limit of the filesystem, index or catalog. -EBADMSG: damaged or unexpected data. -ENOENT,
 * -ESTALE: a file vanished or changed. -ESTALE also: the store has been taken apart ('granary unnest'). Others come
 * from source and store. */
GR_MUST_CHECK int build_run(struct source *source, struct store *store, const struct image_ref *ref,
                            const struct build_options *options, struct build_result *out);

#endif
