/* Bring an image, or a part of it, into the cache ahead of its readers. */
#ifndef GRANARY_IMAGE_WARM_WARM_RUN_H
#define GRANARY_IMAGE_WARM_WARM_RUN_H

#include "base/bytes.h"
#include "base/map.h"
#include "image/warm/select.h"

enum { WARM_THREADS = 64 /* threads of one run; each has up to 16 chunks in flight (cache_ensure) */ };

/* What to warm. WARM_CHANGES, the chunks that an earlier image lacks, needs that image; WARM_TRACE the bytes of a trace
 * as its list, WARM_FILES and WARM_GLOBS a list of names. */
enum warm_what { WARM_METADATA, WARM_ALL, WARM_CHANGES, WARM_TRACE, WARM_FILES, WARM_GLOBS };

/* Does WARM_METADATA stand for this chunk: the superblock, what else is in front, or the metadata's region? */
bool warm_is_metadata(const struct manifest *m, uint64_t chunk);

/* How far a run is. */
struct warm_report {
    const char *phase; /* "catalog", "looking", "warming" */
    /* Of the chunks wanted, those cached before included. A file is done when it and all files before it came or
     * failed. */
    uint64_t bytes_done, bytes_total, files_done, files_total;
    uint64_t failed_chunks, failed_bytes; /* not counted as done */
};

/* One run's task and callbacks. All pointers are borrowed for the run. */
struct warm_config {
    struct image *img;
    /* Where the catalog and missing index nodes come from. Not the image's own store, so that it may give up sooner
     * and be cancelled. Chunks are fetched as for any reader. */
    struct store *store;
    enum warm_what what;
    struct image *since;      /* WARM_CHANGES: the earlier image */
    const struct bytes *list; /* names, each ended by NUL; or a trace's file */
    bool own;         /* of these chunks, only those that this node keeps for all (store_is_own), and metadata */
    bool dry;         /* look only, fetch no chunk */
    uint64_t bwlimit; /* bytes of stored chunks a second; 0: no limit */
    /* Called many times a second. A non-zero result ends the run, when the chunks in flight have come or failed, and
     * is returned. */
    int (*tell)(void *arg, const struct warm_report *report);
    /* Called for a file that is not in the image, or not fully cached at the end. Its result counts as tell's. */
    int (*failed)(void *arg, const char *path, size_t len, const char *why);
    void *arg;
};

/* Counts and bytes; holes do not count. Bytes are of the plain chunks, except for fetch_bytes: the missing chunks as
 * stored (0 for chunks whose index node is unknown), with the missing index nodes on the way to the chosen chunks. */
struct missing_sums {
    uint64_t chunks, bytes, missing, missing_bytes, fetch_bytes;
};

/* What a run found and reached. */
struct warm_result {
    struct missing_sums before, after; /* of the chunks wanted */
    uint64_t files, absent;            /* wanted; names that are not in the image */
    uint64_t warmed_bytes, warming_ms; /* what the warming fetched, and how long it took */
    uint64_t traced, traced_absent;    /* entries of the trace; those that the image does not have */
    uint64_t failed_files;
    uint64_t unheld;    /* chunks of metadata that could not be pinned: the pin limit is reached */
    struct error error; /* of the first chunk that failed, or what ended the warming; code 0: none */
};

/* Bring what belongs to this node since others leave into the cache, from those that leave (store_leaving_open), as far
 * as the image's index is cached here. *cancel ends it with -ECANCELED. *out_taken: the chunks that came, also after an
 * error. -ENOMEM; errors of cache_take that are not of one chunk. */
GR_MUST_CHECK int warm_take(struct image *img, struct store_proxies *proxies, struct store *leaving,
                            const volatile int *cancel, uint64_t *out_taken);

/* How far the run is that began to warm an image last, and how long the rest takes, in milliseconds; UINT64_MAX: that
 * cannot be told yet. */
struct warm_progress {
    uint64_t bytes_done, bytes_total, left_ms;
};
/* false: none is running, and *out means nothing. Any thread. */
bool warm_progress(struct image *img, struct warm_progress *out);

/* Warm. The filesystem's metadata comes first in every case and is pinned for the session (cache_session_pin); then
 * come the wanted chunks, in order. A chunk that is missing or bad (-ENOENT, -EBADMSG) is skipped; any other failure
 * ends the warming, not the run. At the end everything is looked up again: only out->after tells success. Starts
 * WARM_THREADS for the time of the warming. Returns 0, a result of tell or failed, or -errno where the plan could not
 * be made.
 */
GR_MUST_CHECK int warm_run(const struct warm_config *config, struct warm_result *out);

/* Pin what is cached of an image's metadata for the session, as warm_run does. *out_refused: how many chunks could not
 * be pinned, since the pin limit is reached. Any thread. -ENOMEM. */
GR_MUST_CHECK int warm_pin_metadata(struct image *img, uint64_t *out_refused);
/* End these pins, for an image that is served no more, but not those of chunks that other images have, too: gather the
 * image's metadata, as far as its index is cached (warm_unpin_begin); spare what each other image has; then unpin the
 * rest. The map takes 40 bytes a chunk of metadata. -ENOMEM, and errors of the cache: then unpin nothing. */
GR_MUST_CHECK int warm_unpin_begin(struct image *img, struct digest_map *out);
GR_MUST_CHECK int warm_unpin_spare(struct image *img, struct digest_map *chunks);
void warm_unpin(struct cache *cache, const struct digest_map *chunks);

#endif
