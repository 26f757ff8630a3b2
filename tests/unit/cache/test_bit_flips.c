/* One bit is turned over somewhere between a store and a reader, thousands of times: in the store, on the wire, in a
 * shared cache proxy, in the files of the SSD cache and what it knows of them in memory, in the memory tier, in the
 * index nodes that are held decoded. Every read gives the right bytes or an error, never wrong bytes; what was kept
 * while it was wrong is nowhere: when the bit is back, or was healed, all of it reads right. The table at the end says
 * how often a flip was healed, was an error, or met bytes that nobody used.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "cache/cache_internal.h"
#include "cache/index/space_internal.h"
#include "fake/image_fake.h"
#include "fake/l2_fake.h"
#include "image/image_internal.h"
#include "store/store.h"
#include "unit/counters.h"
#include "unit/counts.h"
#include "unit/scratch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TRIALS = 1000 };
#else
enum { TRIALS = 10000 };
#endif

enum {
    CHUNK = 64 << 10,
    PROXIES = 2,
    LEAF_CHUNKS = 6, /* data in each of two leaves; the rest are holes */
    DATA_CHUNKS = 2 * LEAF_CHUNKS,
    CACHE_SIZE = 16 << 20,
    OBJECT_MAX = 1 << 20,
    WIRE_FLIPS_MAX = 3,
};

/* ---- a wire between the reader and the store ---- */

/* While armed, one bit is flipped for each countdown, after that many bits of all that passes. */
struct wire {
    struct store base;
    struct store *inner;
    pthread_mutex_t lock;
    uint64_t countdown[WIRE_FLIPS_MAX];
    unsigned armed;
};

struct passing {
    struct wire *wire;
    store_sink *sink;
    void *arg;
};

static void turn(void *bytes, uint64_t bit)
{
    ((uint8_t *)bytes)[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void spoil(struct wire *w, uint8_t *bytes, size_t len)
{
    SCOPED_LOCK(&w->lock);
    for (unsigned i = 0; i < w->armed; i++) {
        if (w->countdown[i] / 8 < len) {
            turn(bytes, w->countdown[i]);
            w->countdown[i--] = w->countdown[--w->armed];
        } else {
            w->countdown[i] -= 8 * (uint64_t)len;
        }
    }
}

static int pass(void *arg, const void *data, size_t len)
{
    struct passing *p = arg;
    CLEANUP_FREE uint8_t *copy = malloc(len);
    assert_non_null(copy);
    memcpy(copy, data, len);
    spoil(p->wire, copy, len);
    return p->sink(p->arg, copy, len);
}

static int wire_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct wire *w = (struct wire *)s;
    struct passing p = {.wire = w, .sink = sink, .arg = arg};
    return store_get_until(w->inner, key, off, len, context, pass, &p);
}

static void wire_close(struct store *s)
{
}

/* ---- the world ---- */

struct world {
    struct store_fake *fake, *proxy_fakes[PROXIES];
    struct image_fake img;
    VEC(char *) keys;              /* of its packs and index nodes */
    uint64_t numbers[DATA_CHUNKS]; /* of the chunks with data */
    uint8_t *expected[DATA_CHUNKS];
    struct wire wire;
    char dir[SCRATCH_MAX];
    struct cache_config config;
    bool proxies; /* between the reader and the wire */
    uint64_t seed;

    struct store *store; /* open, like the next two */
    struct cache *cache;
    struct image *image;
};

static bool mostly_holes(uint64_t chunk)
{
    return chunk % INDEX_FANOUT >= LEAF_CHUNKS;
}

static uint64_t draw(struct world *w, uint64_t below)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed % below;
}

static void object_bytes(struct store_fake *fake, const char *key, struct bytes *out)
{
    bytes_clear(out);
    assert_true(store_fake_get(fake, key, out));
}

