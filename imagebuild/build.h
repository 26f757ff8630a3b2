/* Building an image: source -> tree -> layout -> chunker -> packer -> store.
 * docs/way-of-a-build.md. */
#ifndef GRANARY_IMAGEBUILD_BUILD_H
#define GRANARY_IMAGEBUILD_BUILD_H

#include "base/digest.h"
#include "format/image_ref.h"
#include "format/manifest.h"
#include "imagebuild/source.h"
#include "store/store.h"

struct build_progress {
    const char *phase; /* "listing", "reading", "metadata", "publishing" */
    uint64_t files_listed, files_total, files_done, bytes_total, bytes_done, bytes_uploaded;
};

struct build_options {
    uint32_t chunk_size; /* 0: CHUNK_SIZE_DEFAULT */
    int zstd_level;      /* 0: none; default 3 */
    unsigned jobs;       /* concurrent reads; 0: 32 */
    bool skip_bad_names, strict, strict_tags, keep_special, dry_run;
    size_t read_memory; /* bytes of bodies read ahead of the writer; 0: 128 MiB */
    size_t pack_size;   /* target; 0: 32 MiB */
    unsigned uploads;   /* concurrent puts; 0: 4 */
    unsigned workers;   /* threads that hash and compress; 0: CPUs */
    /* Called about five times a second from the building thread; may be NULL. */
    void (*progress)(void *arg, const struct build_progress *p);
    void *progress_arg;
    /* Set asynchronously (a signal) to make the build end with -ECANCELED, nothing published; may
     * be NULL. */
    const volatile int *cancel;
};

struct build_result {
    struct digest image, content_root;
    struct manifest manifest;
    char unique_tag[IMAGE_TAG_MAX + 1]; /* the tag beside the one asked for */
    uint64_t files_changed, files_vanished, names_skipped, special_skipped, xattrs_skipped;
    uint64_t dedup_files, dedup_bytes; /* file bodies that shared another's blocks */
    uint64_t packs_new, packs_reused, objects_new;
    uint64_t bytes_read, bytes_uploaded; /* from the source, into the store */
    double seconds;
};

/* Build and publish ref->name under ref->tag and a unique tag. The source and the store are the
 * caller's; a build that fails may have cancelled the source: open it anew for another one. Nothing is published unless
 * 0 is returned; everything already uploaded is re-used by the next run. */
GR_MUST_CHECK int build_run(struct source *source, struct store *store, const struct image_ref *ref,
                            const struct build_options *options, struct build_result *out);

#endif
