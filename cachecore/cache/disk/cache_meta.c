/* Encoding and decoding; docs/reference/format-cache.md has the byte tables.
 *
 * A record's CRC covers not only the record but where it must stand: the directory's id, the slab's epoch, slab and
 * slot. So a record counts only in its own place and its own binding. Binding a slab to another class (epoch + 1)
 * invalidates every old record at once without touching them, and records from an earlier life of the directory never
 * match. The CRC leaves out the flag RECORD_PINNED: a chunk is pinned by writing one byte, which no reader can find
 * half written.
 */
#include "cache/disk/cache_meta.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/export_table.h"

enum {
    RECORD_UNIT = 16,
    REGION_SHIFT = 8,    /* a slab's records take 1/256 of its size */
    KEPT_SLABS_MIN = 32, /* with fewer slabs the size classes push each other out; smaller slabs serve better */
    HEADER_CRC = 40,
    RECORD_FLAGS_AT = CACHE_META_RECORD_FLAGS,
    RECORD_CRC = 60,
    RECORD_FLAGS = RECORD_META | RECORD_PINNED | RECORD_ZSTD,
};

static const uint8_t magic[8] = {'G', 'R', 'N', 'C', 'A', 'C', 'H', 'E'};

/* Offset of a slab's records in the record file. */
static uint64_t region_start(const struct cache_geometry *g, uint32_t slab)
{
    return CACHE_META_HEADER_SIZE + (uint64_t)slab * (g->slab_size >> REGION_SHIFT);
}

uint64_t cache_geometry_data_size(const struct cache_geometry *g)
{
    return (uint64_t)g->slab_count * g->slab_size;
}

uint64_t cache_geometry_data_file_size(const struct cache_geometry *g)
{
    return cache_geometry_data_size(g) + CACHE_META_PROBE_SIZE;
}

void cache_meta_probe_encode(const struct cache_geometry *g, uint8_t out[CACHE_META_PROBE_SIZE])
{
    uint64_t word = g->id;
    for (size_t i = 0; i < CACHE_META_PROBE_SIZE; i += sizeof word) {
        word = word * 0x5851F42D4C957F2Du +
               0x14057B7EF767814Fu; /* a linear congruential generator: any bytes that differ along the block will do */
        le64_put(out + i, word);
    }
}

uint64_t cache_geometry_record_file_size(const struct cache_geometry *g)
{
    return region_start(g, g->slab_count) + GR_ALIGN_UP((uint64_t)g->slab_count * CACHE_META_SLAB_SIZE, 4096);
}

/* How many slabs of this size, with their records and table entries, fit the budget? */
static uint64_t slabs_for(uint64_t budget, uint32_t slab)
{
    /* Reserve 1/128 for the filesystem's extent blocks: writing into reserved space splits extents, at worst one a
     * slot; 64 KiB for the lock file, the directory and rounding; and the table of exports twice, as it takes while
     * it is replaced. */
    uint64_t room = budget - budget / 128 - (64 << 10) - 2 * EXPORT_TABLE_MAX;
    return (room - CACHE_META_HEADER_SIZE - 4096) / (slab + (slab >> REGION_SHIFT) + (uint64_t)CACHE_META_SLAB_SIZE);
}

int cache_geometry_plan(uint64_t budget, struct cache_geometry *out)
{
    if (budget < CACHE_BUDGET_MIN)
        return error_set(-EINVAL, "cache: a directory of %llu bytes is too small; give it at least 16 MiB",
                         (unsigned long long)budget);
    uint32_t slab = CACHE_SLAB_MIN;
    while (slab < CACHE_SLAB_MAX && budget / 256 >= slab)
        slab *= 2;
    uint64_t count = slabs_for(budget, slab);
    if (count > CACHE_SLABS_MAX)
        return error_set(-EINVAL, "cache: a directory of %llu bytes is too large; the most is 127 TiB",
                         (unsigned long long)budget);
    out->budget = budget;
    out->slab_size = slab;
    out->slab_count = (uint32_t)count;
    return 0;
}

bool cache_geometry_replan(uint64_t budget, const struct cache_geometry *found, struct cache_geometry *out)
{
    uint64_t count = slabs_for(budget, found->slab_size);
    if (count > CACHE_SLABS_MAX || (count < KEPT_SLABS_MIN && found->slab_size > CACHE_SLAB_MIN))
        return false;
    *out = *found;
    out->budget = budget;
    out->slab_count = (uint32_t)count;
    return true;
}

