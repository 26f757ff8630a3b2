/* The pool of rings. Idle rings form a stack: the ring used last, whose memory is warm, is lent first.
 *
 *    made -> out -> idle -> out ...           freed with the pool
 *             \-> lost (deadline missed) -> zombie (returned) -> freed (the disk answered)
 *
 * Rings and zombies together are at most twice the limit, and the more zombies there are, the fewer rings are made
 * (may_make). When there are only zombies, a reader goes without a ring at once.
 *
 * A ring for each thread would not do: nbdkit starts hundreds of new threads for every connection, so most rings
 * would serve few reads.
 *
 * A ring and its buffer are one mapping of their own, not malloc memory, so that they can be left to the kernel. The
 * buffers of a pool that reads are in huge pages: a buffer that is one piece of memory to the disk, instead of a list
 * of pages, is read in two thirds of the time (docs/internals/cache.md).
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/disk/ring_internal.h"

enum {
    OVERDUE_MS = 1000,     /* within this time a thread that can run has seen that its deadline passed */
    FAREWELL_MS = 1000,    /* how long rings_free waits for zombies */
    FAREWELL_STEP_MS = 10, /* and how often it looks */
};

/* ---- a ring's memory: | bounce buffer | struct ring | ---- */

enum { HUGE_PAGE = 2 << 20, IDLE_KEPT = HUGE_PAGE / RING_SIZE };

static_assert(sizeof(struct ring) <= RING_SIZE - RING_BOUNCE, "the ring stands after its buffer");

