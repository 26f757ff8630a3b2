/* Having an image, or a part of it, in the cache ahead of its readers. */
#ifndef GRANARY_IMAGE_WARM_WARM_RUN_H
#define GRANARY_IMAGE_WARM_WARM_RUN_H

#include "base/bytes.h"
#include "image/warm/warm_missing.h"

enum { WARM_THREADS = 64 /* of one run; each has up to 16 chunks in flight (cache_ensure) */ };

/* From WARM_TRACE on it needs a list; from WARM_FILES on that is of names. */
enum warm_what { WARM_METADATA, WARM_ALL, WARM_TRACE, WARM_FILES, WARM_GLOBS };

/* Is it one of the chunks that WARM_METADATA stands for: the superblock's, what else is in front, the metadata's
 * region?
 */
bool warm_is_metadata(const struct manifest *m, uint64_t chunk);

struct warm_report {
    const char *phase; /* "catalog", "looking", "warming" */
    /* Of what was asked for, with what was cached before. A file is done when it and all before it came or failed. */
    uint64_t bytes_done, bytes_total, files_done, files_total;
    uint64_t failed_chunks, failed_bytes; /* not among those done */
};

struct warm_config {
    struct image *img;
    /* For the catalog, and index nodes that are not cached: not the image's own, so that it may give up sooner and be
     * cancelled. Chunks come as any reader's. */
    struct store *store;
    enum warm_what what;
    const struct bytes *list; /* names, each ended by NUL; or a trace's file */
    bool dry;                 /* only look */
    uint64_t bwlimit;         /* stored bytes of chunks a second; 0: no limit */
    /* Many times a second: how far it is. What is not 0 ends the run, when the chunks in flight have come or failed,
     * and is returned. */
    int (*tell)(void *arg, const struct warm_report *report);
    /* A file that is not all cached at the end, or not in the image. As tell. */
    int (*failed)(void *arg, const char *path, size_t len, const char *why);
    void *arg;
};

struct warm_result {
    struct missing_sums before, after; /* of the chunks asked for */
    uint64_t files, absent;            /* asked for; names that are not in the image */
    uint64_t warmed_bytes, warming_ms; /* what the warming brought, and how long it took */
    uint64_t traced, traced_absent;    /* entries of the trace; those that the image has not */
    uint64_t failed_files;
    uint64_t unheld;    /* chunks of metadata that could not be held: pins take as much of the cache as they may */
    struct error error; /* of the first chunk that could not be had, or what ended the warming; code 0: none */
};

/* The filesystem's metadata goes first, whatever is asked for, and is held (cache_session_pin); then chunks in the
 * order in which they were asked for. A chunk that cannot be had (-ENOENT, -EBADMSG) is left out, any other failure
 * ends the warming, not the run. At the end all is looked up once more: only out->after says whether it was a success.
 * The calling thread makes WARM_THREADS for the time of the warming. */
GR_MUST_CHECK int warm_run(const struct warm_config *config, struct warm_result *out);

#endif
