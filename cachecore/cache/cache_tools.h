/* What tools need of cache directories, apart from serving. */
#ifndef GRANARY_CACHE_CACHE_TOOLS_H
#define GRANARY_CACHE_CACHE_TOOLS_H

#include "cache/disk/cache_dir.h"   /* how much a directory may take; owning it */
#include "cache/policy/evict_sim.h" /* what a policy would have kept */

/* Check a cache directory that no server uses: every record, and every byte that the records describe. */

enum { CACHE_FSCK_THREADS = 8, CACHE_FSCK_THREADS_MAX = 64 };

/* A slot whose bytes are not what its record says. Calls come one at a time, from any of the check's threads;
 * pointers are valid during the call. */
struct cache_fsck_bad {
    const struct digest *digest;
    const struct cache_place *place;
    const char *why;
    bool repaired; /* its record has been blanked */
};

struct cache_fsck_options {
    unsigned threads; /* 0: CACHE_FSCK_THREADS */
    bool repair;      /* blank the records of bad slots, so that they are misses */
    void (*bad)(void *arg, const struct cache_fsck_bad *bad); /* may be NULL */
    /* Called in the calling thread, several times a second; may be NULL. */
    void (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *arg;
    const volatile int *cancel; /* non-zero: stop with -ECANCELED; may be NULL */
};

struct cache_fsck_result {
    uint64_t slabs, bound;            /* slabs of the directory; those bound to a slot size */
    uint64_t slots;                   /* slots of bound slabs; each is one of the next four */
    uint64_t good, empty, stale, bad; /* stale: the record is torn, or of an earlier binding or life of the directory */
    uint64_t pinned;                  /* among the good ones */
    uint64_t repaired;                /* among the bad ones */
    uint64_t bytes;                   /* of good chunks, as stored on disk */
};

/* Lock the directory and check it. Without repair nothing is written but the pid in its lock. 0: the check ran to its
 * end, whatever it found (out->bad). -ENOENT: there is no cache; -EBUSY: a process uses it (the message names its
 * pid); -EBADMSG, -ENOTSUP: its header is damaged, or of another version (a server would start it empty); -EIO: its
 * slab table or a slab's records cannot be read; -ECANCELED; -ENOMEM. *out has what was found in every case.
 */
GR_MUST_CHECK int cache_fsck(const char *dir, const struct cache_fsck_options *options, struct cache_fsck_result *out);

#endif
