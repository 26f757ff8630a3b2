/* Takes apart a store that was made inside another store's images/ directory: its images are copied into the outer
 * store under the same names, tags and digests, and then its objects are removed. */
#ifndef GRANARY_UPKEEP_UNNEST_H
#define GRANARY_UPKEEP_UNNEST_H

#include "store/store.h"
#include "upkeep/copy.h"

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

#endif
