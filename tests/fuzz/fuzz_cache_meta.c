/* The metadata of a cache directory: header, slab entries and records from any bytes. What is believed says again
 * exactly the bytes it came from, and whatever is written is believed. */
#include <string.h>

#include "cache/disk/cache_meta.h"
#include "fuzz/fuzz.h"

static const struct cache_geometry fixed = {
    .budget = 64 << 20, .id = 0x6772616e61727921, .slab_size = CACHE_SLAB_MIN, .slab_count = 15};

static void try_header(const uint8_t *data, size_t size)
{
    uint8_t bytes[CACHE_META_HEADER_SIZE] = {0}, again[CACHE_META_HEADER_SIZE];
    struct cache_geometry g;
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (cache_meta_header_decode(bytes, sizeof bytes, &g) == 0) {
        cache_meta_header_encode(&g, again);
        FUZZ_CHECK(memcmp(bytes, again, 16) == 0 && memcmp(bytes + 24, again + 24, 16) == 0);
        FUZZ_CHECK(cache_geometry_record_file_size(&g) > 0);
    }
}

static void try_slab(const uint8_t *data, size_t size, struct cache_place place)
{
    uint8_t bytes[CACHE_META_SLAB_SIZE] = {0}, again[CACHE_META_SLAB_SIZE];
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (!cache_meta_slab_decode(&fixed, bytes, &place))
        return;
    cache_meta_slab_encode(&fixed, &place, again);
    FUZZ_CHECK(memcmp(bytes, again, 5) == 0);
    FUZZ_CHECK(place.class < CACHE_CLASSES && place.epoch);
}

static void try_record(const uint8_t *data, size_t size, struct cache_place place)
{
    static const uint8_t stored[4 << 20];
    uint8_t bytes[CACHE_RECORD_MAX] = {0}, again[CACHE_RECORD_MAX];
    struct cache_record record = {0}, back;
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (cache_meta_record_decode(&fixed, &place, bytes, &record))
        FUZZ_CHECK(cache_class_of(record.stored_len) == place.class && record.plain_len >= record.stored_len);
    cache_meta_blocks_hold(bytes, 0, stored, cache_class_slot_size(place.class));
    memcpy(record.digest.b, bytes, DIGEST_SIZE);
    record.stored_len = cache_class_slot_size(place.class) - bytes[40] % (cache_class_slot_size(place.class) / 2);
    record.flags = bytes[48] % 8;
    record.plain_len = record.stored_len + (record.flags & RECORD_ZSTD && record.stored_len < sizeof stored);
    cache_meta_record_encode(&fixed, &place, &record, stored, again);
    bool plain_fits = !(record.flags & RECORD_ZSTD) || record.stored_len < sizeof stored;
    FUZZ_CHECK(cache_meta_record_decode(&fixed, &place, again, &back) ==
               (!digest_is_zero(&record.digest) && plain_fits));
    FUZZ_CHECK(cache_meta_blocks_hold(again, 0, stored, record.stored_len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    struct cache_place place = {
        .slab = data[1] % fixed.slab_count, .epoch = 1 + data[2], .class = data[3] % CACHE_CLASSES};
    place.slot = data[2] % cache_class_slots(&fixed, place.class);
    switch (data[0] % 3) {
    case 0:
        try_header(data + 4, size - 4);
        break;
    case 1:
        try_slab(data + 4, size - 4, place);
        break;
    default:
        try_record(data + 4, size - 4, place);
    }
    return 0;
}
