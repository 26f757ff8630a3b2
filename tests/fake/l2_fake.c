#include "fake/l2_fake.h"

#include <assert.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/l2/l2_internal.h"

struct offered {
    struct store *stores[STORE_L2_LISTS_MAX]; /* NULL: taken */
    size_t n;
};

static int take_offered(void *arg, const char *url, const struct store_options *options, struct store **out)
{
    struct offered *o = arg;
    for (size_t i = 0; i < o->n; i++)
        if (o->stores[i] && !strcmp(o->stores[i]->url, url)) {
            *out = steal_ptr(&o->stores[i]);
            return 0;
        }
    return error_set(-EINVAL, "no fake has the URL %s", url);
}

int l2_fake_open(struct store *origin, struct store *const *proxies, size_t n, struct store **out,
                 struct store_proxies **out_proxies)
{
    struct offered o = {.n = n};
    const char *urls[STORE_L2_LISTS_MAX];
    struct store_proxies *p;
    assert(n <= STORE_L2_LISTS_MAX);
    for (size_t i = 0; i < n; i++) {
        o.stores[i] = proxies[i];
        urls[i] = proxies[i]->url;
    }
    int rc = follow_open(&(struct follow_config){.lists = urls, .n = n, .open = take_offered, .open_arg = &o}, &p);
    for (size_t i = 0; i < n; i++)
        store_close(o.stores[i]);
    if (rc) {
        store_close(origin);
        return rc;
    }
    rc = store_l2_open(origin, p, out);
    if (out_proxies && !rc)
        *out_proxies = p;
    else
        store_proxies_close(p);
    return rc;
}
