/* The log of reads that took long: one line each says in which layer the time went. Shared by the images of a server.
 */
#ifndef GRANARY_IMAGE_SLOW_READ_H
#define GRANARY_IMAGE_SLOW_READ_H

#include "base/log.h"
#include "cache/cache.h"

struct image;

struct slow_reads {
    uint64_t least_us; /* a read that takes so long is slow; 0: none is */
    counter total;
    struct log_limit limit;
    void (*ask)(void *arg, struct image *img, uint64_t offset); /* which file it was; NULL: nobody knows */
    void *ask_arg;
};

/* A read that has ended. */
struct slow_read {
    struct image *of;
    const struct digest *image;
    uint64_t offset, len;
    uint64_t took_us, index_us; /* all of it; to find its chunks in the index, fetching its nodes included */
    const struct cache_served *served;
    bool failed;
};

void slow_reads_init(struct slow_reads *s, uint64_t least_us);
/* Count and log it, if it is one; of many the log has few (log_limit.h). Any thread. */
void slow_reads_note(struct slow_reads *s, const struct slow_read *read);

#endif
