/* One walker for every kind of tree. A kind lists one place: a directory, a page of one, a range of keys. Threads take
 * places off a stack, last in first out, so that few wait there whatever the tree's width, and list them. The calling
 * thread visits what they emit.
 *
 * The walk ends when no place is left, or with the first error, of a place or of the visitor; then no further place is
 * begun, and those being listed are waited for. A place below the root that is gone (-ENOENT) is counted and passed
 * over.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_WALK_H

#include "imagebuild/source/source.h"

struct walk_place {
    const char *path; /* with a final NUL; the root is "" */
    size_t path_len;
    const char *after; /* with a final NUL: list what comes behind this name; NULL: all of it */
    int kind;          /* the source's own */
    bool alone;        /* nothing else is listed at the same time */
};

struct walker; /* a thread of the walk */

struct walk {
    const char *url;  /* for messages */
    unsigned threads; /* at most 64 are started */
    /* List one place: walk_emit, walk_push, walk_vanished, in any order and number. */
    int (*list)(void *arg, struct walker *w, const struct walk_place *place);
    /* A thread has nothing to list while others have: take over a part of what they list. 1: there may be more to take
     * over now; 0: not before another place is listed. NULL: places cannot be shared. */
    int (*share)(void *arg, struct walker *w);
    void *arg;
    source_visit *visit; /* non-zero ends the walk with that value */
    void *visit_arg;
    struct source_counts *counts; /* of places that are gone; NULL: the kind counts by itself */
};

/* Walk from the root. Memory: 64 KiB for each thread and twice that in between, and a path and about 60 bytes for each
 * place that waits, 1 GiB at most. */
GR_MUST_CHECK int walk_run(const struct walk *config);

/* Hand an entry on to the visitor; it is copied. Waits while the visitor is behind. walker is a struct walker, so that
 * this is a source_visit. */
GR_MUST_CHECK int walk_emit(void *walker, const struct source_entry *e);
/* A further place to list; it is copied, and its path needs no final NUL. */
GR_MUST_CHECK int walk_push(struct walker *w, const struct walk_place *place);
/* Count a path that is not there any more, and warn of the first. */
void walk_vanished(struct walker *w, const char *path, size_t len);

#endif
