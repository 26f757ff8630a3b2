/* A server as one of the nodes that are each other's cache. */
#include "image/warm/warm_run.h"
#include "stack_internal.h"

bool stack_is_node(const struct stack *s)
{
    return s->config.node.address;
}

void stack_leave(struct stack *s)
{
    store_proxies_leave(s->proxies);
}

bool stack_is_leaving(const struct stack *s)
{
    return s->proxies && store_proxies_left(s->proxies);
}

unsigned stack_departures(const struct stack *s)
{
    return s->leaving ? store_proxies_departures(s->proxies) : 0;
}

int stack_take_over(struct stack *s, struct stack_export *e, const volatile int *cancel, uint64_t *out_taken)
{
    return warm_take(stack_export_image(e), s->proxies, s->leaving, cancel, out_taken);
}

/* Rounded down to four binary digits: caches that differ by less have equal weights, and a size that is a share of the
 * free space does not move keys at every start. */
unsigned stack_node_weight(struct stack *s)
{
    struct cache_dir_report dirs[CACHE_DIRS_MAX];
    uint64_t bytes = 0;
    for (size_t i = 0, n = cache_dir_reports(s->cache, dirs); i < n; i++)
        bytes += dirs[i].size;
    uint64_t gib = GR_MIN(bytes >> 30, (uint64_t)STORE_WEIGHT_MAX), step = 1;
    while (gib / step >= 16)
        step *= 2;
    return (unsigned)GR_MAX(gib / step * step, (uint64_t)1);
}

struct stack_peer_counts *stack_peer_counts(struct stack *s)
{
    return &s->peers;
}
