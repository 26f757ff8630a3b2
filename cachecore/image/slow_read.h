/* The log of slow reads: one line each says in which layer the time went. Shared by the images of a server. */
#ifndef GRANARY_IMAGE_SLOW_READ_H
#define GRANARY_IMAGE_SLOW_READ_H

#include "base/log.h"
#include "cache/cache.h"

struct image;

/* The log's settings and counters; any thread may use them. */
struct slow_reads {
    uint64_t least_us; /* a read that takes this long is slow; 0: none is */
    counter total;
    struct log_limit limit;
    void (*ask)(void *arg, struct image *img,
                uint64_t offset); /* called for each slow read, to name its file (slow_names.h); NULL: not called */
    void *ask_arg;
};

/* A read that has ended. */
struct slow_read {
    struct image *of;
    const struct digest *image;
    uint64_t offset, len;
    uint64_t took_us, index_us; /* the whole read; the part spent in the index, fetching its nodes included */
    const struct cache_served *served;
    bool failed;
};

void slow_reads_init(struct slow_reads *s, uint64_t least_us);
/* If the read was slow, count it and log it; log_limit.h bounds the lines. Any thread. */
void slow_reads_note(struct slow_reads *s, const struct slow_read *read);

#endif
