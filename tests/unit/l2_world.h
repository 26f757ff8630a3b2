/* A store behind shared cache proxies m0, m1, ..., each of them a fake, which a list names that is followed. */
#ifndef GRANARY_TESTS_UNIT_L2_WORLD_H
#define GRANARY_TESTS_UNIT_L2_WORLD_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "fake/store_fake.h"
#include "store/l2/l2_internal.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

enum { MANY = 500, KEYS = 600, LIMIT_MS = 60000 };

/* The proxies of all tests: m0 ... m499, each a fake that outlives its membership. */
struct world {
    struct store_fake *origin, *fakes[MANY];
    int64_t weight[MANY];        /* what it says of its weight, as a node does; -1: it leaves; 0: no node */
    _Atomic unsigned open[MANY]; /* stores of it that are open now */
    bool wants_lists;            /* nodes refuse what has no list of chunks, and others must not see one */
    char dir[SCRATCH_MAX], file[SCRATCH_MAX + 16];
    struct store_proxies *proxies;
    struct store *store;
};

/* A proxy's store, which counts its closing. */
struct counted {
    struct store base;
    struct world *w;
    unsigned i;
};

static inline int counted_get(struct store *s, const char *key, uint64_t off, uint64_t len,
                              struct request_context *context, store_sink *sink, void *arg)
{
    struct counted *c = (struct counted *)s;
    store_note_try(s, context);
    int64_t weight = c->w->weight[c->i];
    context->node_weight = weight > 0 ? weight : weight ? 0 : -1;
    if (c->w->wants_lists && weight && !context->header)
        return error_set(-EIO, "a node answers requests with lists only");
    assert_true(!c->w->wants_lists || weight || !context->header);
    int rc = store_get(store_fake_store(c->w->fakes[c->i]), key, off, len, sink, arg);
    context->not_here = rc == -ENOENT && weight;
    return rc;
}

static inline void counted_close(struct store *s)
{
    struct counted *c = (struct counted *)s;
    atomic_fetch_sub(&c->w->open[c->i], 1);
    free((char *)s->url);
    free(c);
}

static inline int open_counted(void *arg, const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_ops ops = {.get = counted_get, .close = counted_close};
    struct world *w = arg;
    struct counted *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_true(sscanf(url, "http://m%u:80/faces", &c->i) == 1 || sscanf(url, "http://10.0.0.%u:80/faces", &c->i) == 1);
    assert_true(c->i < MANY);
    c->base = (struct store){.ops = &ops, .url = strdup(url)};
    c->w = w;
    atomic_fetch_add(&w->open[c->i], 1);
    *out = &c->base;
    return 0;
}

static inline char *key_of(unsigned i, char key[64])
{
    snprintf(key, 64, "packs/%02x/%u", i & 255, i);
    return key;
}

/* Wait until the list has been read: n members, and failing or not. */
static inline void wait_for_list(struct world *w, size_t n, bool failing)
{
    uint64_t end = clock_now_ms() + LIMIT_MS;
    for (bool so = false; !so;) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports r;
        store_proxies_reports(w->proxies, &r);
        so = r.len == n && r.lists[0].len <= n && failing == (r.lists[0].failing_ms > 0);
        assert_true(so || clock_now_ms() < end);
        if (!so)
            usleep(1000);
    }
}

static inline void open_followed(struct world *w, const struct follow_config *config)
{
    assert_int_equal(follow_open(config, &w->proxies), 0);
    assert_int_equal(store_l2_open(store_fake_store(w->origin), w->proxies, &w->store), 0);
    assert_int_equal(store_proxies_start_thread(w->proxies), 0);
}

/* Fakes for n members, which have all keys, and so has the store. */
static inline void begin(struct world *w, unsigned n)
{
    char key[64];
    memset(w, 0, sizeof *w);
    scratch_make(w->dir);
    snprintf(w->file, sizeof w->file, "%s/members", w->dir);
    w->origin = store_fake_new();
    for (unsigned k = 0; k < KEYS; k++)
        store_fake_put(w->origin, key_of(k, key), "text", 4);
    for (unsigned i = 0; i < n; i++) {
        w->fakes[i] = store_fake_new();
        for (unsigned k = 0; k < KEYS; k++)
            store_fake_put(w->fakes[i], key_of(k, key), "text", 4);
    }
}

static inline void end(struct world *w)
{
    store_proxies_close(w->proxies);
    store_close(w->store);
    store_fake_free(w->origin);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(w->open[i], 0);
        if (w->fakes[i])
            store_fake_free(w->fakes[i]);
    }
    scratch_remove(w->dir);
}

static inline int get(struct world *w, unsigned k)
{
    char key[64];
    CLEANUP_BYTES got = BYTES_INIT(1000);
    int rc = store_get(w->store, key_of(k, key), 0, 4, store_append, &got);
    return rc ? rc : got.len == 4 && !memcmp(got.data, "text", 4) ? 0 : -EBADMSG;
}

#endif
