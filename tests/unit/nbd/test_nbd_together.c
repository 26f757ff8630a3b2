/* Small reads of one client that the NBD server does together: in one turn at the disk, and over a store that says
 * nothing, what is cached is answered all the same. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>

#include "cache/cache_internal.h"
#include "store/store.h"
#include "unit/hung_read.h"
#include "unit/nbd_world.h"

enum { READ_LEN = 4096 };

static uint32_t read_len = READ_LEN;

static void expect_bytes(int fd, uint64_t off)
{
    uint8_t got[CHUNK], want[CHUNK];
    receive(fd, got, read_len);
    image_fake_bytes(&w.img, off, want, read_len);
    must(!memcmp(got, want, read_len), "wrong byte in the read at %llu", (unsigned long long)off);
}

static void end(int fd)
{
    close(fd);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    world_release();
}

/* ---- many reads ---- */

enum { READS = CHUNKS + CHUNKS / 2 };

/* Send all requests at once, each for the middle of a chunk, in turns of the whole image. Receive the replies in any
 * order; returns how many failed. */
static unsigned read_many(int fd)
{
    struct nbd_wire_request asked[READS];
    unsigned failed = 0;
    for (uint64_t k = 0; k < READS; k++)
        asked[k] = wire_request(NBD_WIRE_READ, k, k % CHUNKS * CHUNK + 8 * READ_LEN, read_len);
    transmit(fd, asked, sizeof asked);
    for (unsigned i = 0; i < READS; i++) {
        struct nbd_wire_simple_reply r;
        receive(fd, &r, sizeof r);
        must(be32toh(r.magic) == NBD_WIRE_SIMPLE_MAGIC && r.cookie < READS && asked[r.cookie].cookie == r.cookie,
             "no reply");
        asked[r.cookie].cookie = READS; /* answered */
        failed += r.error != 0;
        if (!r.error)
            expect_bytes(fd, be64toh(asked[r.cookie].offset));
    }
    return failed;
}

static void test_nbd_together__one_submission_to_the_disk_serves_many(void **state)
{
    world_init(at_most(THREADS));
    cache_all();
    int fd = attach();
    unsigned before = hung_submissions;
    assert_int_equal(read_many(fd), 0);
    unsigned least = counter_get(&stack_cache(w.serving.stack)->reader_stats.rings) > 0; /* without io_uring, none */
    assert_in_range(hung_submissions - before, least, READS / 2);
    read_len = CHUNK / 2 + 4096; /* from the middle of a chunk into the next one */
    before = hung_submissions;
    assert_int_equal(read_many(fd), 0);
    assert_in_range(hung_submissions - before, least, READS / 2);
    read_len = READ_LEN;
    end(fd);
}

/* Half of them are cached. The others are fetched, and once the packs are gone, fail alone. */
static void test_nbd_together__reads_that_are_not_cached_leave_the_others_alone(void **state)
{
    char path[SCRATCH_MAX + 16];
    world_init(at_most(THREADS));
    cache_range(0, CHUNKS / 2 * CHUNK);
    snprintf(path, sizeof path, "%s/packs", w.dir);
    scratch_remove(path);
    int fd = attach();
    assert_int_equal(read_many(fd), CHUNKS / 2); /* the second turn does not reach those that are missing */
    end(fd);
    world_init(at_most(THREADS));
    cache_range(0, CHUNKS / 2 * CHUNK);
    fd = attach();
    assert_int_equal(read_many(fd), 0);
    end(fd);
}

/* ---- over a store that says nothing ---- */

static atomic_bool silent;

int __real_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int __wrap_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);

/* Chunks do not come while the store is silent. */
int __wrap_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    while (silent)
        sleep_ms(1);
    return __real_store_get(s, key, off, len, sink, arg);
}

enum { CACHED = CHUNKS / 2, MISSES = 8, KINDS = 3, HITS = 6, HOLE = 3 };

static bool is_hole(uint64_t chunk)
{
    return chunk == HOLE;
}

/* The place of a read that needs nothing from the store: within a chunk, over its end, in a hole. */
static uint64_t place_of_hit(uint64_t k)
{
    static const uint64_t places[KINDS] = {CHUNK + READ_LEN, 2 * CHUNK - READ_LEN / 2, HOLE * CHUNK + READ_LEN};
    return places[k % KINDS];
}

/* Send reads of the first `misses` chunks that are not cached, and then the hits, all at once. */
static void ask_all(int fd, uint64_t off[MISSES + HITS])
{
    struct nbd_wire_request asked[MISSES + HITS];
    for (uint64_t k = 0; k < MISSES + HITS; k++) {
        off[k] = k < MISSES ? (CACHED + 2 * k) * CHUNK : place_of_hit(k - MISSES);
        asked[k] = wire_request(NBD_WIRE_READ, k, off[k], read_len);
    }
    transmit(fd, asked, sizeof asked);
}

/* Receive n replies, in any order, to requests from `first` on. */
static void expect_replies(int fd, const uint64_t *off, unsigned n, uint64_t first)
{
    for (unsigned i = 0; i < n; i++) {
        struct nbd_wire_simple_reply r;
        receive(fd, &r, sizeof r);
        must(be32toh(r.magic) == NBD_WIRE_SIMPLE_MAGIC && !r.error && r.cookie >= first && r.cookie < MISSES + HITS,
             "no reply");
        expect_bytes(fd, off[r.cookie]);
    }
}

/* They are taken together with reads of more missing chunks than threads may wait for the store, which come first. */
static void test_nbd_together__what_needs_no_store_is_answered(void **state)
{
    uint64_t off[MISSES + HITS];
    w.img.hole = is_hole;
    world_init(at_most(THREADS));
    cache_range(0, (uint64_t)CACHED * CHUNK);
    int fd = attach();
    ask(fd, NBD_WIRE_READ, 0, SIZE - READ_LEN, READ_LEN); /* now something of the leaf was missed */
    must(!receive_error(fd, 0), "an error");
    expect_bytes(fd, SIZE - READ_LEN);
    silent = true;
    ask_all(fd, off);
    expect_replies(fd, off, HITS, MISSES);
    silent = false;
    expect_replies(fd, off, MISSES, 0);
    end(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_together__one_submission_to_the_disk_serves_many),
        cmocka_unit_test(test_nbd_together__reads_that_are_not_cached_leave_the_others_alone),
        cmocka_unit_test(test_nbd_together__what_needs_no_store_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
