/* Records of bytes sorted by their keys, in bounded memory: what does not fit is sorted in runs, the runs are merged
 * (external merge sort, Knuth, The Art of Computer Programming, vol. 3, 5.4). Keys are compared as bytes, a prefix
 * before what it is a prefix of; equal keys keep the order in which they were added.
 *
 *   sorter_new, sorter_add ..., sorter_sort, sorter_next ... (1: a record, 0: the end), sorter_free
 *
 * One thread.
 */
#ifndef GRANARY_BASE_SPILL_SORTER_H
#define GRANARY_BASE_SPILL_SORTER_H

#include "base/spill/scratch.h"

enum { SORTER_MEMORY_DEFAULT = 64 << 20, SORTER_RECORD_MAX = 1 << 20 };

struct sorter_config {
    const char *dir; /* as in struct scratch_config */
    size_t memory;   /* bytes of records and their bookkeeping held at a time; 0: SORTER_MEMORY_DEFAULT */
};

/* Valid until the next call. */
struct sorter_record {
    const uint8_t *key, *value;
    size_t key_len, value_len;
};

struct sorter;

GR_MUST_CHECK int sorter_new(const struct sorter_config *config, struct sorter **out);
void sorter_free(struct sorter *s); /* NULL is allowed */
DEFINE_CLEANUP(sorter, struct sorter *, sorter_free)

/* Copied. Key and value together are at most SORTER_RECORD_MAX bytes. */
GR_MUST_CHECK int sorter_add(struct sorter *s, const void *key, size_t key_len, const void *value, size_t value_len);
/* Nothing more comes. Once. */
GR_MUST_CHECK int sorter_sort(struct sorter *s);
/* The next record in order: 1, the end: 0, or -errno. */
GR_MUST_CHECK int sorter_next(struct sorter *s, struct sorter_record *out);

#endif
