/* Code records of a scratch as what differs from the record before: neighbours in a sorted order share most of their
 * bytes. The writer and the reader each keep the record before. Bytes are in native order, and trusted: none outlives
 * the process that wrote them.
 */
#ifndef GRANARY_BASE_SPILL_PACK_H
#define GRANARY_BASE_SPILL_PACK_H

#include <stddef.h>
#include <stdint.h>

enum { PACK_NUMBER_MAX = 5 }; /* bytes of a number, at most */

/* Write a number, 7 bits a byte, low bits first; return the position after it. */
uint8_t *pack_number(uint8_t *p, uint32_t number);
/* Read one; return the position after it. */
const uint8_t *unpack_number(const uint8_t *p, uint32_t *out);

/* Return the most bytes that pack_changes writes for len bytes. */
static inline size_t pack_changes_max(size_t len)
{
    return len + len / 64 + 1;
}
/* Write `now` as what differs from `before`, which is elsewhere; return the position after it. */
uint8_t *pack_changes(uint8_t *p, const void *now, size_t len, const void *before, size_t before_len);
/* Make `bytes`, which holds what came before and has room for len bytes, what was packed; return the position after
 * the packed bytes. len and before_len are those of pack_changes. */
const uint8_t *unpack_changes(const uint8_t *p, void *bytes, size_t len, size_t before_len);

/* Return how many leading bytes two strings have in common. */
size_t pack_shared(const void *a, size_t a_len, const void *b, size_t b_len);

#endif
