/* Share the slots of a pool between users, some of which may never release theirs: dynamic thresholds (Choudhury and
 * Hahne, 1998). A user may hold up to SHARE_TIMES as many slots as are free, not counting the last free one, which is
 * reserved for a user that has none. A single user thus gets about three quarters of the pool, and each of several gets
 * less, without a table of users.
 */
#ifndef GRANARY_BASE_SHARE_H
#define GRANARY_BASE_SHARE_H

#include <stdbool.h>

enum { SHARE_TIMES = 3 };

/* May a user that holds `mine` slots take one more while `free` slots of the pool are free? */
static inline bool share_allows(unsigned mine, unsigned free)
{
    return mine ? free > 1 && mine < SHARE_TIMES * (free - 1) : free > 0;
}

#endif
