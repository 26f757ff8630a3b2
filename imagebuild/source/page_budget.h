/* Room in memory for pages of a listing that are in flight at the same time: PAGE_BUDGET_BYTES in all. A page, with
 * what is kept of it until it has been told, takes a small part, of which there are PAGE_BUDGET_SMALLS, or all of the
 * room: one that proves too large for a small part leaves it and comes again for all. Any thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_PAGE_BUDGET_H
#define GRANARY_IMAGEBUILD_SOURCE_PAGE_BUDGET_H

#include <pthread.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { PAGE_BUDGET_SMALL_BYTES = 4 << 20, PAGE_BUDGET_SMALLS = 64 };
enum { PAGE_BUDGET_BYTES = PAGE_BUDGET_SMALL_BYTES * PAGE_BUDGET_SMALLS };

struct page_budget {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned smalls;      /* taken */
    bool all;             /* taken */
    unsigned waiting_all; /* for all; no further small part is given meanwhile */
    bool closed;
};

void page_budget_init(struct page_budget *r);
void page_budget_release(struct page_budget *r); /* nobody is in it any more */

/* Wait for a part, small or all. -ECANCELED: it was closed. */
GR_MUST_CHECK int page_budget_enter(struct page_budget *r, bool all);
void page_budget_leave(struct page_budget *r, bool all);
/* Nobody waits or enters any more: who could leave will not. */
void page_budget_close(struct page_budget *r);

#endif
