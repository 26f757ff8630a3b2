/* An object store in memory that implements store.h and can be told to misbehave. Thread-safe: any
 * thread may use the store, add faults and read counters at any time.
 *
 *     struct store_fake *f = store_fake_new();
 *     store_fake_put(f, "packs/ab/…", data, len);
 *     store_fake_add_fault(f, &(struct store_fake_fault){.op = FAKE_GET, .count = 2, .code = -EAGAIN});
 *     fetch_start(fetch, store_fake_store(f), …);
 *     assert_int_equal(store_fake_calls(f, FAKE_GET), 3);
 *     store_fake_free(f);
 */
#ifndef GRANARY_TESTS_FAKE_STORE_FAKE_H
#define GRANARY_TESTS_FAKE_STORE_FAKE_H

#include "store/store.h"

struct store_fake;

enum store_fake_op {
    FAKE_GET,
    FAKE_GET_SMALL,
    FAKE_PUT,
    FAKE_STAT,
    FAKE_LIST,
    FAKE_REMOVE,
    FAKE_PROBE,
    FAKE_OPS,
    FAKE_ANY = FAKE_OPS, /* in faults and counters: whatever operation */
};

enum store_fake_kind {
    FAKE_FAIL,  /* nothing happens, code is returned */
    FAKE_LOSE,  /* the operation is carried out, but code is returned: the answer was lost */
    FAKE_CUT,   /* get: `bytes` bytes are handed on, then code is returned (0: as if that were all) */
    FAKE_FLIP,  /* get, get_small: bit 0 of byte `bytes` of what is handed on is turned over */
    FAKE_DELAY, /* `bytes` milliseconds pass first */
};

/* A fault applies to the calls that match op and key; of those the first `skip` are let through,
 * then `count` (0: all) are hit, each with a chance of permille/1000 (0: always). The first fault
 * that hits a call decides; FAKE_DELAY lets later ones apply too. */
struct store_fake_fault {
    enum store_fake_op op;
    enum store_fake_kind kind;
    const char *key_prefix; /* NULL: any; a literal or outliving the fake */
    unsigned skip, count, permille;
    int code;
    uint64_t bytes;
};

struct store_fake *store_fake_new(void); /* NULL: out of memory */
/* The store interface. Closing it does nothing: the fake outlives wrappers that own their inner
 * store. */
struct store *store_fake_store(struct store_fake *f);
void store_fake_free(struct store_fake *f);
DEFINE_CLEANUP(store_fake, struct store_fake *, store_fake_free)

/* Misbehaviour. */
void store_fake_add_fault(struct store_fake *f, const struct store_fake_fault *fault);
void store_fake_clear_faults(struct store_fake *f);
void store_fake_seed(struct store_fake *f, uint64_t seed); /* of what permille draws from; default 1 */
/* Every call fails with code until told otherwise by code 0. */
void store_fake_set_dead(struct store_fake *f, int code);
/* false: conditions of puts are ignored and probe_conditional says so. Default true. */
void store_fake_set_conditional(struct store_fake *f, bool honoured);
/* What stat says of MD5s: nothing (the default), the truth, or what is none but looks so, as of encrypted objects. */
enum store_fake_md5 { FAKE_MD5_NONE, FAKE_MD5_TRUE, FAKE_MD5_OTHER };
void store_fake_set_md5(struct store_fake *f, enum store_fake_md5 how);
/* Gets hand on at most this many bytes at once (0: all at once, the default). */
void store_fake_set_piece(struct store_fake *f, size_t bytes);
/* While held, calls of op (FAKE_ANY: all) wait inside the store, after being counted. wait_held returns when n
 * calls wait: what a test uses instead of sleeping. */
void store_fake_hold(struct store_fake *f, enum store_fake_op op);
void store_fake_wait_held(struct store_fake *f, unsigned n);
void store_fake_release(struct store_fake *f);
/* Called before every operation, without a lock held: it may change the store (a rival), and several threads may be in
 * it at once. NULL: none. */
typedef void store_fake_hook(void *arg, struct store_fake *f, enum store_fake_op op, const char *key);
void store_fake_set_hook(struct store_fake *f, store_fake_hook *hook, void *arg);

/* The contents, directly: no faults, no counting. */
void store_fake_put(struct store_fake *f, const char *key, const void *data, size_t len);
bool store_fake_has(struct store_fake *f, const char *key);
/* Appends the object's bytes; false: absent. */
bool store_fake_get(struct store_fake *f, const char *key, struct bytes *out);
bool store_fake_remove(struct store_fake *f, const char *key);
/* Turn over bit 0 of one byte, cut the object to len bytes, or make it look older. False: absent or
 * too short. */
bool store_fake_flip(struct store_fake *f, const char *key, size_t offset);
bool store_fake_truncate(struct store_fake *f, const char *key, size_t len);
bool store_fake_set_mtime(struct store_fake *f, const char *key, int64_t mtime);
/* How many keys begin with prefix. */
size_t store_fake_count(struct store_fake *f, const char *prefix);
/* Clock of the store: the mtime of what is put from now on (0: the real time, the default). */
void store_fake_set_now(struct store_fake *f, int64_t now);

/* Counters since new or the last reset. */
uint64_t store_fake_calls(struct store_fake *f, enum store_fake_op op);
uint64_t store_fake_bytes_got(struct store_fake *f); /* handed on by get and get_small */
uint64_t store_fake_bytes_put(struct store_fake *f);
unsigned store_fake_peak(struct store_fake *f); /* most calls inside at once */
void store_fake_reset_counters(struct store_fake *f);

#endif
