/* A store that was made inside another one's images/ taken out of it: its images are copied into the outer store, under
 * the same names, tags and digests, and then what it is made of is removed. */
#ifndef GRANARY_UPKEEP_UNNEST_H
#define GRANARY_UPKEEP_UNNEST_H

#include "store/store.h"
#include "upkeep/copy.h"

/* Visit the directory of each store that stands inside the outer one's images/: "images", "images/NAME". The deepest
 * come first. */
typedef int unnest_visit(void *arg, const char *dir);
GR_MUST_CHECK int unnest_find(struct store *outer, unnest_visit *visit, void *arg);

struct unnest_options {
    bool dry_run;             /* write and remove nothing; the result says what would happen */
    struct copy_options copy; /* threads, progress and cancel are of the removals, too */
};

struct unnest_result {
    uint64_t images, tags;             /* of the inner store */
    uint64_t tags_there;               /* of those: in the outer store already */
    uint64_t objects_sent, bytes_sent; /* that the outer store lacked; of a dry run 0 */
    uint64_t removed, removed_bytes;   /* objects of the inner store */
    uint64_t left; /* objects below dir that are none of its: the outer store's tags, files of others */
};

/* dir: as unnest_find gave it. Ended at any moment it can be run again: nothing is removed before every tag of the
 * inner store is in the outer one, and its granary.json goes last. -EEXIST, before anything is written: a tag stands
 * for different images in the two. -EBUSY: a build into the inner store runs, or did within LEASE_LIFE_MIN_S. -EAGAIN:
 * an image was published there meanwhile. Memory: the keys of the inner store. Who reads from the inner store reads on
 * from what is cached, and no further. */
GR_MUST_CHECK int unnest_run(struct store *outer, const char *dir, const struct unnest_options *options,
                             struct unnest_result *out);

#endif
