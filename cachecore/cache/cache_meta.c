/* See docs/format-cache.md for the byte tables.
 *
 * A record's CRC covers, beside the record, where it must stand: the directory's id, the slab's
 * epoch, slab and slot. So a record counts only in its own place of its own binding: rebinding a
 * slab to another class (epoch + 1) kills every old record at once without touching them, and what
 * an earlier life of the directory left behind never matches.
 */
#include "cache/cache_meta.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"

enum { RECORD_UNIT = 64, REGION_SHIFT = 9 /* a slab's records take slab size / 512 */, FIELDS_END = 40 };

static const uint8_t magic[8] = {'G', 'R', 'N', 'C', 'A', 'C', 'H', 'E'};

static uint64_t table_end(uint32_t slab_count)
{
    return CACHE_META_HEADER_SIZE + GR_ALIGN_UP((uint64_t)slab_count * CACHE_META_SLAB_SIZE, 4096);
}

uint64_t cache_geometry_data_size(const struct cache_geometry *g)
{
    return (uint64_t)g->slab_count * g->slab_size;
}

uint64_t cache_geometry_record_file_size(const struct cache_geometry *g)
{
    return table_end(g->slab_count) + (uint64_t)g->slab_count * (g->slab_size >> REGION_SHIFT);
}

int cache_geometry_plan(uint64_t budget, struct cache_geometry *out)
{
    if (budget < CACHE_BUDGET_MIN)
        return error_set(-EINVAL, "cache: a directory of %llu bytes is too small; give it at least 16 MiB",
                         (unsigned long long)budget);
    uint32_t slab = CACHE_SLAB_MIN;
    while (slab < CACHE_SLAB_MAX && budget / 256 >= slab)
        slab *= 2;
    /* 1/128 for the filesystem's own extent blocks: writing into reserved space splits extents, at
     * worst one a slot; 64 KiB for lock file, directory and rounding. */
    uint64_t room = budget - budget / 128 - (64 << 10);
    uint64_t count =
        (room - CACHE_META_HEADER_SIZE - 4096) / (slab + (slab >> REGION_SHIFT) + (uint64_t)CACHE_META_SLAB_SIZE);
    if (count > CACHE_SLABS_MAX)
        return error_set(-EINVAL, "cache: a directory of %llu bytes is too large; the most is 127 TiB",
                         (unsigned long long)budget);
    out->budget = budget;
    out->slab_size = slab;
    out->slab_count = (uint32_t)count;
    return 0;
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

uint32_t cache_class_blocks(unsigned class)
{
    uint32_t size = cache_class_slot_size(class);
    return size <= CACHE_BLOCK ? 1 : size / CACHE_BLOCK;
}

uint32_t cache_class_record_size(unsigned class)
{
    return GR_ALIGN_UP((uint32_t)CACHE_META_RECORD_HEAD + 4 * cache_class_blocks(class), (uint32_t)RECORD_UNIT);
}

uint32_t cache_class_slots(const struct cache_geometry *g, unsigned class)
{
    uint32_t by_data = g->slab_size / cache_class_slot_size(class);
    uint32_t by_records = (g->slab_size >> REGION_SHIFT) / cache_class_record_size(class);
    return GR_MIN(by_data, by_records);
}

uint64_t cache_place_data_offset(const struct cache_geometry *g, const struct cache_place *p)
{
    return (uint64_t)p->slab * g->slab_size + (uint64_t)p->slot * cache_class_slot_size(p->class);
}

uint64_t cache_place_record_offset(const struct cache_geometry *g, const struct cache_place *p)
{
    return table_end(g->slab_count) + (uint64_t)p->slab * (g->slab_size >> REGION_SHIFT) +
           (uint64_t)p->slot * cache_class_record_size(p->class);
}

uint64_t cache_slab_entry_offset(uint32_t slab)
{
    return CACHE_META_HEADER_SIZE + (uint64_t)slab * CACHE_META_SLAB_SIZE;
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
    le32_put(out + FIELDS_END, crc32c(out, FIELDS_END));
}

int cache_meta_header_decode(const uint8_t *data, size_t len, struct cache_geometry *out)
{
    if (len < CACHE_META_HEADER_SIZE || memcmp(data, magic, sizeof magic) != 0)
        return -EBADMSG;
    if (le32_get(data + FIELDS_END) != crc32c(data, FIELDS_END))
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

static uint32_t record_crc(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *record)
{
    uint8_t seed[20];
    le64_put(seed, g->id);
    le32_put(seed + 8, p->epoch);
    le32_put(seed + 12, p->slab);
    le32_put(seed + 16, p->slot);
    uint32_t reg = crc32c_raw(~0u, seed, sizeof seed);
    reg = crc32c_raw(reg, record, 44);
    return ~crc32c_raw(reg, record + CACHE_META_RECORD_HEAD,
                       cache_class_record_size(p->class) - CACHE_META_RECORD_HEAD);
}

void cache_meta_record_encode(const struct cache_geometry *g, const struct cache_place *p, const struct cache_record *r,
                              uint8_t out[CACHE_RECORD_MAX])
{
    memset(out, 0, cache_class_record_size(p->class));
    memcpy(out, r->digest.b, DIGEST_SIZE);
    le64_put(out + 32, r->seq);
    le32_put(out + 40, r->plain_len);
    uint32_t blocks = (r->plain_len + CACHE_BLOCK - 1) / CACHE_BLOCK;
    for (uint32_t i = 0; i < blocks; i++)
        le32_put(out + CACHE_META_RECORD_HEAD + 4 * i, r->crcs[i]);
    le32_put(out + 44, record_crc(g, p, out));
}

bool cache_meta_record_decode(const struct cache_geometry *g, const struct cache_place *p, const uint8_t *data,
                              struct cache_record *out)
{
    uint32_t plain_len = le32_get(data + 40);
    if (!plain_len || plain_len > cache_class_slot_size(p->class) || cache_class_of(plain_len) != p->class)
        return false;
    if (le32_get(data + 44) != record_crc(g, p, data))
        return false;
    memcpy(out->digest.b, data, DIGEST_SIZE);
    if (digest_is_zero(&out->digest))
        return false;
    out->seq = le64_get(data + 32);
    out->plain_len = plain_len;
    for (uint32_t i = 0; i < cache_class_blocks(p->class); i++)
        out->crcs[i] = le32_get(data + CACHE_META_RECORD_HEAD + 4 * i);
    return true;
}

uint32_t cache_block_crcs(const uint8_t *data, uint32_t len, uint32_t out[CACHE_BLOCKS_MAX])
{
    uint32_t n = 0;
    for (uint32_t off = 0; off < len; off += CACHE_BLOCK)
        out[n++] = crc32c(data + off, GR_MIN(len - off, (uint32_t)CACHE_BLOCK));
    return n;
}
