/* A parallel walk over a tree, shared by all kinds of sources. The tree is cut into places: a directory, one page of
 * it, or a range of keys. The source supplies a function that lists one place. Threads pop places from a stack, list
 * them and push the places that they find; the calling thread visits the entries.
 *
 *   walk_push -> stack of places -> threads: list() -> walk_emit -> batches -> calling thread: visit()
 *                      ^                       |
 *                      +------ walk_push ------+
 *
 * The stack is last in, first out: the walk goes deep before it goes wide, so few places wait at a time.
 *
 * The walk ends when no place is left, or with the first error of list, share or visit. After an error no further
 * place is begun, and walk_run returns once the places in progress have ended. A place below the root that is gone
 * (-ENOENT) is counted and skipped.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_WALK_H

#include "imagebuild/source/source.h"

/* A part of the tree that is listed in one go. */
struct walk_place {
    const char *path; /* with a final NUL; "" is the root */
    size_t path_len;
    const char *after; /* with a final NUL: list only what follows this name; NULL: everything */
    int kind;          /* for the source's own use */
    bool alone;        /* nothing else may be listed at the same time */
};

struct walker; /* one thread of the walk */

struct walk {
    const char *url;  /* for messages */
    unsigned threads; /* at most 64 are started */
    /* List one place: call walk_emit, walk_push and walk_vanished, in any order and number. Called by several threads
     * at the same time. */
    int (*list)(void *arg, struct walker *w, const struct walk_place *place);
    /* Called by a thread that has nothing to list while others have: take over a part of their work. Return 1 if there
     * may be more to take over now, 0 if not before another place is listed. NULL: places cannot be shared. */
    int (*share)(void *arg, struct walker *w);
    void *arg;
    source_visit *visit; /* called by the thread of walk_run; non-zero ends the walk with that value */
    void *visit_arg;
    struct source_counts *counts; /* counts places that are gone; NULL: list returns no -ENOENT below the root */
};

/* Walk the tree from the root. Blocks. Memory: 192 KiB a thread for entries in transit; for each waiting place its
 * path and about 60 bytes, 1 GiB at most (-ENOMEM). Returns the first error. */
GR_MUST_CHECK int walk_run(const struct walk *config);

/* Pass a copy of an entry on to the visitor; waits while the visitor is behind. `walker` is a struct walker: the type
 * is void, so that the function is a source_visit. -ECANCELED: the walk has failed. -ENOMEM. */
GR_MUST_CHECK int walk_emit(void *walker, const struct source_entry *e);
/* Add a copy of a place to list; its path needs no final NUL. -ENOMEM: also if too many places wait. */
GR_MUST_CHECK int walk_push(struct walker *w, const struct walk_place *place);
/* Count a path that is gone, and log a warning for the first ones. */
void walk_vanished(struct walker *w, const char *path, size_t len);

#endif