bool cache_geometry_same(const struct cache_geometry *a, const struct cache_geometry *b)
{
    return a->budget == b->budget && a->slab_size == b->slab_size && a->slab_count == b->slab_count;
}

unsigned cache_class_of(uint32_t len)
{
    assert(len > 0 && len <= cache_class_slot_size(CACHE_CLASSES - 1));
    unsigned class = 0;
    while (cache_class_slot_size(class) < len)
        class ++;
    return class;
}

uint32_t cache_class_record_size(unsigned class)
{
    return GR_ALIGN_UP((uint32_t)CACHE_META_RECORD_HEAD + 4 * cache_class_blocks(class), (uint32_t)RECORD_UNIT);
}

uint32_t cache_class_slots(const struct cache_geometry *g, unsigned class)
{
    uint32_t by_data = g->slab_size / cache_class_slot_size(class);
    uint32_t by_records = (g->slab_size >> REGION_SHIFT) / cache_class_record_size(class);
    return GR_MIN(GR_MIN(by_data, by_records), (uint32_t)CACHE_SLAB_SLOTS_MAX);
}

uint64_t cache_place_data_offset(const struct cache_geometry *g, const struct cache_place *p)
{
    return (uint64_t)p->slab * g->slab_size + (uint64_t)p->slot * cache_class_slot_size(p->class);
}

uint64_t cache_place_record_offset(const struct cache_geometry *g, const struct cache_place *p)
{
    return region_start(g, p->slab) + (uint64_t)p->slot * cache_class_record_size(p->class);
}

uint64_t cache_slab_entry_offset(const struct cache_geometry *g, uint32_t slab)
{
    return region_start(g, g->slab_count) + (uint64_t)slab * CACHE_META_SLAB_SIZE;
}

void cache_meta_header_encode(const struct cache_geometry *g, uint8_t out[CACHE_META_HEADER_SIZE])
{
    memset(out, 0, CACHE_META_HEADER_SIZE);
    memcpy(out, magic, sizeof magic);
    le32_put(out + 8, CACHE_META_VERSION);
    le32_put(out + 12, g->slab_size);
    le32_put(out + 16, g->slab_count);
    le64_put(out + 24, g->budget);
    le64_put(out + 32, g->id);
    le32_put(out + HEADER_CRC, crc32c(out, HEADER_CRC));
}

int cache_meta_header_decode(const uint8_t *data, size_t len, struct cache_geometry *out)
{
    if (len < CACHE_META_HEADER_SIZE || memcmp(data, magic, sizeof magic) != 0)
        return -EBADMSG;
    if (le32_get(data + HEADER_CRC) != crc32c(data, HEADER_CRC))
        return -EBADMSG;
    if (le32_get(data + 8) != CACHE_META_VERSION)
        return -ENOTSUP;
    struct cache_geometry g = {
        .slab_size = le32_get(data + 12),
        .slab_count = le32_get(data + 16),
        .budget = le64_get(data + 24),
        .id = le64_get(data + 32),
    };
    bool power = (g.slab_size & (g.slab_size - 1)) == 0;
    if (!power || g.slab_size < CACHE_SLAB_MIN || g.slab_size > CACHE_SLAB_MAX || g.slab_count > CACHE_SLABS_MAX)
        return -EBADMSG;
    *out = g;
    return 0;
}

/* The CRC of a table entry, seeded by the directory's id: entries of an earlier life do not match. */
static uint32_t slab_entry_crc(const struct cache_geometry *g, const uint8_t *entry)
{
    uint8_t seed[8];
    le64_put(seed, g->id);
    return ~crc32c_raw(crc32c_raw(~0u, seed, sizeof seed), entry, CACHE_META_SLAB_SIZE - 4);
}

void cache_meta_slab_encode(const struct cache_geometry *g, const struct cache_place *p,
                            uint8_t out[CACHE_META_SLAB_SIZE])
{
    memset(out, 0, CACHE_META_SLAB_SIZE);
    le32_put(out, p->epoch);
    out[4] = (uint8_t)p->class;
    le32_put(out + 8, p->slab);
    le32_put(out + 12, slab_entry_crc(g, out));
}

