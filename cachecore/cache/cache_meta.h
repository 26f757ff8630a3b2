/* The bytes of a cache directory (docs/format-cache.md): geometry, header, slab table, records. Pure
 * functions, no I/O; every decoder takes any bytes.
 *
 * A directory's data file is an array of slabs. A slab is bound to a size class and then holds slots
 * of that size; the record file has a header, one table entry a slab and one region of records a
 * slab.
 */
#ifndef GRANARY_CACHE_CACHE_META_H
#define GRANARY_CACHE_CACHE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"

enum {
    CACHE_META_VERSION = 1,
    CACHE_META_HEADER_SIZE = 4096, /* of the record file; the fields take 44 bytes, the rest is zero */
    CACHE_META_SLAB_SIZE = 16,     /* one entry of the slab table */
    CACHE_META_RECORD_HEAD = 48,   /* bytes of a record before its block CRCs */
    CACHE_RECORD_MAX = 576,        /* the record of a 4 MiB slot */
    CACHE_BLOCK = 32 << 10,        /* what one CRC covers */
    CACHE_BLOCKS_MAX = 128,        /* of a 4 MiB slot */
    CACHE_CLASSES = 11,            /* slots of 4 KiB << class: 4 KiB to 4 MiB */
    CACHE_SLAB_MIN = 4 << 20,
    CACHE_SLAB_MAX = 64 << 20,
    CACHE_SLAB_SLOTS_MAX = 2048, /* of a 64 MiB slab: its records' region holds no more */
    CACHE_SLABS_MAX = (1 << 21) - 1,
    CACHE_BUDGET_MIN = 16 << 20,
};

struct cache_geometry {
    uint64_t budget; /* bytes the directory may take, everything counted */
    uint64_t id;     /* random, drawn when the directory is made; no record of another life matches */
    uint32_t slab_size;
    uint32_t slab_count;
};

/* Lay out a budget; id is left alone. -EINVAL with a sentence: below CACHE_BUDGET_MIN or beyond what
 * slab numbers reach. */
GR_MUST_CHECK int cache_geometry_plan(uint64_t budget, struct cache_geometry *out);
/* Same layout, whatever the id. */
bool cache_geometry_same(const struct cache_geometry *a, const struct cache_geometry *b);

uint64_t cache_geometry_data_size(const struct cache_geometry *g);
uint64_t cache_geometry_record_file_size(const struct cache_geometry *g);

/* The class of the smallest slot that holds len bytes (1 <= len <= 4 MiB). */
unsigned cache_class_of(uint32_t len);
static inline uint32_t cache_class_slot_size(unsigned class)
{
    return 4096u << class;
}
/* CRCs a slot of the class has. */
uint32_t cache_class_blocks(unsigned class);
/* Bytes of one record of the class, a multiple of 64. */
uint32_t cache_class_record_size(unsigned class);
/* Slots of the class in one slab: as many as the slab holds and its region has records for. */
uint32_t cache_class_slots(const struct cache_geometry *g, unsigned class);

/* Where a slot stands. */
struct cache_place {
    uint32_t slab;  /* number within the directory */
    uint32_t slot;  /* number within the slab */
    uint32_t epoch; /* of the slab's binding; never 0 */
    unsigned class;
};

uint64_t cache_place_data_offset(const struct cache_geometry *g, const struct cache_place *p);
uint64_t cache_place_record_offset(const struct cache_geometry *g, const struct cache_place *p);
uint64_t cache_slab_entry_offset(uint32_t slab);

/* What a record claims: this slot holds this chunk. */
struct cache_record {
    struct digest digest;
    uint64_t seq; /* rises with every fill of the cache */
    uint32_t plain_len;
    uint32_t crcs[CACHE_BLOCKS_MAX]; /* of each CACHE_BLOCK plain bytes; the last one of what is left */
};

void cache_meta_header_encode(const struct cache_geometry *g, uint8_t out[CACHE_META_HEADER_SIZE]);
/* -ENOTSUP: another version; -EBADMSG: no header of ours. No sentence: the caller knows the file. */
GR_MUST_CHECK int cache_meta_header_decode(const uint8_t *data, size_t len, struct cache_geometry *out);

/* p->slot is not used. */
void cache_meta_slab_encode(const struct cache_geometry *g, const struct cache_place *p,
                            uint8_t out[CACHE_META_SLAB_SIZE]);
/* The binding of slab number p->slab: sets p->class and p->epoch. false: unbound or not believable. */
bool cache_meta_slab_decode(const struct cache_geometry *g, const uint8_t data[CACHE_META_SLAB_SIZE],
                            struct cache_place *p);

/* Writes cache_class_record_size(p->class) bytes. */
void cache_meta_record_encode(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                              uint8_t out[CACHE_RECORD_MAX]);
/* Reads cache_class_record_size(p->class) bytes. false: empty, torn, or of another place or life. */
bool cache_meta_record_decode(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *data,
                              struct cache_record *out);

/* CRCs of the blocks of len plain bytes into out; returns how many. */
uint32_t cache_block_crcs(const uint8_t *data, uint32_t len, uint32_t out[CACHE_BLOCKS_MAX]);

#endif
