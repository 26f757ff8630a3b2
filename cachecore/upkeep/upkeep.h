/* What the command line does to stores and images, apart from building: each verb is a file. */
#ifndef GRANARY_UPKEEP_UPKEEP_H
#define GRANARY_UPKEEP_UPKEEP_H

#include "format/manifest.h"
#include "format/tag.h"
#include "repository/nesting.h"
#include "store/store.h"

/* ---- copy an image to another store (copy.c) ----
 *
 * Copies an image from one store into another: the same objects under the same names, so the digest is the same.
 * Objects that the target has already are not sent, so an interrupted copy continues when it is run again.
 *
 * The manifest is put last before the tags, so the target never has an incomplete image, and a lease keeps a gc there
 * from sweeping meanwhile. */

enum { COPY_THREADS = 8, COPY_MEMORY = 256 << 20 };

/* Options of copy_image; all zero is valid. */
struct copy_options {
    struct nesting place; /* what nesting_check found about `to`; all zero: it is made a store if it is none */
    unsigned threads;     /* threads that compare and copy objects; 0: COPY_THREADS */
    size_t memory;        /* bytes of objects in memory, which one larger object may exceed alone; 0: COPY_MEMORY */
    bool strict_tags;     /* as in repository_publish */
    /* Called now and then from the calling thread: bytes sent and to send; total 0: not known yet. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* The copy's name in the target. */
struct copy_name {
    const char *name, *tag;
    int64_t created;        /* of the tags, seconds since the epoch; 0: now */
    struct digest parent;   /* recorded in the tags; zero: none */
    struct digest source;   /* as in struct tag */
    const char *signature;  /* of this name and tag (struct tag); NULL or empty: none */
    const char *provenance; /* as in struct tag; NULL or empty: none */
};

/* What was copied. */
struct copy_result {
    uint64_t objects, bytes;               /* all objects of the image, without its manifest */
    uint64_t objects_copied, bytes_copied; /* of those: not in the target before */
    char unique_tag[TAG_BUILD_NAME_MAX];   /* the build tag that was put next to the requested one */
};

/* Copy an image. `to` may be an empty place, which becomes a store. Every object's bytes are checked against its name
 * on the way. -EBADMSG: something is damaged or missing in `from`; -EAGAIN: a gc removed something from `to`
 * meanwhile, run it again; -ENOTSUP: strict_tags, and `to` does not honour conditional puts; -ECANCELED; else the
 * errors of the stores and of lease_begin. Memory: options->memory, and 56 bytes for each object. */
GR_MUST_CHECK int copy_image(struct store *from, const struct digest *image, struct store *to,
                             const struct copy_name *name, const struct copy_options *options, struct copy_result *out);

/* ---- take apart a store inside another one (unnest.c) ----
 *
 * Takes apart a store that was made inside another store's images/ directory: its images are copied into the outer
 * store under the same names, tags and digests, and then its objects are removed. */

/* Visit the directory of each store inside the outer store's images/, "images" or "images/NAME", the deepest first, and
 * of what is left of one where unnest_run was killed. A non-zero result of visit ends the search and is returned; else
 * the store's errors. */
typedef int unnest_visit(void *arg, const char *dir);
GR_MUST_CHECK int unnest_find(struct store *outer, unnest_visit *visit, void *arg);

/* Options of unnest_run; all zero is valid. */
struct unnest_options {
    bool dry_run;             /* write and remove nothing; the result tells what would happen */
    struct copy_options copy; /* threads, progress and cancel apply to the removals too */
};

/* What was moved and removed. */
struct unnest_result {
    uint64_t images, tags;             /* in the inner store */
    uint64_t tags_there;               /* tags of those that the outer store had already */
    uint64_t objects_sent, bytes_sent; /* sent to the outer store, which lacked them; 0 in a dry run */
    uint64_t removed, removed_bytes;   /* objects of the inner store */
    uint64_t left; /* objects below dir that are not the inner store's: the outer store's tags, the copied ones among
                      them, and other files */
};

/* Take apart the store at dir, which unnest_find reported. It can be interrupted at any moment and run again (after it
 * was killed, LEASE_SWEEP_DEAD_S later): nothing is removed before every tag of the inner store is in the outer one. A
 * build or copy into the inner store either makes it fail before it removes anything, or waits for its end and then
 * fails. -EEXIST, before anything is removed: a tag names different images in the two, or lies where the inner store's
 * announcement must go; -EBUSY: a build into the inner store is running, or was within twice LEASE_LIFE_MIN_S;
 * -EAGAIN: an image was published there meanwhile, or a gc or another unnest is removing objects there; -EBADMSG: an
 * image is damaged; -ECANCELED; else the errors of copy_image. Memory: the keys of the inner store. A server that reads
 * from the inner store can go on only with what it has cached. */
GR_MUST_CHECK int unnest_run(struct store *outer, const char *dir, const struct unnest_options *options,
                             struct unnest_result *out);

/* ---- garbage collection (gc.c) ----
 *
 * Garbage collection in two steps: mark what no image needs (trash/<digest>), and remove it a grace period later if it
 * is still not needed. Removes nothing while a lease younger than the grace period exists, and marks no object younger
 * than the grace period. docs/reference/format-store.md, "Garbage collection". */

enum { GC_GRACE_DEFAULT_S = 14 * 24 * 3600 };

/* Options of gc_run. All zero would collect without a grace period. */
struct gc_options {
    int64_t grace_s;    /* grace period in seconds; GC_GRACE_DEFAULT_S unless the user says otherwise */
    unsigned keep_last; /* 0: keep every tag; else remove all but the newest N build tags of each image name (latest and
                           tags given by users stay) */
    bool dry_run;       /* write and remove nothing; the result tells what would happen */
    int64_t now;        /* seconds since the epoch; 0: the current time */
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* What a run did, or in a dry run would do. Counts are objects unless named otherwise. */
struct gc_result {
    uint64_t images;       /* images with a tag */
    uint64_t objects;      /* packs, index nodes, catalog pages and manifests listed */
    uint64_t needed;       /* of those: kept because an image needs them */
    uint64_t young;        /* of those: not needed, and younger than the grace period */
    uint64_t waiting;      /* of those: marked before, and not due or not removed since a build runs */
    uint64_t marked;       /* of those: marked by this run */
    uint64_t unmarked;     /* marked before, and kept because needed again */
    uint64_t swept;        /* of those: removed */
    uint64_t tags_removed; /* tags that keep_last removed */
    uint64_t swept_bytes, marked_bytes;
    uint64_t live_leases; /* above 0: objects that were due were kept for running builds */
};

/* Run once. In doubt nothing is removed: a tag or manifest that cannot be read or decoded, a tag without its manifest,
 * or a damaged index or catalog ends the run (-EBADMSG) before anything is marked, removed or untagged. -EAGAIN:
 * another gc is sweeping; -EINVAL: a negative grace period; -ENOENT: not a Granary store; -ECANCELED: what was marked
 * or removed so far stays so; else the store's errors.
 * Memory: 54 to 107 bytes for each object that is needed or marked. */
GR_MUST_CHECK int gc_run(struct store *s, const struct gc_options *options, struct gc_result *out);

/* ---- check an image (verify.c) ----
 *
 * Checks an image in its store: whether everything is there and intact. */

/* Options of verify_image; all zero is valid. Callbacks get arg. */
struct verify_options {
    bool deep;        /* read, decode and hash every chunk, and compare every file's digest */
    unsigned threads; /* 0: CHUNK_STREAM_THREADS */
    /* Called for each problem with a sentence, by one thread at a time; may be NULL. */
    void (*problem)(void *arg, const char *sentence);
    /* Called for each pack that is missing, truncated or (deep) has a bad chunk, once or more, by one thread at a
     * time; may be NULL. */
    void (*bad_pack)(void *arg, const struct digest *pack);
    /* Deep: called after every chunk from the calling thread, with bytes. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* What was found. */
struct verify_result {
    uint64_t problems; /* 0: no problem in what was checked */
    uint64_t packs, packs_bad;
    uint64_t chunks, holes, chunks_bad; /* deep: chunks read, and those wrong or unreadable */
    uint64_t entries;                   /* catalog entries */
    uint64_t files, files_bad;          /* deep: compared by digest */
    uint64_t bytes;                     /* deep: uncompressed bytes hashed */
};

/* Check an image. Always: the index nodes and content hashes against the manifest, every page of the catalog, and the
 * presence and length of every pack. Deep: also every byte. The caller has verified the manifest by loading it. Return
 * 0 when the check has finished, whatever it found (out->problems), or -errno when it could not (a failing store,
 * -ECANCELED, -ENOMEM). Memory: 48 bytes for each pack; deep: that of chunk_stream, 64 MiB and 56 bytes for each
 * damaged file; above that, 56 bytes for each file in the directory for temporary files. */
GR_MUST_CHECK int verify_image(struct store *s, const struct manifest *m, const struct verify_options *options,
                               struct verify_result *out);

/* ---- measure an image (image_stats.c) ----
 *
 * Figures of an image: its files from the catalog, its chunks from the index, its packs from the store. */

/* Size class 0: empty files; class n: files of 2^(n-1) to 2^n - 1 bytes. */
enum { IMAGE_SIZE_CLASSES = 65 };

/* The files of one size class. */
struct image_size_class {
    uint64_t files, bytes;
};

/* The figures. */
struct image_stats {
    /* from the catalog; hard links count once */
    uint64_t files, file_bytes;
    struct image_size_class sizes[IMAGE_SIZE_CLASSES];
    uint64_t contents, content_bytes; /* distinct contents; what several files share counts once */
    uint64_t padding;                 /* zeros after file data, up to the next 4096 */
    /* from the index */
    uint64_t chunks, holes; /* holes are among chunks */
    uint64_t zstd_chunks;   /* stored compressed, by themselves */
    uint64_t delta_chunks;  /* stored compressed upon others */
    uint64_t plain_bytes;   /* uncompressed, of chunks that are not holes */
    uint64_t stored_bytes;
    /* Of plain_bytes: neither file data nor padding, and not in a chunk with metadata. Left over from removed files,
     * and in the last data chunk of each build. A build reports the same figure of its parent (build.h). */
    uint64_t dead_bytes;
    uint64_t index_nodes, index_bytes;
    /* the packs that the index refers to */
    uint64_t packs, pack_bytes;
    uint64_t packs_missing; /* missing in the store */
    uint64_t foreign_bytes; /* of pack_bytes: not used by this image, perhaps by others */
};

/* Options of image_stats; all zero is valid. */
struct image_stats_options {
    unsigned threads; /* threads that look up packs; 0: 8 */
    /* Called now and then from the calling thread: catalog entries read, and all. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* Read the whole catalog and the whole index, and look up every pack. -EBADMSG: the image is damaged; -ECANCELED; else
 * the store's errors. Memory: 100 MiB, and 48 bytes for each pack; above that, 24 bytes for each file in the directory
 * for temporary files. */
GR_MUST_CHECK int image_stats(struct store *s, const struct manifest *m, const struct image_stats_options *options,
                              struct image_stats *out);

/* ---- write an image to a file (export.c) ----
 *
 * Writes an image out as one file, verified on the way. */

/* Options of an export; all zero is valid. */
struct export_options {
    unsigned threads; /* reading threads; 0: CHUNK_STREAM_THREADS */
    /* Called after every chunk from the calling thread, with bytes; may be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* Write the image to path: a sparse file (holes stay holes) that appears under its name only when it is complete and
 * on disk. An existing regular file is replaced. -EINVAL: path is something else; -EBADMSG: the image is damaged;
 * -ECANCELED; else the errors of the store and the filesystem. */
GR_MUST_CHECK int export_file(struct store *s, const struct manifest *m, const char *path,
                              const struct export_options *options);

/* Write the image to a stream, holes as zeros. name appears in messages. Fails like export_file. */
GR_MUST_CHECK int export_stream(struct store *s, const struct manifest *m, int fd, const char *name,
                                const struct export_options *options);

#endif
