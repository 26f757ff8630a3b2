/* Room in memory for pages of a listing that are in the air at the same time: PAGE_ROOM_BYTES in all. A page, with what
 * is kept of it until it has been told, takes a small part, of which there are PAGE_ROOM_SMALLS, or all of the room:
 * one that proves too large for a small part leaves it and comes again for all. Any thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_PAGE_ROOM_H
#define GRANARY_IMAGEBUILD_SOURCE_PAGE_ROOM_H

#include <pthread.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { PAGE_ROOM_SMALL_BYTES = 4 << 20, PAGE_ROOM_SMALLS = 64 };
enum { PAGE_ROOM_BYTES = PAGE_ROOM_SMALL_BYTES * PAGE_ROOM_SMALLS };

struct page_room {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned smalls;      /* taken */
    bool all;             /* taken */
    unsigned waiting_all; /* for all; no further small part is given meanwhile */
    bool closed;
};

void page_room_init(struct page_room *r);
void page_room_release(struct page_room *r); /* nobody is in it any more */

/* Wait for a part, small or all. -ECANCELED: it was closed. */
GR_MUST_CHECK int page_room_enter(struct page_room *r, bool all);
void page_room_leave(struct page_room *r, bool all);
/* Nobody waits or enters any more: who could leave will not. */
void page_room_close(struct page_room *r);

#endif
