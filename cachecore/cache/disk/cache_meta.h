/* The bytes of a cache directory (docs/reference/format-cache.md): geometry, header, slab table, records. Pure
 * functions without I/O; every decoder accepts any bytes.
 *
 *    data:     | slab 0 | slab 1 | ... | probe block |          a slab is bound to a size class and cut into slots
 *    records:  | header | region of slab 0 | region of slab 1 | ... | slab table |
 *                         one record a slot                          one entry a slab
 */
#ifndef GRANARY_CACHE_DISK_CACHE_META_H
#define GRANARY_CACHE_DISK_CACHE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"

enum {
    CACHE_META_VERSION = 2,
    CACHE_META_HEADER_SIZE = 4096, /* of the record file; the fields take 44 bytes, the rest is zero */
    CACHE_META_PROBE_SIZE = 4096,  /* the block at the end of the data file */
    CACHE_META_SLAB_SIZE = 16,     /* one entry of the slab table */
    CACHE_META_RECORD_HEAD = 64,   /* bytes of a record before its block CRCs */
    CACHE_META_RECORD_FLAGS = 48,  /* offset of its flags; the byte there is written alone to pin or unpin */
    CACHE_RECORD_MAX = 4160,       /* the record of a 4 MiB slot */
    CACHE_BLOCK = 4096,            /* bytes that one CRC covers; the smallest read and write */
    CACHE_CLASSES = 11,            /* slots of 4 KiB << class: 4 KiB to 4 MiB */
    CACHE_SLAB_MIN = 4 << 20,
    CACHE_SLAB_MAX = 64 << 20,
    CACHE_REGION_SHARE = 256, /* a slab's records take 1/256 of its size */
    CACHE_REGION_MAX = CACHE_SLAB_MAX / CACHE_REGION_SHARE,
    CACHE_SLAB_SLOTS_MAX = 2048, /* of any class */
    CACHE_SLABS_MAX = (1 << 21) - 1,
    CACHE_BUDGET_MIN = 16 << 20,
};

/* The layout of a directory, as its header has it. */
struct cache_geometry {
    uint64_t budget; /* bytes the directory may take, everything included */
    uint64_t id;     /* random, chosen when the directory is made empty; records of an earlier life do not match */
    uint32_t slab_size;
    uint32_t slab_count;
};

/* Lay out a budget; out->id is left alone. -EINVAL with a message: less than CACHE_BUDGET_MIN, or more than slab
 * numbers can reach. */
GR_MUST_CHECK int cache_geometry_plan(uint64_t budget, struct cache_geometry *out);
/* The same for a directory that was made for another budget, with its slab size, so that its slabs stay where they
 * are. false: it would have too few or too many slabs, and a new layout serves better. */
bool cache_geometry_replan(uint64_t budget, const struct cache_geometry *found, struct cache_geometry *out);
/* Are the layouts the same? The id does not count. */
bool cache_geometry_same(const struct cache_geometry *a, const struct cache_geometry *b);

/* Bytes of all slabs; the probe block, which no slot takes, stands after them. */
uint64_t cache_geometry_data_size(const struct cache_geometry *g);
/* Bytes of the data file: slabs and probe. */
uint64_t cache_geometry_data_file_size(const struct cache_geometry *g);
/* Write the bytes of the probe, which are the same for the whole life of a cache (its id). */
void cache_meta_probe_encode(const struct cache_geometry *g, uint8_t out[CACHE_META_PROBE_SIZE]);
/* Bytes of the record file. */
uint64_t cache_geometry_record_file_size(const struct cache_geometry *g);

/* The class of the smallest slot that holds len bytes (1 <= len <= 4 MiB). */
unsigned cache_class_of(uint32_t len);
static inline uint32_t cache_class_slot_size(unsigned class)
{
    return 4096u << class;
}
/* Blocks, and so CRCs, of a slot of the class. */
static inline uint32_t cache_class_blocks(unsigned class)
{
    return 1u << class;
}
/* Bytes of one record of the class, a multiple of 16. */
uint32_t cache_class_record_size(unsigned class);
/* Slots of the class in one slab: as many as the slab holds and its region has records for. */
uint32_t cache_class_slots(const struct cache_geometry *g, unsigned class);

/* The place of a slot. */
struct cache_place {
    uint32_t slab;  /* number within the directory */
    uint32_t slot;  /* number within the slab */
    uint32_t epoch; /* of the slab's binding; never 0 */
    unsigned class;
};

/* Offsets of a slot's bytes in the data file, and of its record and its slab's table entry in the record file. */
uint64_t cache_place_data_offset(const struct cache_geometry *g, const struct cache_place *p);
uint64_t cache_place_record_offset(const struct cache_geometry *g, const struct cache_place *p);
uint64_t cache_slab_entry_offset(const struct cache_geometry *g, uint32_t slab);

enum cache_record_flags {
    RECORD_META = 1,   /* an index node or a manifest: data never evicts it */
    RECORD_PINNED = 2, /* pinned by the user: stays until it is unpinned */
    RECORD_ZSTD = 4,   /* the slot holds the chunk as one zstd frame: stored_len < plain_len */
};

/* What a record says, beside its blocks' CRCs: this slot holds this chunk. */
struct cache_record {
    struct digest digest; /* of the plain chunk */
    uint64_t seq;         /* number of the fill, rising over all directories */
    uint32_t plain_len;
    uint32_t stored_len; /* bytes in the slot; plain_len unless RECORD_ZSTD */
    uint16_t flags;
    uint64_t owner; /* hash of the name of the image it is charged to; 0: none */
};

void cache_meta_header_encode(const struct cache_geometry *g, uint8_t out[CACHE_META_HEADER_SIZE]);
/* -ENOTSUP: another version; -EBADMSG: not a header of a cache. No message: the caller knows the file. */
GR_MUST_CHECK int cache_meta_header_decode(const uint8_t *data, size_t len, struct cache_geometry *out);

/* Write a slab's table entry; p->slot is not used. */
void cache_meta_slab_encode(const struct cache_geometry *g, const struct cache_place *p,
                            uint8_t out[CACHE_META_SLAB_SIZE]);
/* Decode the binding of slab p->slab into p->class and p->epoch. false: unbound, or not believable. */
bool cache_meta_slab_decode(const struct cache_geometry *g, const uint8_t data[CACHE_META_SLAB_SIZE],
                            struct cache_place *p);

/* Write the record of a slot that holds stored[0..r->stored_len): cache_class_record_size(p->class) bytes, among them
 * the CRC of each CACHE_BLOCK of `stored`, the last of which may be short. */
void cache_meta_record_encode(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                              const uint8_t *stored, uint8_t out[CACHE_RECORD_MAX]);
/* Write a record's head again and keep its block CRCs, after flags or owner changed. */
void cache_meta_record_seal(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                            uint8_t *record);
/* Decode cache_class_record_size(p->class) bytes. false: empty, torn, or of another place, binding or life. */
bool cache_meta_record_decode(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *data,
                              struct cache_record *out);

/* Do bytes [off, off+len) of the slot match the CRCs of its decoded record? off is a multiple of CACHE_BLOCK; so is
 * len, unless the range ends with the stored bytes. */
bool cache_meta_blocks_hold(const uint8_t *record, uint32_t off, const uint8_t *data, uint32_t len);

#endif