bool cache_meta_slab_decode(const struct cache_geometry *g, const uint8_t data[CACHE_META_SLAB_SIZE],
                            struct cache_place *p)
{
    uint32_t epoch = le32_get(data);
    if (!epoch || data[4] >= CACHE_CLASSES || le32_get(data + 8) != p->slab ||
        le32_get(data + 12) != slab_entry_crc(g, data))
        return false;
    p->epoch = epoch;
    p->class = data[4];
    return true;
}

/* The CRC of a record in its place, without RECORD_PINNED (top of the file). */
static uint32_t record_crc(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *record)
{
    uint8_t seed[20];
    le64_put(seed, g->id);
    le32_put(seed + 8, p->epoch);
    le32_put(seed + 12, p->slab);
    le32_put(seed + 16, p->slot);
    uint8_t flags[2];
    le16_put(flags, le16_get(record + RECORD_FLAGS_AT) & ~RECORD_PINNED);
    uint32_t reg = crc32c_raw(~0u, seed, sizeof seed);
    reg = crc32c_raw(reg, record, RECORD_FLAGS_AT);
    reg = crc32c_raw(reg, flags, sizeof flags);
    reg = crc32c_raw(reg, record + RECORD_FLAGS_AT + 2, RECORD_CRC - RECORD_FLAGS_AT - 2);
    return ~crc32c_raw(reg, record + CACHE_META_RECORD_HEAD,
                       cache_class_record_size(p->class) - CACHE_META_RECORD_HEAD);
}

static uint32_t block_crc(const uint8_t *data, uint32_t left)
{
    return crc32c(data, GR_MIN(left, (uint32_t)CACHE_BLOCK));
}

void cache_meta_record_encode(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                              const uint8_t *stored, uint8_t out[CACHE_RECORD_MAX])
{
    memset(out, 0, cache_class_record_size(p->class));
    uint8_t *crc = out + CACHE_META_RECORD_HEAD;
    for (uint32_t off = 0; off < r->stored_len; off += CACHE_BLOCK, crc += 4)
        le32_put(crc, block_crc(stored + off, r->stored_len - off));
    cache_meta_record_seal(g, p, r, out);
}

void cache_meta_record_seal(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                            uint8_t *record)
{
    memcpy(record, r->digest.b, DIGEST_SIZE);
    le64_put(record + 32, r->seq);
    le32_put(record + 40, r->plain_len);
    le32_put(record + 44, r->stored_len);
    le16_put(record + 48, r->flags);
    le16_put(record + 50, 0);
    le64_put(record + 52, r->owner);
    le32_put(record + RECORD_CRC, record_crc(g, p, record));
}

/* Do the lengths agree with each other, and with the slot's class? */
static bool lengths_fit(const struct cache_place *p, const struct cache_record *r)
{
    uint32_t most = cache_class_slot_size(CACHE_CLASSES - 1);
    if (!r->stored_len || r->stored_len > most || r->plain_len > most || cache_class_of(r->stored_len) != p->class)
        return false;
    return r->flags & RECORD_ZSTD ? r->stored_len < r->plain_len : r->stored_len == r->plain_len;
}

bool cache_meta_record_decode(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *data,
                              struct cache_record *out)
{
    struct cache_record r = {
        .seq = le64_get(data + 32),
        .plain_len = le32_get(data + 40),
        .stored_len = le32_get(data + 44),
        .flags = le16_get(data + 48),
        .owner = le64_get(data + 52),
    };
    if (!lengths_fit(p, &r) || r.flags & ~RECORD_FLAGS || le16_get(data + 50))
        return false;
    if (le32_get(data + RECORD_CRC) != record_crc(g, p, data))
        return false;
    memcpy(r.digest.b, data, DIGEST_SIZE);
    if (digest_is_zero(&r.digest))
        return false;
    *out = r;
    return true;
}

bool cache_meta_blocks_hold(const uint8_t *record, uint32_t off, const uint8_t *data, uint32_t len)
{
    const uint8_t *crc = record + CACHE_META_RECORD_HEAD + off / CACHE_BLOCK * 4;
    for (uint32_t i = 0; i < len; i += CACHE_BLOCK, crc += 4)
        if (block_crc(data + i, len - i) != le32_get(crc))
            return false;
    return true;
}
