/* Share the slots of a pool between users, some of which may never release theirs: dynamic thresholds (Choudhury and
 * Hahne, 1998). A user may hold up to SHARE_TIMES as many slots as are free, not counting the last free one, which is
 * reserved for a user that has none. A single user thus gets about three quarters of the pool, and each of several gets
 * less, without a table of users.
 */
#ifndef GRANARY_BASE_SHARE_H
#define GRANARY_BASE_SHARE_H

#include <stdbool.h>
#include <stddef.h>

enum { SHARE_TIMES = 3, SHARE_PART_TIMES = 2 };

/* May a user that holds `mine` slots take one more while `free` slots of the pool are free? */
static inline bool share_allows(unsigned mine, unsigned free)
{
    return mine ? free > 1 && mine < SHARE_TIMES * (free - 1) : free > 0;
}

/* The same where a user takes parts of any size: may one that holds `mine` take `more` while all users together hold
 * `used` of the pool's `most`? It may have at most SHARE_PART_TIMES as much as was left before: a single user gets two
 * thirds, each of two gets two fifths. One that holds nothing may take all that is left. */
static inline bool share_allows_part(size_t mine, size_t more, size_t used, size_t most)
{
    size_t left = used < most ? most - used : 0;
    return more <= left && (!mine || mine + more <= SHARE_PART_TIMES * left);
}

#endif
