/* There is one slot, `img`. A reader whose read was slow fills it, and the thread empties it after it has searched and
 * rested. Slow reads in between are not searched. A reader pays for a lock that is held for a few instructions.
 *
 *    free --reader--> taken, img set --thread--> searching --> resting 60 s --> free
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "image/image_internal.h"
#include "repository/read/catalog_read.h"

enum { REST_MS = 60 * 1000 }; /* between two searches */

/* `lock` guards taken, img and offset; started is written once. */
struct slow_names {
    struct slow_reads *reads;
    pthread_t thread;
    bool started;
    _Atomic bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool taken;        /* from the reader's request until the thread has rested */
    struct image *img; /* a reference; NULL: none, or the thread has it */
    uint64_t offset;
};

/* One search. */
struct looking {
    struct slow_names *names;
    const struct image *img;
    uint64_t offset;
};

static void slow_names_say(const struct looking *l, const char *what, int len, const char *path)
{
    char hex[DIGEST_HEX_SIZE];
    log_warning("slow read at %llu of image sha256:%s was of %s%.*s", (unsigned long long)l->offset,
                digest_hex(&l->img->digest, hex), what, len, path);
    slow_reads_name(l->names->reads, &l->img->digest, l->offset, len ? path : what, len ? (size_t)len : strlen(what));
}

/* A catalog visitor. 1: the file is found and logged; -ECANCELED: the server ends. Names by hard links are skipped. */
static int slow_names_visit(void *arg, const struct catalog_entry *e)
{
    const struct looking *l = arg;
    for (uint32_t i = 0; i < e->extent_count && !e->hard_link; i++)
        if (l->offset >= e->extents[i].offset && l->offset - e->extents[i].offset < e->extents[i].len) {
            slow_names_say(l, "the file ", (int)e->path_len, e->path);
            return 1;
        }
    return atomic_load(&l->names->stopping) ? error_set(-ECANCELED, "the server ends") : 0;
}

/* Search one offset, and log what is there. Metadata is recognised without the catalog. */
static void slow_names_look(struct looking *l)
{
    const struct manifest *m = &l->img->manifest;
    if (l->offset < m->front_len ||
        (l->offset >= m->metadata_offset && l->offset - m->metadata_offset < m->metadata_len)) {
        slow_names_say(l, "the filesystem's metadata", 0, "");
        return;
    }
    if (m->catalog_entries > SLOW_NAMES_ENTRIES_MAX)
        return;
    if (catalog_walk(l->img->config.store, m, "", 0, slow_names_visit, l) < 0)
        log_debug("the file of a slow read was not found: %s", error_text());
}

static void rest_locked(struct slow_names *n)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + REST_MS);
    while (!n->stopping && pthread_cond_timedwait(&n->changed, &n->lock, &until) != ETIMEDOUT)
        continue;
}

/* The thread. It searches without the lock, and frees the place only after it has rested. */
static void *look_for_names(void *arg)
{
    struct slow_names *n = arg;
    pthread_mutex_lock(&n->lock);
    while (!n->stopping) {
        if (!n->img) {
            pthread_cond_wait(&n->changed, &n->lock);
            continue;
        }
        struct image *img = steal_ptr(&n->img);
        struct looking l = {.names = n, .img = img, .offset = n->offset};
        pthread_mutex_unlock(&n->lock);
        slow_names_look(&l);
        image_close(img);
        pthread_mutex_lock(&n->lock);
        rest_locked(n);
        n->taken = false;
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* The slow reads' callback: take the place if it is free. */
static void slow_names_ask(void *arg, struct image *img, uint64_t offset)
{
    struct slow_names *n = arg;
    SCOPED_LOCK(&n->lock);
    if (n->taken || !n->started || n->stopping)
        return;
    n->taken = true;
    n->img = image_ref(img);
    n->offset = offset;
    pthread_cond_signal(&n->changed);
}

int slow_names_new(struct slow_reads *s, struct slow_names **out)
{
    struct slow_names *n = calloc(1, sizeof *n);
    if (!n)
        return error_no_memory();
    pthread_mutex_init(&n->lock, NULL);
    thread_cond_init(&n->changed);
    n->reads = s;
    s->ask_arg = n;
    s->ask = slow_names_ask;
    *out = n;
    return 0;
}

int slow_names_start_thread(struct slow_names *n)
{
    int rc = thread_start(&n->thread, look_for_names, n);
    SCOPED_LOCK(&n->lock);
    n->started = !rc;
    return rc;
}

/* The callback is cleared last: reads have ended by then, so no reader calls it. */
void slow_names_free(struct slow_names *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    n->stopping = true;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
    if (n->started)
        pthread_join(n->thread, NULL);
    image_close(n->img);
    n->reads->ask = NULL;
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