static void *map_pages(size_t len)
{
    void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Map an aligned 2 MiB and ask for a huge page. */
static uint8_t *map_huge_page(void)
{
    /* map twice as much, and cut an aligned page out of it */
    uint8_t *map = map_pages(2 * HUGE_PAGE);
    if (!map)
        return NULL;
    uint8_t *page = (uint8_t *)GR_ALIGN_UP((uintptr_t)map, (uintptr_t)HUGE_PAGE);
    if (page != map)
        munmap(map, (size_t)(page - map));
    munmap(page + HUGE_PAGE, (size_t)(map + HUGE_PAGE - page));
    madvise(page, HUGE_PAGE, MADV_HUGEPAGE); /* small pages do where there are no huge ones */
    return page;
}

/* Take an unused slice, if there is one. */
static struct slice *take_spare(struct rings *rs)
{
    SCOPED_LOCK(&rs->lock);
    struct slice *s = rs->spare;
    if (s)
        rs->spare = s->next;
    return s;
}

/* Return a quarter of a huge page, whose other quarters become spare; each is unmapped by itself. One thread at a
 * time: if each reader that comes at the same moment made a page, three quarters of every page would stay unused. */
static uint8_t *map_slice(struct rings *rs)
{
    SCOPED_LOCK(&rs->mapping);
    struct slice *spare = take_spare(rs);
    uint8_t *page = spare ? NULL : map_huge_page();
    if (!page)
        return (uint8_t *)spare;
    SCOPED_LOCK(&rs->lock);
    for (size_t at = RING_SIZE; at < HUGE_PAGE; at += RING_SIZE) {
        struct slice *s = (struct slice *)(page + at);
        s->next = rs->spare;
        rs->spare = s;
    }
    return page;
}

/* Map a ring with its buffer. NULL: out of memory. */
static struct ring *ring_map(struct rings *rs)
{
    uint8_t *bounce = rs->huge_bounce ? map_slice(rs) : map_pages(RING_SIZE);
    if (!bounce)
        return NULL;
    struct ring *r = (struct ring *)(bounce + RING_BOUNCE);
    r->bounce = bounce;
    return r;
}

/* Free a ring's memory, and with it the ring; also the `done` of an orphaned thread. */
static void ring_unmap(void *arg)
{
    struct ring *r = arg;
    ring_let_go(r);
    munmap(r->bounce, RING_SIZE);
}

/* ---- the pool ---- */

/* Does reading the file always block inside the kernel? */
static bool is_blocking(int fd)
{
    uint8_t byte;
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    return preadv2(fd, &one, 1, 0, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP;
}

/* Duplicate the descriptors: those of zombies must stay open after the cache has closed its own. */
static int copy_fds(struct rings *rs, const struct rings_config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        rs->fds[i] = fcntl(config->fds[i], F_DUPFD_CLOEXEC, 0);
        if (rs->fds[i] < 0)
            return error_set(-errno, "cache: cannot copy a file descriptor: %s", strerror(errno));
        rs->fd_count++;
        rs->blocking[i] = is_blocking(rs->fds[i]);
        rs->direct[i] = fcntl(rs->fds[i], F_GETFL) & O_DIRECT;
    }
    return 0;
}

int rings_new(const struct rings_config *config, struct rings_stats *stats, struct rings **out)
{
    if (config->count > RING_FILES_MAX)
        return error_set(-EINVAL, "cache: more than %d files", RING_FILES_MAX);
    struct rings *rs = calloc(1, sizeof *rs);
    if (!rs)
        return error_no_memory();
    pthread_mutex_init(&rs->lock, NULL);
    pthread_mutex_init(&rs->mapping, NULL);
    thread_cond_init(&rs->returned);
    rs->limit = config->limit;
    rs->refused = config->no_uring;
    rs->huge_bounce = config->huge_bounce;
    rs->async = config->async;
    rs->calls = config->calls;
    rs->stats = stats;
    rs->complaints = (struct log_limit)LOG_LIMIT_INIT;
    int rc = copy_fds(rs, config);
    if (rc)
        rings_free(rs);
    else
        *out = rs;
    return rc;
}

/* Take the zombies whose disk has answered off their list. */
static struct ring *take_answered(struct rings *rs)
{
    struct ring *over = NULL;
    SCOPED_LOCK(&rs->lock);
    for (struct ring **at = &rs->zombies; *at;) {
        struct ring *z = *at;
        if (!ring_is_over(z)) {
            at = &z->next;
            continue;
        }
        *at = z->next;
        z->next = over;
        over = z;
        rs->zombie_count--;
        pthread_cond_signal(&rs->returned);
    }
    return over;
}

static void destroy_list(struct ring *list)
{
    while (list) {
        struct ring *r = list;
        list = r->next;
        io_thread_free(r->thread);
        ring_drop_uring(r);
        ring_unmap(r);
    }
}

void rings_reap(struct rings *rs)
{
    if (rs->zombie_count)
        destroy_list(take_answered(rs));
}

/* Take the rings that were idle since the last call off the end of the stack, where the coldest are. */
static struct ring *take_unused(struct rings *rs)
{
    SCOPED_LOCK(&rs->lock);
    struct ring **at = &rs->idle, *unused;
    unsigned stay = GR_MAX(rs->idle_count - rs->idle_least, (unsigned)IDLE_KEPT), n = 0;
    while (*at && n < stay) {
        at = &(*at)->next;
        n++;
    }
    unused = *at;
    *at = NULL;
    rs->made -= rs->idle_count - n;
    rs->idle_count = rs->idle_least = n;
    return unused;
}

void rings_trim(struct rings *rs)
{
    destroy_list(take_unused(rs));
}

unsigned rings_lost(struct rings *rs, unsigned file)
{
    unsigned n = 0;
    SCOPED_LOCK(&rs->lock);
    for (const struct ring *z = rs->zombies; z; z = z->next)
        n += z->files >> file & 1;
    return n;
}

/* Leave a zombie behind at the end. An orphaned thread frees its ring when its call returns; a buffer that an
 * io_uring still reads into is never freed. */
static void abandon(struct ring *z)
{
    if (z->in_flight) {
        io_thread_free(z->thread);
        return;
    }
    ring_drop_uring(z);
    io_thread_orphan(z->thread, ring_unmap, z);
}

void rings_free(struct rings *rs)
{
    if (!rs)
        return;
    uint64_t until = clock_now_ms() + FAREWELL_MS;
    while (rings_reap(rs), rs->zombie_count && clock_now_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = FAREWELL_STEP_MS * 1000000}, NULL);
    for (struct ring *r = rs->idle; r; r = r->next)
        rs->made--;
    assert(!rs->made); /* one is still out */
    destroy_list(rs->idle);
    for (struct slice *s; (s = take_spare(rs));)
        munmap(s, RING_SIZE);
    if (rs->zombie_count)
        log_warning("cache: %u reads or writes have had no answer from their disk; leaving without it",
                    rs->zombie_count);
    for (size_t i = 0; !rs->zombie_count && i < rs->fd_count; i++)
        close(rs->fds[i]);
    while (rs->zombies) {
        struct ring *z = rs->zombies;
        rs->zombies = z->next;
        abandon(z);
    }
    pthread_cond_destroy(&rs->returned);
    pthread_mutex_destroy(&rs->mapping);
    pthread_mutex_destroy(&rs->lock);
    free(rs);
}

