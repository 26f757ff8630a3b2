/* The stores of exports. A store stays open when its last export is removed: fetches in flight use it, and the next
 * image may.
 *
 * Exports without keys share a store for each URL. An export with keys of its own has a store of its own: other keys
 * neither sign its requests nor share its breaker. They share the cache, whose chunks are found by their digests alone;
 * which digests an image has is in its manifest and index, so the keys must have read the manifest from the store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "stack_internal.h"

/* Stores are never closed before the stack, hence the limit. */
enum { STORES_MAX = 1000 };

/* Open a store, behind its proxies if there are any. */
static int open_store(const struct stack *s, const char *url, struct s3_keys *keys, struct store **out)
{
    struct store_options options = s->store;
    struct store *origin = NULL;
    options.keys = keys;
    int rc = store_open(url, &options, &origin);
    if (rc || !s->proxies) {
        *out = origin;
        return rc;
    }
    return store_l2_open(origin, s->proxies, out);
}

/* Find the store of a URL that an export may use; NULL: none. own: for an export with keys, thus one that such an
 * export has left. */
static struct stack_store *find_store_locked(struct stack *s, const char *url, bool own)
{
    for (size_t i = 0; i < s->stores.len; i++) {
        struct stack_store *at = &s->stores.items[i];
        if (!strcmp(at->url, url) && own == !!at->keys && !at->of)
            return at;
    }
    return NULL;
}

/* May another store be opened? */
static int check_store_locked(struct stack *s, const char *url)
{
    if (s->proxies && s->stores.len)
        return error_set(
            -EINVAL,
            "shared cache proxies serve one store, and the images are in two, or have keys of their own: %s and %s; "
            "serve each store's images by its own server",
            s->stores.items[0].url, url);
    if (s->stores.len == STORES_MAX)
        return error_set(-ENOSPC, "a server opens at most %d stores in its lifetime; start another server", STORES_MAX);
    return 0;
}

/* Have the export use this store. Its keys, if any, become the store's. */
static int enter_store_locked(struct stack_store *at, struct stack_export *e)
{
    char *of = e->keys ? strdup(e->name) : NULL;
    int rc = e->keys && !of ? error_no_memory() : 0;
    if (!rc && e->keys && at->keys != e->keys)
        rc = s3_keys_replace(at->keys, e->keys);
    if (rc) {
        free(of);
        return rc;
    }
    if (e->keys && at->keys != e->keys) {
        s3_keys_unref(e->keys);
        e->keys = s3_keys_ref(at->keys);
    }
    at->of = of;
    e->store = at->store;
    return 0;
}

/* Keep the fresh store and take it over, unless another thread was faster. */
static int keep_store(struct stack *s, struct stack_store *fresh, struct stack_export *e)
{
    SCOPED_LOCK(&s->lock);
    struct stack_store *at = find_store_locked(s, fresh->url, e->keys);
    if (at)
        return enter_store_locked(at, e);
    int rc = check_store_locked(s, fresh->url);
    if (rc)
        return rc;
    if (vec_push(&s->stores, *fresh))
        return -ENOMEM;
    *fresh = (struct stack_store){0};
    return enter_store_locked(&s->stores.items[s->stores.len - 1], e);
}

/* Enter a store that is there. 1: none is, but one may be opened. */
static int enter_known_store(struct stack *s, struct stack_export *e)
{
    SCOPED_LOCK(&s->lock);
    struct stack_store *at = find_store_locked(s, e->ref.store, e->keys);
    int rc = at ? enter_store_locked(at, e) : check_store_locked(s, e->ref.store);
    return rc || at ? rc : 1;
}

/* Opening may read credentials, so it happens outside the lock. */
int stack_export_add_store(struct stack *s, struct stack_export *e)
{
    int rc = enter_known_store(s, e);
    if (rc <= 0)
        return rc;
    struct stack_store fresh = {.url = strdup(e->ref.store), .keys = e->keys ? s3_keys_ref(e->keys) : NULL};
    rc = fresh.url ? open_store(s, fresh.url, fresh.keys, &fresh.store) : error_no_memory();
    if (!rc)
        rc = keep_store(s, &fresh, e);
    store_close(fresh.store);
    s3_keys_unref(fresh.keys);
    free(fresh.url);
    return rc;
}

void stack_export_leave_store(struct stack_export *e)
{
    if (!e->keys)
        return;
    s3_keys_wipe(e->keys);
    SCOPED_LOCK(&e->stack->lock);
    for (size_t i = 0; i < e->stack->stores.len; i++) {
        struct stack_store *at = &e->stack->stores.items[i];
        if (at->store != e->store)
            continue;
        free(at->of);
        at->of = NULL;
    }
}

struct store *stack_peer_store(struct stack *s)
{
    SCOPED_LOCK(&s->lock);
    const struct stack_store *found = NULL;
    for (size_t i = 0; s->proxies && i < s->stores.len && (!found || found->keys); i++) {
        const struct stack_store *at = &s->stores.items[i];
        if (!at->keys || (!found && at->of)) /* keys of an export that is gone open nothing */
            found = at;
    }
    return found ? found->store : NULL;
}

int stack_open_store(const struct stack *s, const struct stack_export *e, uint64_t timeout_ms,
                     const volatile int *cancel, struct store **out)
{
    struct store_options options = s->store;
    options.timeout_ms = timeout_ms;
    options.cancel = cancel;
    options.keys = e->keys;
    return store_open(e->ref.store, &options, out);
}
