/* Chunks that this node inherits from nodes that leave. A walk over the image's index, as far as it is cached: what no
 * reader of this node has come near is left to whoever reads it. Runs of one stripe are asked for together; a node has
 * all of them or answers none, so what fails together is asked for one by one. */
#include "image/warm/warm_internal.h"

#include <errno.h>

#include "base/cancel.h"
#include "base/error.h"
#include "repository/read/chunk_read.h"

enum { TAKE_MAX = 64 };

struct taking {
    struct image *img;
    struct store_proxies *proxies;
    struct store *leaving;
    struct chunk_stripe stripe; /* yes: it is inherited */
    size_t n;
    struct cache_piece pieces[TAKE_MAX]; /* of that stripe */
    uint64_t taken;
};

static bool is_inherited(struct taking *t, const struct chunk_ref *ref)
{
    char key[OBJECT_KEY_MAX];
    return store_proxies_inherits(t->proxies, object_key(ref->kind, &ref->object, key), ref->offset);
}

/* Only what would fail for every chunk is an error. */
static int take_singly(struct taking *t)
{
    for (size_t i = 0; i < t->n; i++) {
        int rc = cache_take(t->img->config.cache, &t->pieces[i], 1);
        if (rc && !error_of_one_thing(rc))
            return rc;
        t->taken += !rc;
    }
    return 0;
}

static int take_batch(struct taking *t)
{
    int rc = t->n ? cache_take(t->img->config.cache, t->pieces, t->n) : 0;
    if (!rc)
        t->taken += t->n;
    else if (error_of_one_thing(rc))
        rc = take_singly(t);
    t->n = 0;
    return rc;
}

/* Add a chunk, if it is inherited and not here. */
static int add(struct taking *t, const struct chunk_ref *ref)
{
    bool same = chunk_stripe_has(&t->stripe, ref);
    int rc = same && t->n < TAKE_MAX ? 0 : take_batch(t);
    if (!same)
        t->stripe.yes = is_inherited(t, ref);
    if (!rc && t->stripe.yes && !cache_has(t->img->config.cache, &ref->digest))
        t->pieces[t->n++] = (struct cache_piece){.ref = *ref, .store = t->leaving, .quota = image_quota(t->img)};
    return rc;
}

int warm_take(struct image *img, struct store_proxies *proxies, struct store *leaving, const volatile int *cancel,
              uint64_t *out_taken)
{
    CLEANUP_FREE struct taking *t = calloc(1, sizeof *t);
    struct image_cursor cursor;
    uint64_t count = manifest_chunk_count(&img->manifest), run = 0;
    int rc = t ? 0 : error_no_memory();
    if (rc)
        return rc;
    *t = (struct taking){.img = img, .proxies = proxies, .leaving = leaving};
    image_cursor_init(&cursor, img, NULL);
    for (uint64_t i = 0; !rc && i < count; i += run) {
        const struct chunk_ref *ref;
        rc = cancel_check(cancel);
        if (!rc)
            rc = image_cursor_at(&cursor, i, &ref, &run);
        if (!rc && ref && !chunk_is_delta(ref)) /* no node asks another one for a delta */
            rc = add(t, ref);
    }
    if (!rc)
        rc = take_batch(t);
    image_cursor_release(&cursor);
    *out_taken = t->taken;
    return rc;
}
