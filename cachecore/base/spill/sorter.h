/* Sort records by key in bounded memory: records that do not fit are sorted in runs on disk, which are then merged
 * (external merge sort; Knuth, The Art of Computer Programming, vol. 3, 5.4). Keys are compared byte by byte, and a
 * prefix of a key comes before it. Records with equal keys keep the order in which they were added.
 *
 *   sorter_new, sorter_add ..., sorter_sort, sorter_next ... (1: a record, 0: the end), sorter_free
 *
 * One thread. Failures are -ENOMEM and those of the scratch (base/spill/scratch.h), with a sentence; after one, only
 * sorter_free may follow.
 */
#ifndef GRANARY_BASE_SPILL_SORTER_H
#define GRANARY_BASE_SPILL_SORTER_H

#include "base/spill/scratch.h"

enum { SORTER_MEMORY_DEFAULT = 64 << 20, SORTER_RECORD_MAX = 1 << 20 };

struct sorter_config {
    const char *dir; /* for runs, as in struct scratch_config; NULL: the same default */
    size_t memory;   /* bytes for records and their bookkeeping; 0: SORTER_MEMORY_DEFAULT */
};

/* A record in the sorter's memory, valid until the next call for that sorter. */
struct sorter_record {
    const uint8_t *key, *value;
    size_t key_len, value_len;
};

struct sorter;

/* Make an empty sorter; config is copied. */
GR_MUST_CHECK int sorter_new(const struct sorter_config *config, struct sorter **out);
void sorter_free(struct sorter *s); /* NULL is allowed */
DEFINE_CLEANUP(sorter, struct sorter *, sorter_free)

/* Add a record; key and value are copied. -EINVAL: together they are longer than SORTER_RECORD_MAX bytes. */
GR_MUST_CHECK int sorter_add(struct sorter *s, const void *key, size_t key_len, const void *value, size_t value_len);
/* Sort what was added; no record may be added afterwards. Call it once. */
GR_MUST_CHECK int sorter_sort(struct sorter *s);
/* Get the next record in order. Returns 1, 0 at the end, or -errno. Only after sorter_sort. */
GR_MUST_CHECK int sorter_next(struct sorter *s, struct sorter_record *out);

#endif
