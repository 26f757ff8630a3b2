/* A server is as healthy as its worst part. Only a store can make it failing: without a cache directory or a shared
 * cache proxy it still serves every read, at a higher cost. Stores are judged first, so among parts that are equally
 * bad the reason names a store. */
#include "server/server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *server_health_word(enum server_health health)
{
    static const char *const words[] = {"healthy", "degraded", "failing"};
    return words[health];
}

/* How many different objects must be refused before the store counts as failing. */
static unsigned refusals_failing(int code)
{
    return code == -ENOKEY ? 1 : code == -EACCES ? SERVER_FORBIDDEN_FAILING : SERVER_REFUSALS_FAILING;
}

/* The state tells more than the health: "slow" and "failing" are both degraded, "stuck" and "silent" both failing. */
enum server_health server_health_of_store(const struct store_health *store, struct server_store_state *out)
{
    bool slow = store->read_waits_ms >= SERVER_READ_SLOW_MS, stuck = store->read_waits_ms >= SERVER_READ_STUCK_MS;
    bool refuses_all = store->refusals >= refusals_failing(store->refusal_code) && store->refused_ms < SERVER_OLD_MS;
    bool refuses = !store->silent && (refuses_all || (store->refusals && !store->failures));
    *out = (struct server_store_state){.word = store->silent     ? "silent"
                                               : stuck           ? "stuck"
                                               : refuses         ? "refusing"
                                               : store->failures ? "failing"
                                               : slow            ? "slow"
                                                                 : "answering",
                                       .refuses = refuses,
                                       .for_ms = refuses ? store->refusing_ms : store->failing_ms,
                                       .error = refuses ? store->refusal : store->last};
    if ((store->silent && store->failed_ms < SERVER_OLD_MS) || stuck || refuses_all)
        return SERVER_FAILING;
    return store->failures || store->refusals || slow ? SERVER_DEGRADED : SERVER_HEALTHY;
}

enum server_health server_health_of_dir(const struct cache_dir_report *dir)
{
    return dir->deleted || strcmp(dir->reading, "normal") != 0 || strcmp(dir->writing, "normal") != 0 ? SERVER_DEGRADED
                                                                                                      : SERVER_HEALTHY;
}

/* Nothing is known of one that nobody has asked since it failed, and nobody misses it: a node that was not up yet when
 * this one began, for example. */
enum server_health server_health_of_l2(const struct store_l2_report *proxy)
{
    return proxy->down && !proxy->untried ? SERVER_DEGRADED : SERVER_HEALTHY;
}

/* Whether a part is worse than all before it; if so, the caller writes its sentence. */
static bool is_worst(enum server_health *worst, enum server_health health)
{
    bool worse = health > *worst;
    *worst = GR_MAX(*worst, health);
    return worse;
}

/* Write the sentence about a store that is not well: its last failure, or how long a read has waited. */
static void server_health_explain(const char *url, const struct store_health *h, const struct server_store_state *state,
                                  char why[SERVER_HEALTH_WHY_MAX])
{
    uint64_t old_ms = state->refuses ? h->refused_ms : h->failed_ms;
    if (*state->error && old_ms >= SERVER_OLD_MS && !h->read_waits_ms)
        snprintf(why, SERVER_HEALTH_WHY_MAX, "store %s was last asked %.0f s ago, and %s: %s", url,
                 (double)old_ms / 1000, state->refuses ? "refused" : "failed", state->error);
    else if (*state->error)
        snprintf(why, SERVER_HEALTH_WHY_MAX, "store %s has been %s for %.0f s: %s", url,
                 state->refuses ? "refusing" : "failing", (double)state->for_ms / 1000, state->error);
    else
        snprintf(why, SERVER_HEALTH_WHY_MAX, "a read has been waiting for store %s for %.0f s", url,
                 (double)h->read_waits_ms / 1000);
}

enum server_health server_health(struct stack *stack, struct added_exports *added, char why[SERVER_HEALTH_WHY_MAX])
{
    enum server_health worst = SERVER_HEALTHY;
    struct store_health h;
    struct server_store_state state;
    const char *url;
    char of[STACK_EXPORT_NAME_MAX + 1];
    *why = 0;
    for (size_t i = 0; (url = stack_store_health(stack, i, of, &h)); i++)
        if (is_worst(&worst, server_health_of_store(&h, &state)))
            server_health_explain(url, &h, &state, why);

    char name[STACK_EXPORT_NAME_MAX + 1], image[IMAGE_REF_MAX];
    if (added_exports_waiting(added, 0, name, image) && is_worst(&worst, SERVER_FAILING))
        snprintf(why, SERVER_HEALTH_WHY_MAX,
                 "the export '%.200s' waits for its keys; give them again, by granary mount --keys or PUT /exports",
                 name);

    struct cache_dir_report dirs[CACHE_DIRS_MAX];
    size_t n = stack_cache_dirs(stack, dirs);
    for (const struct cache_dir_report *dir = dirs; dir < dirs + n; dir++) {
        if (!is_worst(&worst, server_health_of_dir(dir)))
            continue;
        if (dir->deleted)
            snprintf(why, SERVER_HEALTH_WHY_MAX, "cache directory %s: its files were deleted", dir->path);
        else
            snprintf(why, SERVER_HEALTH_WHY_MAX, "cache directory %s: reading is %s, writing is %s", dir->path,
                     dir->reading, dir->writing);
    }

    CLEANUP(store_l2_reports_release) struct store_l2_reports l2;
    stack_l2(stack, &l2);
    for (size_t i = 0; i < l2.len; i++)
        if (is_worst(&worst, server_health_of_l2(&l2.items[i])))
            snprintf(why, SERVER_HEALTH_WHY_MAX, "shared cache proxy %s is down", l2.items[i].url);
    for (size_t i = 0; i < l2.list_count; i++)
        if (l2.lists[i].failing_ms && is_worst(&worst, SERVER_DEGRADED))
            snprintf(why, SERVER_HEALTH_WHY_MAX, "a list of shared cache proxies is not up to date: %s",
                     l2.lists[i].failure);
    return worst;
}
