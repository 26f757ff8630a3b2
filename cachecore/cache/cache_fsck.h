/* Checking a cache directory that no server uses: every record, and every byte the records speak of. */
#ifndef GRANARY_CACHE_CACHE_FSCK_H
#define GRANARY_CACHE_CACHE_FSCK_H

#include "cache/disk/cache_meta.h"

enum { CACHE_FSCK_THREADS = 8, CACHE_FSCK_THREADS_MAX = 64 };

/* A slot whose bytes are not what its record says. Calls come one at a time, from any thread. */
struct cache_fsck_bad {
    const struct digest *digest;
    const struct cache_place *place;
    const char *why;
    bool repaired; /* its record was blanked */
};

struct cache_fsck_options {
    unsigned threads; /* 0: CACHE_FSCK_THREADS */
    bool repair;      /* blank the records of bad slots, so that they are misses */
    void (*bad)(void *arg, const struct cache_fsck_bad *bad); /* may be NULL */
    /* In the calling thread, several times a second; may be NULL. */
    void (*progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *arg;
    const volatile int *cancel; /* -ECANCELED; may be NULL */
};

struct cache_fsck_result {
    uint64_t slabs, bound;            /* of them bound to a size of slot */
    uint64_t slots;                   /* of the bound slabs; each is one of the next four */
    uint64_t good, empty, stale, bad; /* stale: its record is no claim (torn, of an earlier binding or life) */
    uint64_t pinned;                  /* of the good ones */
    uint64_t repaired;                /* of the bad ones */
    uint64_t bytes;                   /* of good chunks, as they lie on the disk */
};

/* Lock the directory and check it. Without repair nothing is written but the pid in its lock. 0 when
 * the check ran to its end, whatever it found (out->bad); -ENOENT: no cache there; -EBUSY: the
 * sentence names the pid that uses it; -EBADMSG, -ENOTSUP: its header is damaged, or of another
 * version (a server would start empty); -EIO: its slab table cannot be read. */
GR_MUST_CHECK int cache_fsck(const char *dir, const struct cache_fsck_options *options, struct cache_fsck_result *out);

#endif
