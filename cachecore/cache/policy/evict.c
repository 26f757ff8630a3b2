/* The names of the policies, and the construction of an eviction.
 *
 * Reads in quick succession of one chunk count once only if the policy uses counts (it has ghosts). The table of recent
 * keys must be small compared to the cache: otherwise real second reads would be lost.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cache/policy/evict_internal.h"

enum { RECENT_PART = 256 }; /* the table has at most this part of the capacity as entries */

static const struct {
    const char *name;
    const struct evict_ops *ops; /* initially */
} policies[EVICT_POLICIES] = {
    [EVICT_AUTO] = {"auto", &evict_lfu_firm},
    [EVICT_LRU] = {"lru", &evict_lru},
    [EVICT_S3FIFO] = {"s3fifo", &evict_s3fifo},
    [EVICT_STICKY] = {"sticky", &evict_sticky},
};

int evict_policy_parse(const char *text, enum evict_policy *out)
{
    for (unsigned i = 0; i < EVICT_POLICIES; i++)
        if (!strcmp(text, policies[i].name)) {
            *out = (enum evict_policy)i;
            return 0;
        }
    return error_set(-EINVAL, "eviction: '%s' is none of auto, lru, s3fifo, sticky", text);
}

const char *evict_policy_name(enum evict_policy policy)
{
    return policies[policy].name;
}

int evict_new(const struct evict_config *config, struct evict **out)
{
    struct evict *e = NULL;
    int rc = evict_new_ops(config, policies[config->policy].ops, &e);
    if (!rc && config->policy == EVICT_AUTO)
        rc = shadows_new(config->capacity, &e->shadows);
    if (rc) {
        evict_free(e);
        return error_set(rc, "cache: out of memory for the eviction");
    }
    if (e->ghost.sets) {
        e->recent_mask = RECENT_MAX - 1;
        while (e->recent_mask > config->capacity / RECENT_PART)
            e->recent_mask /= 2;
    }
    *out = e;
    return 0;
}

unsigned evict_followed(const struct evict *e)
{
    static const struct evict_ops *const numbered[] = {
        &evict_lru, &evict_s3fifo, &evict_sticky, &evict_lfu, &evict_lfu_firm, &evict_parts,
    };
    unsigned i = 0;
    while (numbered[i] != e->ops)
        i++;
    return i + 1;
}
