/* How the places of a pool are shared by users of whom some may never give theirs back: dynamic thresholds (Choudhury
 * and Hahne, 1998). One user alone may have three quarters of the places; of several each may have three times as many
 * as are free beyond the last one, and the last one goes only to a user that has none. No table of users is needed. */
#ifndef GRANARY_BASE_SHARE_H
#define GRANARY_BASE_SHARE_H

#include <stdbool.h>

enum { SHARE_TIMES = 3 };

/* May a user that has `mine` places take one more, when `free` of the pool are not taken? */
static inline bool share_allows(unsigned mine, unsigned free)
{
    return mine ? free > 1 && mine < SHARE_TIMES * (free - 1) : free > 0;
}

#endif
