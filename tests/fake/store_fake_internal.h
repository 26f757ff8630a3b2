/* What the files of store_fake share. One mutex guards everything; it is never held while a sink, a visitor or a hook
 * runs. */
#ifndef GRANARY_TESTS_FAKE_STORE_FAKE_INTERNAL_H
#define GRANARY_TESTS_FAKE_STORE_FAKE_INTERNAL_H

#include "fake/store_fake.h"

#include <pthread.h>

#include "base/vec.h"

struct object {
    char *key;
    uint8_t *data;
    size_t len;
    int64_t mtime;
    uint64_t version;
};

struct fault {
    struct store_fake_fault spec;
    unsigned seen, hits;
};

struct store_fake {
    struct store store; /* first: store_ops get a pointer to it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VEC(struct object) objects;
    VEC(struct fault) faults;
    uint64_t next_version, random;
    int dead;
    bool conditional, held;
    enum store_fake_md5 md5;
    enum store_fake_op held_op;
    unsigned waiting, inside, peak;
    size_t piece;
    int64_t now;
    store_fake_hook *hook;
    void *hook_arg;
    uint64_t calls[FAKE_OPS + 1], bytes_got, bytes_put;
};

/* ---- contents: store_fake_objects.c ---- */

/* The object, or NULL; valid while the lock is held. */
struct object *fake_object_locked(struct store_fake *f, const char *key);
void fake_put_locked(struct store_fake *f, const char *key, const void *data, size_t len);
/* A copy of len bytes, for the caller to free. */
void *fake_copy(const void *data, size_t len);

/* ---- calls: store_fake_calls.c ---- */

/* What the faults have decided for one call. */
struct verdict {
    enum store_fake_kind kind;
    bool hit;
    int code;
    uint64_t bytes;
};

/* Every operation begins here: hook, counters, hold, faults. Returns the code to fail with at once. */
int fake_enter(struct store_fake *f, enum store_fake_op op, const char *key, struct verdict *v);
/* ... and ends here: a lost answer becomes a failure. */
int fake_leave(struct store_fake *f, enum store_fake_op op, const char *key, const struct verdict *v, int rc);
/* Fail with code as a fault says; 0 is no failure. */
int fake_fail(struct store_fake *f, int code, enum store_fake_op op, const char *key);

#endif