/* ---- borrowing ---- */

/* Make a ring, with an io_uring where the kernel allows it. NULL: out of memory. */
static struct ring *make(struct rings *rs)
{
    struct ring *r = ring_map(rs);
    if (r) {
        r->owner = rs;
        ring_attach_uring(r);
    }
    return r;
}

/* May another ring be made? Rings may take half of what zombies leave of twice the limit. So each directory that
 * hangs takes at most half of the rings left by the one before it, and some remain for the directories that work. */
static bool may_make(const struct rings *rs)
{
    return rs->made < (2 * rs->limit - rs->zombie_count + 1) / 2;
}

/* Enter a ring into the list of those that are lent, in which rings_overdue looks. */
static void put_out_locked(struct rings *rs, struct ring *r)
{
    r->prev = NULL;
    r->next = rs->out;
    if (rs->out)
        rs->out->prev = r;
    rs->out = r;
}

static void take_back_locked(struct rings *rs, struct ring *r)
{
    if (r->next)
        r->next->prev = r->prev;
    *(r->prev ? &r->prev->next : &rs->out) = r->next;
}

uint32_t rings_overdue(struct rings *rs, uint64_t now_ms)
{
    uint32_t files = 0;
    SCOPED_LOCK(&rs->lock);
    for (const struct ring *r = rs->out; r; r = r->next) {
        uint64_t until = atomic_load(&r->busy_until);
        files |= until && now_ms > until + OVERDUE_MS ? atomic_load(&r->files) : 0;
    }
    return files;
}

/* Wait for an idle ring (*out), or for room to make one (*out is NULL). false: neither by the deadline. */
static bool take_place(struct rings *rs, uint64_t deadline_ms, struct ring **out)
{
    SCOPED_LOCK(&rs->lock);
    while (!rs->idle && !may_make(rs)) {
        if (!rs->made) /* no ring exists that could be returned */
            return false;
        struct timespec until = clock_at_ms(deadline_ms);
        rs->waiting++;
        int rc = pthread_cond_timedwait(&rs->returned, &rs->lock, &until);
        rs->waiting--;
        if (rc == ETIMEDOUT && !rs->idle && !may_make(rs))
            return false;
    }
    *out = rs->idle;
    if (*out) {
        rs->idle = (*out)->next;
        rs->idle_count--;
        rs->idle_least = GR_MIN(rs->idle_least, rs->idle_count);
        put_out_locked(rs, *out);
    } else {
        rs->made++;
    }
    return true;
}

struct ring *rings_borrow(struct rings *rs, uint64_t deadline_ms)
{
    struct ring *r;
    rings_reap(rs);
    if (!take_place(rs, deadline_ms, &r))
        return NULL;
    if (r)
        return r;
    r = make(rs);
    SCOPED_LOCK(&rs->lock);
    if (r) {
        put_out_locked(rs, r);
    } else {
        rs->made--;
        pthread_cond_signal(&rs->returned);
    }
    return r;
}

void rings_return(struct ring *r)
{
    struct rings *rs = r->owner;
    SCOPED_LOCK(&rs->lock);
    take_back_locked(rs, r);
    struct ring **list = r->lost ? &rs->zombies : &rs->idle;
    r->next = *list;
    *list = r;
    if (r->lost) {
        rs->made--;
        rs->zombie_count++;
    } else {
        rs->idle_count++;
    }
    pthread_cond_signal(&rs->returned);
}

bool rings_wanted(const struct rings *rs)
{
    return rs->waiting;
}

uint8_t *ring_bounce(struct ring *r)
{
    return r->bounce;
}