/* A key, which is copied to the proxies. */
static int take_key(void *arg, const struct store_item *item)
{
    struct world *w = arg;
    CLEANUP_BYTES object = BYTES_INIT(OBJECT_MAX);
    object_bytes(w->fake, item->key, &object);
    for (unsigned i = 0; i < PROXIES; i++)
        store_fake_put(w->proxy_fakes[i], item->key, object.data, object.len);
    char *key = strdup(item->key);
    return vec_push(&w->keys, key);
}

static void world_init(struct world *w, uint64_t seed)
{
    static const struct store_ops wire_ops = {.get = wire_get, .close = wire_close};
    *w = (struct world){.fake = store_fake_new(), .seed = seed};
    w->img = (struct image_fake){.size = INDEX_FANOUT * (uint64_t)CHUNK + LEAF_CHUNKS * CHUNK,
                                 .chunk_size = CHUNK,
                                 .pack_chunks = 4,
                                 .hole = mostly_holes};
    image_fake_put(&w->img, w->fake, NULL);
    for (unsigned i = 0; i < PROXIES; i++)
        w->proxy_fakes[i] = store_fake_new();
    struct store *all = store_fake_store(w->fake);
    assert_int_equal(store_list(all, "packs/", take_key, w), 0);
    assert_int_equal(store_list(all, "indexes/", take_key, w), 0);
    for (unsigned i = 0; i < DATA_CHUNKS; i++) {
        w->numbers[i] = i / LEAF_CHUNKS * INDEX_FANOUT + i % LEAF_CHUNKS;
        w->expected[i] = malloc(CHUNK);
        image_fake_bytes(&w->img, w->numbers[i] * CHUNK, w->expected[i], CHUNK);
    }
    w->wire = (struct wire){.base = {.ops = &wire_ops, .url = "fake://wire"}, .inner = store_fake_store(w->fake)};
    pthread_mutex_init(&w->wire.lock, NULL);
    w->config.fetch.workers = 2;
    w->config.disk_timeout_ms = 60000; /* a machine that is busy for seconds is no disk that hangs */
    scratch_make(w->dir);
}

static void keep_on_disk(struct world *w)
{
    w->config.dirs[0].path = w->dir;
    w->config.dirs[0].size = CACHE_SIZE;
    w->config.dir_count = 1;
}

static void open_store(struct world *w)
{
    w->store = &w->wire.base;
    struct store *proxies[PROXIES];
    static const char *const urls[PROXIES] = {"fake://one", "fake://two"};
    for (unsigned i = 0; i < PROXIES; i++) {
        proxies[i] = store_fake_store(w->proxy_fakes[i]);
        proxies[i]->url = urls[i];
    }
    if (w->proxies)
        assert_int_equal(l2_fake_open(&w->wire.base, proxies, PROXIES, &w->store, NULL), 0);
}

static void open_image(struct world *w)
{
    const struct image_config config = {.cache = w->cache, .store = w->store, .manifest = &w->img.manifest};
    assert_int_equal(image_open(&config, &w->img.digest, &w->image), 0);
}

