/* Opening a directory whose disk may hang. A thread opens it, and is left behind when the time is over; it owns
 * everything it needs. If the disk answers after all, the thread closes what it has opened, and the next start finds
 * the directory as it is.
 *
 *    caller:  start thread --- wait ---+--- ended: take the result, free the opening
 *                                      `-- timed out: `left` is set, and the thread frees the opening
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/disk/cache_dir.h"

/* One opening. `lock` decides which side frees it: ended and left are set under it. */
struct opening {
    struct cache_dir_order order; /* with its own copy of the path */
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool ended, left; /* left: the caller has given up */
    struct cache_dir *dir;
    struct error error;
};

static void opening_free(struct opening *o)
{
    pthread_cond_destroy(&o->ending);
    pthread_mutex_destroy(&o->lock);
    free((char *)o->order.path);
    free(o);
}

/* Make an opening with copies of everything the thread needs. NULL: out of memory. */
static struct opening *opening_new(const struct cache_dir_order *order)
{
    struct opening *o = calloc(1, sizeof *o);
    char *path = strdup(order->path);
    if (!o || !path) {
        free(o);
        free(path);
        return NULL;
    }
    o->order = *order;
    o->order.path = path;
    pthread_mutex_init(&o->lock, NULL);
    thread_cond_init(&o->ending);
    return o;
}

static int cache_dir_opener_open_dir(struct cache_dir_order *order, struct cache_dir **out)
{
    if (order->begin)
        order->begin();
    int rc = order->size ? 0 : cache_dir_share(order->path, order->percent, &order->size);
    return rc ? rc : cache_dir_open(order->path, order->size, order->high, out);
}

/* Report the result to the caller. false: the caller has given up. */
static bool hand_over(struct opening *o, int rc)
{
    SCOPED_LOCK(&o->lock);
    error_take(&o->error, rc);
    o->ended = true;
    pthread_cond_signal(&o->ending);
    return !o->left;
}

static void *cache_dir_opener_work(void *arg)
{
    struct opening *o = arg;
    int rc = cache_dir_opener_open_dir(&o->order, &o->dir);
    if (hand_over(o, rc))
        return NULL;
    cache_dir_close(o->dir);
    opening_free(o);
    return NULL;
}

/* Wait for the result. false: the opening belongs to the thread now. */
static bool cache_dir_opener_wait_for_end(struct opening *o, uint32_t timeout_ms)
{
    struct timespec until = clock_at_ms(clock_now_ms() + timeout_ms);
    SCOPED_LOCK(&o->lock);
    while (!o->ended && pthread_cond_timedwait(&o->ending, &o->lock, &until) != ETIMEDOUT) {
    }
    o->left = !o->ended;
    return o->ended;
}

int cache_dir_open_within(struct cache_dir_order *order, uint32_t timeout_ms, struct cache_dir **out)
{
    struct opening *o = opening_new(order);
    if (!o)
        return error_no_memory();
    pthread_t thread;
    int rc = thread_start(&thread, cache_dir_opener_work, o);
    if (rc) {
        opening_free(o);
        return rc;
    }
    if (!cache_dir_opener_wait_for_end(o, timeout_ms)) {
        pthread_detach(thread);
        return error_set(-ETIMEDOUT, "cache: %s: its disk has given no answer for %u seconds", order->path,
                         timeout_ms / 1000);
    }
    pthread_join(thread, NULL);
    rc = o->error.code ? error_restore(&o->error) : 0;
    order->size = o->order.size;
    *out = o->dir;
    opening_free(o);
    return rc;
}
