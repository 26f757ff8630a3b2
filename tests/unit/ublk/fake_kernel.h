/* A fake of the ublk driver, in place of ublk/control.c and queue.c: devices, and readers of them. A killed server is
 * one whose queues are forgotten (fake_kill): the devices stay, as the driver keeps them, until the next one recovers
 * them. */
#ifndef GRANARY_TESTS_UNIT_UBLK_FAKE_KERNEL_H
#define GRANARY_TESTS_UNIT_UBLK_FAKE_KERNEL_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ublk/kernel.h"
#include "unit/threads.h"

enum { FAKE_DEVICES = 8 };

struct ublk_queue {
    struct ublk_reader reader;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done[UBLK_DEPTH];
    int results[UBLK_DEPTH];
};

struct fake_device {
    bool there, started, mounted;
    uint64_t size, tag;
    struct ublk_queue *queue; /* NULL: its server was killed, or there was none yet */
};

/* Everything but the queues is changed by one thread at a time. */
static struct {
    struct fake_device devices[FAKE_DEVICES];
    int start_fails;              /* the next ublk_start's error */
    int queue_fails;              /* the next ublk_queue_start's */
    int recovered_fails;          /* the next ublk_recovered's */
    unsigned busy;                /* so often ublk_recover is -EBUSY */
    unsigned recoveries, removed; /* how often */
    struct ublk_queue *killed[FAKE_DEVICES];
    size_t killed_count;
} fake;

static inline struct fake_device *fake_at(unsigned number)
{
    return number < FAKE_DEVICES && fake.devices[number].there ? &fake.devices[number] : NULL;
}

int ublk_control_open(struct ublk_control **out)
{
    *out = (struct ublk_control *)&fake;
    return 0;
}

void ublk_control_close(struct ublk_control *c)
{
}

int ublk_add(struct ublk_control *c, uint64_t size, uint64_t tag, unsigned *out)
{
    for (unsigned i = 0; i < FAKE_DEVICES; i++)
        if (!fake.devices[i].there) {
            fake.devices[i] = (struct fake_device){.there = true, .size = size, .tag = tag};
            *out = i;
            return 0;
        }
    return error_set(-ENOSPC, "there are as many devices as there may be");
}

int ublk_start(struct ublk_control *c, unsigned number, uint64_t *out_diskseq)
{
    int rc = fake.start_fails;
    fake.start_fails = 0;
    must(fake_at(number) && fake_at(number)->queue, "started without a queue");
    fake_at(number)->started = !rc;
    *out_diskseq = number + 100;
    return rc ? error_set(rc, "it does not start") : 0;
}

int ublk_info(struct ublk_control *c, unsigned number, struct ublk_info *out)
{
    const struct fake_device *d = fake_at(number);
    if (!d)
        return error_set(-ENODEV, "there is no device %u", number);
    *out = (struct ublk_info){.tag = d->tag, .dead = !d->started, .depth = UBLK_DEPTH, .bytes_max = UBLK_REQUEST_MAX};
    return 0;
}

int ublk_recover(struct ublk_control *c, unsigned number)
{
    must(fake_at(number) && !fake_at(number)->queue, "recovered while it is served");
    if (!fake.busy)
        return 0;
    fake.busy--;
    return -EBUSY;
}

int ublk_recovered(struct ublk_control *c, unsigned number)
{
    int rc = fake.recovered_fails;
    fake.recovered_fails = 0;
    must(fake_at(number)->queue, "recovered without a queue");
    fake.recoveries++;
    return rc ? error_set(rc, "it does not go on") : 0;
}

static inline void fake_end_queue(struct ublk_queue *q)
{
    q->reader.ended(q->reader.arg);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

int ublk_remove(struct ublk_control *c, unsigned number, uint64_t tag)
{
    struct fake_device *d = fake_at(number);
    if (!d || d->tag != tag)
        return 0;
    if (d->mounted)
        return error_set(-EBUSY, "device %u is mounted", number);
    if (d->queue)
        fake_end_queue(d->queue);
    d->there = false;
    fake.removed++;
    return 0;
}

int ublk_queue_start(unsigned number, unsigned depth, size_t bytes_max, const struct ublk_reader *reader,
                     struct ublk_queue **out)
{
    if (fake.queue_fails) {
        int rc = fake.queue_fails;
        fake.queue_fails = 0;
        return error_set(rc, "it has no queue");
    }
    struct ublk_queue *q = calloc(1, sizeof *q);
    must(q && depth == UBLK_DEPTH && bytes_max == UBLK_REQUEST_MAX, "another queue");
    q->reader = *reader;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    *out = fake_at(number)->queue = q;
    return 0;
}

void ublk_queue_done(struct ublk_queue *q, unsigned tag, int rc)
{
    SCOPED_LOCK(&q->lock);
    must(!q->done[tag], "tag %u is answered twice", tag);
    q->done[tag] = true;
    q->results[tag] = rc;
    pthread_cond_broadcast(&q->changed);
}

/* Read by the tag, as the kernel would. Returns what the device answers. */
static inline int fake_read(unsigned number, unsigned tag, bool alone, uint64_t off, void *out, uint32_t len)
{
    struct ublk_queue *q = fake_at(number)->queue;
    const struct ublk_request r = {.tag = tag, .off = off, .len = len, .buffer = out, .alone = alone};
    int rc = q->reader.read(q->reader.arg, &r);
    if (rc != UBLK_LATER)
        return rc;
    SCOPED_LOCK(&q->lock);
    while (!q->done[tag])
        pthread_cond_wait(&q->changed, &q->lock);
    q->done[tag] = false;
    return q->results[tag];
}

/* The server of all devices dies. */
static inline void fake_kill(void)
{
    for (struct fake_device *d = fake.devices; d < fake.devices + FAKE_DEVICES; d++)
        if (d->there && d->queue)
            fake.killed[fake.killed_count++] = steal_ptr(&d->queue);
}

/* Everything ends, also what a killed server had: it is in this process all the same. */
static inline void fake_end(void)
{
    for (unsigned i = 0; i < FAKE_DEVICES; i++) {
        fake.devices[i].mounted = false;
        must(!ublk_remove(NULL, i, fake.devices[i].tag), "it stays");
    }
    while (fake.killed_count)
        fake_end_queue(fake.killed[--fake.killed_count]);
    memset(&fake, 0, sizeof fake);
}

#endif