static void world_open(struct world *w)
{
    open_store(w);
    assert_int_equal(cache_open(&w->config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    open_image(w);
}

static void world_close(struct world *w)
{
    image_close(w->image);
    cache_close(w->cache);
    store_close(w->store);
}

static void world_release(struct world *w)
{
    scratch_remove(w->dir);
    for (unsigned i = 0; i < DATA_CHUNKS; i++)
        free(w->expected[i]);
    for (unsigned i = 0; i < PROXIES; i++)
        store_fake_free(w->proxy_fakes[i]);
    for (size_t i = 0; i < w->keys.len; i++)
        free(w->keys.items[i]);
    vec_release(&w->keys);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    pthread_mutex_destroy(&w->wire.lock);
}

/* ---- trials ---- */

struct place {
    const char *name;
    unsigned share; /* of 10,000 */
    void (*trials)(struct world *w, struct place *p, unsigned n);
    unsigned healed, errors, unused;
};

/* Everything once, or a part of each chunk. Whether nothing failed; no byte is wrong. */
static bool read_all(struct world *w, bool parts)
{
    static uint8_t got[CHUNK];
    bool good = true;
    for (unsigned i = 0; i < DATA_CHUNKS; i++) {
        uint32_t off = parts ? (uint32_t)draw(w, CHUNK) : 0;
        uint32_t len = parts ? (uint32_t)draw(w, CHUNK - off) + 1 : CHUNK;
        int rc = image_read(w->image, got, w->numbers[i] * CHUNK + off, len);
        if (!rc && memcmp(got, w->expected[i] + off, len) != 0)
            fail_msg("WRONG BYTES in chunk %u", i);
        if (rc && rc != -EBADMSG && rc != -ENOENT && rc != -EIO)
            fail_msg("chunk %u: %d: %s", i, rc, error_text());
        good = good && !rc;
    }
    return good;
}

static uint64_t counted(struct world *w, const char *name)
{
    return counter_value(cache_counters, w->cache, name);
}

/* How often something was noticed: of a cache that has everything, every get is a sign. */
static uint64_t signs(struct world *w)
{
    uint64_t gets = w->config.dir_count || w->config.memory ? counted(w, "granary_fetch_requests_total") : 0;
    return gets + counted(w, "granary_cache_crc_errors_total") + counted(w, "granary_fetch_verify_failures_total");
}

/* Read what a bit is wrong in. Whether nothing failed. */
static bool try_reading(struct world *w, struct place *p)
{
    uint64_t before = signs(w);
    bool good = read_all(w, draw(w, 4) == 0);
    if (!good)
        p->errors++;
    else if (signs(w) != before)
        p->healed++;
    else
        p->unused++;
    return good;
}

static void expect_all(struct world *w)
{
    if (!read_all(w, false))
        fail_msg("not right again: %s", error_text());
}

/* Everything in the cache. */
static void warm(struct world *w)
{
    if (image_prefetch(w->image, 0, w->img.size))
        fail_msg("%s", error_text());
    counter_wait_zero(cache_counters, w->cache, "granary_fetch_in_flight");
}

static void turn_in_object(struct store_fake *fake, const char *key, uint64_t random)
{
    CLEANUP_BYTES object = BYTES_INIT(OBJECT_MAX);
    object_bytes(fake, key, &object);
    turn(object.data, random % (8 * object.len));
    store_fake_put(fake, key, object.data, object.len);
}

static void in_store(struct world *w, struct place *p, unsigned n)
{
    while (n--) {
        const char *key = w->keys.items[draw(w, w->keys.len)];
        uint64_t random = draw(w, UINT64_MAX);
        turn_in_object(w->fake, key, random);
        world_open(w);
        try_reading(w, p);
        turn_in_object(w->fake, key, random);
        expect_all(w);
        world_close(w);
    }
}

/* One flip is healed by asking once more; the second get may meet another. */
static void on_wire(struct world *w, struct place *p, unsigned n)
{
    world_open(w);
    expect_all(w);
    world_close(w);
    uint64_t passed = store_fake_bytes_got(w->fake);
    while (n--) {
        unsigned flips = n % 2 ? 1 : 1 + (unsigned)draw(w, WIRE_FLIPS_MAX);
        world_open(w);
        for (unsigned i = 0; i < flips; i++)
            w->wire.countdown[i] = draw(w, 8 * passed);
        w->wire.armed = flips;
        assert_true(try_reading(w, p) || flips > 1);
        w->wire.armed = 0;
        expect_all(w);
        world_close(w);
    }
}

static void in_proxy(struct world *w, struct place *p, unsigned n)
{
    w->proxies = true;
    while (n--) {
        struct store_fake *fake = w->proxy_fakes[draw(w, PROXIES)];
        const char *key = w->keys.items[draw(w, w->keys.len)];
        uint64_t random = draw(w, UINT64_MAX);
        turn_in_object(fake, key, random);
        world_open(w);
        assert_true(try_reading(w, p));
        world_close(w);
        turn_in_object(fake, key, random);
    }
}

/* The slot of a chunk, or of an index node. */
static struct space_slot slot_of(struct world *w, const struct digest *digest)
{
    struct space_slot slot;
    SCOPED_LOCK(&w->cache->lock);
    uint32_t id = space_find(&w->cache->space, digest);
    assert_int_not_equal(id, SPACE_NONE);
    space_pin(&w->cache->space, id, &slot);
    space_unpin(slot.pins);
    return slot;
}

static const struct digest *any_digest(struct world *w)
{
    uint64_t i = draw(w, DATA_CHUNKS + 1);
    return i < DATA_CHUNKS ? &w->img.refs[w->numbers[i]].digest : &w->img.manifest.index_root.digest;
}

static void turn_in_file(struct world *w, const char *name, uint64_t off, uint64_t bit)
{
    char path[SCRATCH_MAX + 16];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(io_pread_full(fd, &byte, 1, off), 1);
    turn(&byte, bit);
    assert_int_equal(io_pwrite_full(fd, &byte, 1, off), 0);
    close(fd);
}

static void in_cached_data(struct world *w, struct place *p, unsigned n)
{
    keep_on_disk(w);
    world_open(w);
    while (n--) {
        warm(w);
        struct space_slot slot = slot_of(w, any_digest(w));
        uint64_t off = cache_place_data_offset(&w->cache->dirs[0]->geometry, &slot.place);
        turn_in_file(w, "data", off + draw(w, slot.stored_len), draw(w, 8));
        assert_true(try_reading(w, p));
    }
    world_close(w);
}

/* Of a chunk, or of one slab in the table, or in the header; the last two count at the next start. */
static void in_records(struct world *w, struct place *p, unsigned n)
{
    keep_on_disk(w);
    world_open(w);
    while (n--) {
        warm(w);
        const struct cache_geometry *g = &w->cache->dirs[0]->geometry;
        struct space_slot slot = slot_of(w, any_digest(w));
        uint64_t off = cache_place_record_offset(g, &slot.place) + draw(w, 128), kind = draw(w, 8);
        if (kind == 0)
            off = draw(w, 64);
        if (kind == 1)
            off = cache_slab_entry_offset(g, slot.place.slab) + draw(w, 16);
        turn_in_file(w, "records", off, draw(w, 8));
        if (kind <= 2) {
            world_close(w);
            world_open(w);
        }
        assert_true(try_reading(w, p));
    }
    world_close(w);
}

static void in_memory_tier(struct world *w, struct place *p, unsigned n)
{
    w->config.memory = 16 << 20;
    world_open(w);
    while (n--) {
        warm(w);
        const struct digest *digest = &w->img.refs[w->numbers[draw(w, DATA_CHUNKS)]].digest;
        uint8_t *bytes = memory_tier_peek(w->cache->memory_tier, digest);
        assert_non_null(bytes);
        turn(bytes, draw(w, 8 * CHUNK));
        assert_true(try_reading(w, p));
    }
    world_close(w);
}

/* What the cache takes a slot for. The half of it that does not choose the slot's chain in the table, where it would
 * be lost; each bit of a chunk once, since slots that are lost this way must not become equal. */
static void in_cache_index(struct world *w, struct place *p, unsigned n)
{
    unsigned turned[DATA_CHUNKS] = {0};
    keep_on_disk(w);
    world_open(w);
    while (n--) {
        unsigned chunk = n % DATA_CHUNKS;
        warm(w);
        {
            SCOPED_LOCK(&w->cache->lock);
            struct space *space = &w->cache->space;
            uint32_t id = space_find(space, &w->img.refs[w->numbers[chunk]].digest);
            assert_int_not_equal(id, SPACE_NONE);
            struct slot *slot = &space_slab_of(space, id)->slots[id & SPACE_SLOT_MASK];
            turn(&slot->key.word[1], turned[chunk]++ % 64);
        }
        assert_true(try_reading(w, p));
    }
    world_close(w);
}

/* The root, or a leaf. Both are held while the reference is. */
static struct node *node_in_memory(struct world *w, bool leaf, unsigned number)
{
    struct node *root, *node;
    assert_int_equal(
        node_cache_get(w->image->nodes, &w->img.manifest.index_root, (struct node_place){.level = 1}, &root), 0);
    if (!leaf)
        return root;
    const struct index_child *child = &node_index(root)->children[number];
    assert_int_equal(node_cache_get(w->image->nodes, child, (struct node_place){.number = number}, &node), 0);
    node_unref(root);
    return node;
}

/* A bit of what a decoded node says of one chunk, or one child, as the store said it. */
static void turn_in_node(struct node *node, unsigned entry, uint64_t random)
{
    const struct index_node *index = node_index(node);
    if (index) {
        turn(&index->children[entry], random % (8 * sizeof(struct index_child)));
        return;
    }
    struct chunk_ref *ref = (struct chunk_ref *)node_chunk_head(node, entry); /* but for its base */
    struct {
        void *at;
        size_t len;
    } fields[] = {{&ref->digest, sizeof ref->digest},
                  {&ref->object, sizeof ref->object},
                  {&ref->flags, sizeof ref->flags},
                  {&ref->offset, sizeof ref->offset},
                  {&ref->stored_len, 4},
                  {&ref->stored_crc, 4},
                  {&ref->plain_len, 4}};
    size_t field = random % GR_ARRAY_SIZE(fields);
    turn(fields[field].at, random / GR_ARRAY_SIZE(fields) % (8 * fields[field].len));
}

static void in_nodes(struct world *w, struct place *p, unsigned n)
{
    world_open(w);
    while (n--) {
        if (w->config.dir_count)
            warm(w);
        bool leaf = draw(w, 4) != 0;
        unsigned number = (unsigned)draw(w, 2);
        struct node *node = node_in_memory(w, leaf, number);
        unsigned entry = leaf ? (unsigned)draw(w, LEAF_CHUNKS) : number;
        uint64_t random = draw(w, UINT64_MAX);
        turn_in_node(node, entry, random);
        try_reading(w, p);
        turn_in_node(node, entry, random);
        node_unref(node);
        expect_all(w);
    }
    world_close(w);
}

static void in_nodes_of_cached_chunks(struct world *w, struct place *p, unsigned n)
{
    keep_on_disk(w);
    in_nodes(w, p, n);
}

static void say_nothing(enum log_level level, const char *line)
{
}

static void test_bit_flips__no_byte_is_ever_wrong(void **state)
{
    struct place places[] = {
        {.name = "an object of the store", .share = 2000, .trials = in_store},
        {.name = "the wire, once to three times", .share = 2000, .trials = on_wire},
        {.name = "an object of a shared cache proxy", .share = 1500, .trials = in_proxy},
        {.name = "the SSD cache: data", .share = 1500, .trials = in_cached_data},
        {.name = "the SSD cache: records, slab table, header", .share = 1000, .trials = in_records},
        {.name = "the SSD cache: its index in memory", .share = 400, .trials = in_cache_index},
        {.name = "the memory tier", .share = 1000, .trials = in_memory_tier},
        {.name = "index nodes in memory, nothing cached", .share = 300, .trials = in_nodes},
        {.name = "index nodes in memory, all chunks cached", .share = 300, .trials = in_nodes_of_cached_chunks},
    };
    unsigned done = 0;
    log_to(say_nothing, LOG_LEVEL_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-44s %7s %7s %7s %7s\n", "a bit flipped in", "trials", "healed", "errors", "unused");
    for (size_t i = 0; i < GR_ARRAY_SIZE(places); i++) {
        struct place *p = &places[i];
        struct world w;
        world_init(&w, 0x9E3779B97F4A7C15u + i);
        unsigned n = (unsigned)((uint64_t)p->share * full_or(TRIALS, 1000) / 10000);
        p->trials(&w, p, n);
        world_release(&w);
        done += n;
        printf("%-44s %7u %7u %7u %7u\n", p->name, n, p->healed, p->errors, p->unused);
        assert_int_equal(p->healed + p->errors + p->unused, n);
        assert_true(p->healed + p->errors >= n / 4); /* or the flips miss */
    }
    printf("%u trials, no wrong byte\n", done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bit_flips__no_byte_is_ever_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
