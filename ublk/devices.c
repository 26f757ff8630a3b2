/* A read comes on the device's own thread. What came alone, is small and is cached is answered there, since waking
 * another thread would take longer than the read. Everything else goes to the pool, and comes back by ublk_queue_done.
 *
 * A device is in the table from before its first request until it ends. Its record is written before it is started.
 *
 * What goes wrong with one device of the previous server is logged, and tried again: it must not end the server of the
 * others. */
#include "ublk/devices.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "ublk/pool.h"
#include "ublk/record.h"

enum { INLINE_MAX = 128 << 10 /* bytes of an answer on the device's own thread */ };

_Static_assert((int)RECORD_NAME_MAX == (int)STACK_EXPORT_NAME_MAX, "a record holds every name");

/* A request that a thread of the pool answers. */
struct device_work {
    struct pool_work work;
    struct ublk_request request;
    struct device *device;
};

/* A device. Nothing but `failing` and the record's state changes once it is in the table. */
struct device {
    struct devices *set;
    struct device *next; /* under the table's lock, as is record.state */
    struct record record;
    struct serving_export *export; /* NULL: it has been failing since it was recovered */
    struct ublk_queue *queue;
    atomic_bool failing;
    struct device_work work[]; /* for each tag */
};

/* A device that is to be recovered. */
struct waiting {
    uint64_t tag;
    bool told; /* the log says why it waits */
};

struct devices {
    struct serving *serving;
    struct pool *pool;
    char socket[PATH_MAX];
    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t opened;
    bool open;         /* devices_open was called */
    unsigned awaiting; /* clients' threads that wait for it */
    struct device *first;
    unsigned count;

    VEC(struct waiting) waiting; /* devices of the previous server; the recovering thread's */
};

/* ---- reading ---- */

/* Read into the request's buffer. Returns 0 or a negative errno for the driver. */
static int device_read(struct device *d, const struct ublk_request *r)
{
    if (atomic_load(&d->failing))
        return -EIO;
    int rc = image_read(d->export->image, r->buffer, r->off, r->len);
    return rc ? -serving_request_failed(d->set->serving, rc) : 0;
}

static void run_work(struct pool_work *w)
{
    struct device_work *work = (struct device_work *)w; /* its first member */
    struct device *d = work->device;
    unsigned tag = work->request.tag; /* the tag's work is the next request's once this one is done */
    ublk_queue_done(d->queue, tag, device_read(d, &work->request));
}

/* ublk_reader.read */
static int on_read(void *arg, const struct ublk_request *r)
{
    struct device *d = arg;
    if (atomic_load(&d->failing))
        return -EIO;
    struct device_work *w = &d->work[r->tag];
    bool small = r->alone && r->len <= INLINE_MAX;
    bool cached = (small || pool_is_short(d->set->pool)) && image_is_cached(d->export->image, r->off, r->len);
    if (small && cached)
        return device_read(d, r);
    *w = (struct device_work){.work = {.run = run_work, .cached = cached}, .request = *r, .device = d};
    pool_give(d->set->pool, &w->work);
    return UBLK_LATER;
}

/* ---- the table ---- */

/* tell_stack: a device counts as a connection. */
static void devices_tell(void *arg, struct stack_front_end *out)
{
    struct devices *set = arg;
    unsigned threads = pool_threads(set->pool);
    SCOPED_LOCK(&set->lock);
    *out = (struct stack_front_end){
        .connections = set->count, .connections_max = UBLK_NUMBERS, .threads = threads + set->count, .threads_max = 0};
}

/* Read which records there are. */
static int look(struct devices *set)
{
    record_tags tags = {0};
    int rc = record_list(set->socket, &tags);
    for (size_t i = 0; !rc && i < tags.len; i++)
        rc = vec_push(&set->waiting, (struct waiting){.tag = tags.items[i]});
    vec_release(&tags);
    return rc;
}

int devices_new(struct serving *s, const char *socket, unsigned threads, struct devices **out)
{
    struct devices *set = calloc(1, sizeof *set);
    if (!set)
        return error_no_memory();
    set->serving = s;
    snprintf(set->socket, sizeof set->socket, "%s", socket);
    pthread_mutex_init(&set->lock, NULL);
    pthread_cond_init(&set->opened, NULL);
    int rc = look(set);
    if (!rc)
        rc = pool_new(threads, &set->pool);
    if (rc) {
        vec_release(&set->waiting);
        pthread_cond_destroy(&set->opened);
        pthread_mutex_destroy(&set->lock);
        free(set);
        return rc;
    }
    *out = set;
    return 0;
}

void devices_open(struct devices *set)
{
    stack_set_front_end(set->serving->stack, devices_tell, set);
    SCOPED_LOCK(&set->lock);
    set->open = true;
    pthread_cond_broadcast(&set->opened);
}

static bool is_open(struct devices *set)
{
    SCOPED_LOCK(&set->lock);
    return set->open;
}

/* Wait for the exports. One thread of the clients' stays free for `fail`, since umount --force must work while the
 * store is down. */
static int await_open(struct devices *set)
{
    SCOPED_LOCK(&set->lock);
    if (!set->open && set->awaiting + 1 >= CLIENTS_THREADS)
        return error_set(-EAGAIN, "the server is still opening its exports, and other mounts wait for that; try again "
                                  "later");
    set->awaiting++;
    while (!set->open)
        pthread_cond_wait(&set->opened, &set->lock);
    set->awaiting--;
    return 0;
}

static void device_list(struct device *d)
{
    SCOPED_LOCK(&d->set->lock);
    d->next = d->set->first;
    d->set->first = d;
    d->set->count++;
}

static void device_unlist(struct device *d)
{
    SCOPED_LOCK(&d->set->lock);
    for (struct device **at = &d->set->first; *at; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            d->set->count--;
            return;
        }
}

static struct device *find_locked(struct devices *set, unsigned number)
{
    for (struct device *d = set->first; d; d = d->next)
        if (d->record.number == number)
            return d;
    return NULL;
}

static void device_free(struct device *d)
{
    if (d->export)
        serving_disconnect(d->export);
    free(d);
}
DEFINE_CLEANUP(device, struct device *, device_free)

/* ublk_reader.ended */
static void on_ended(void *arg)
{
    struct device *d = arg;
    log_info("ublk device %u is removed", d->record.number);
    device_unlist(d);
    record_remove(d->set->socket, d->record.tag);
    device_free(d);
}

/* Make the struct, without an export. */
static int device_alloc(struct devices *set, unsigned depth, struct device **out)
{
    *out = calloc(1, sizeof **out + depth * sizeof *(*out)->work);
    if (!*out)
        return error_no_memory();
    (*out)->set = set;
    return 0;
}

/* Make the struct, connected to its export. */
static int device_new(struct devices *set, const char *name, unsigned depth, struct device **out)
{
    CLEANUP(cleanup_device) struct device *d = NULL;
    int rc = device_alloc(set, depth, &d);
    if (rc)
        return rc;
    rc = serving_connect(set->serving, name, &d->export);
    if (rc)
        return rc;
    d->record.content_root = image_manifest(d->export->image)->content_root;
    snprintf(d->record.name, sizeof d->record.name, "%s", stack_export_name(d->export->export));
    *out = steal_ptr(&d);
    return 0;
}

/* Put the device into the table and let its queue fetch. On success the device is the queue's. */
static int device_serve(struct device *d, unsigned depth, size_t bytes_max)
{
    const struct ublk_reader reader = {.read = on_read, .ended = on_ended, .arg = d};
    device_list(d);
    int rc = ublk_queue_start(d->record.number, depth, bytes_max, &reader, &d->queue);
    if (rc)
        device_unlist(d);
    return rc;
}

/* ---- a new device ---- */

/* Undo a device that could not be started; keep the sentence of rc. */
static int take_back(struct devices *set, struct ublk_control *c, const struct device_made *made, int rc)
{
    struct error first;
    error_take(&first, rc);
    if (ublk_remove(c, made->number, made->tag))
        log_warning("%s", error_text()); /* its record stays, for the next server */
    else
        record_remove(set->socket, made->tag);
    return error_restore(&first);
}

int devices_attach(struct devices *set, struct ublk_control *c, const char *name, struct device_made *out)
{
    CLEANUP(cleanup_device) struct device *d = NULL;
    int rc = await_open(set);
    if (!rc)
        rc = device_new(set, name, UBLK_DEPTH, &d);
    if (rc)
        return rc;
    const uint64_t size = image_manifest(d->export->image)->size;
    if (!size || size % UBLK_BLOCK)
        return error_set(-EINVAL, "the image has %llu bytes, which are no whole blocks of %d", (unsigned long long)size,
                         UBLK_BLOCK);
    rc = io_random(&d->record.tag, sizeof d->record.tag);
    if (!rc)
        rc = ublk_add(c, size, d->record.tag, &d->record.number);
    if (rc)
        return rc;
    *out = (struct device_made){
        .number = d->record.number, .tag = d->record.tag, .size = size, .content_root = d->record.content_root};
    rc = record_write(set->socket, &d->record);
    if (!rc)
        rc = device_serve(d, UBLK_DEPTH, UBLK_REQUEST_MAX);
    if (rc)
        return take_back(set, c, out, rc);
    (void)steal_ptr(&d); /* the queue's, also when the next step fails */
    rc = ublk_start(c, out->number, &out->diskseq);
    return rc ? take_back(set, c, out, rc) : 0;
}

/* Change what the next server does with a device of the table. -ENOENT, without a sentence: it is not there. */
static int change_state(struct devices *set, unsigned number, enum record_state from, enum record_state to)
{
    struct record r;
    {
        SCOPED_LOCK(&set->lock);
        struct device *d = find_locked(set, number);
        if (!d)
            return -ENOENT;
        if (d->record.state == from || to == RECORD_FAILING)
            d->record.state = to;
        if (to == RECORD_FAILING)
            atomic_store(&d->failing, true);
        r = d->record;
    }
    int rc = record_write(set->socket, &r);
    bool ended;
    {
        SCOPED_LOCK(&set->lock);
        struct device *d = find_locked(set, number);
        ended = !d || d->record.tag != r.tag;
    }
    if (ended) /* meanwhile, and its record was removed before this one */
        record_remove(set->socket, r.tag);
    return rc;
}

static int no_device(unsigned number)
{
    return error_set(-ENOENT, "this server has no ublk device %u", number);
}

int devices_keep(struct devices *set, unsigned number)
{
    int rc = change_state(set, number, RECORD_NEW, RECORD_KEPT);
    return rc == -ENOENT ? no_device(number) : rc;
}

/* Write `failing` into the record of a device that waits. */
static int fail_record(struct devices *set, unsigned number)
{
    struct record r;
    record_tags tags = {0};
    int rc = record_list(set->socket, &tags);
    bool found = false;
    for (size_t i = 0; !rc && !found && i < tags.len; i++)
        found = !record_read(set->socket, tags.items[i], &r) && r.number == number;
    vec_release(&tags);
    if (rc || !found)
        return rc ? rc : no_device(number);
    r.state = RECORD_FAILING;
    return record_write(set->socket, &r);
}

/* It may be recovered meanwhile, hence the second look; take_over reads the record after it has listed the device. */
int devices_fail(struct devices *set, unsigned number)
{
    int rc = change_state(set, number, RECORD_KEPT, RECORD_FAILING);
    if (rc != -ENOENT)
        return rc;
    rc = fail_record(set, number);
    if (rc)
        return rc;
    rc = change_state(set, number, RECORD_KEPT, RECORD_FAILING);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- recovery ---- */

/* Say once why a device waits. */
static void tell_once(struct waiting *w, const struct record *r)
{
    if (!w->told)
        log_error("ublk device %u (export '%s') waits, and its readers with it: %s", r->number, r->name, error_text());
    w->told = true;
}

/* Make the device of a record: with its export, or to fail. -EAGAIN, without a sentence: the exports are not there
 * yet. */
static int device_of_record(struct devices *set, const struct record *r, unsigned depth, struct device **out)
{
    if (r->state == RECORD_FAILING)
        return device_alloc(set, depth, out);
    if (!is_open(set))
        return -EAGAIN;
    CLEANUP(cleanup_device) struct device *d = NULL;
    int rc = device_new(set, r->name, depth, &d);
    if (!rc && !digest_equal(&d->record.content_root, &r->content_root))
        rc = error_set(-ESTALE, "REFUSED: it is another image than the device shows");
    if (!rc)
        *out = steal_ptr(&d);
    return rc;
}

/* Take over a device. Returns whether that is done; else later. */
static bool take_over(struct devices *set, struct ublk_control *c, const struct record *r, const struct ublk_info *info,
                      struct waiting *w)
{
    CLEANUP(cleanup_device) struct device *d = NULL;
    struct record now;
    struct ublk_info again;
    int rc = device_of_record(set, r, info->depth, &d);
    if (!rc) {
        d->record = *r;
        atomic_store(&d->failing, r->state == RECORD_FAILING);
        rc = ublk_recover(c, r->number);
    }
    if (!rc)
        rc = ublk_info(c, r->number, &again);
    if (rc == -ENODEV || (!rc && again.tag != r->tag)) /* removed meanwhile; the next round drops the record */
        return false;
    if (rc == -EAGAIN || rc == -EBUSY)
        return false;
    if (!rc)
        rc = device_serve(d, info->depth, info->bytes_max);
    if (rc) {
        tell_once(w, r);
        return false;
    }
    (void)steal_ptr(&d);
    if (!record_read(set->socket, r->tag, &now) && now.state == RECORD_FAILING) /* since it was read */
        (void)change_state(set, r->number, RECORD_KEPT, RECORD_FAILING);
    rc = ublk_recovered(c, r->number);
    if (rc) /* it is being removed */
        log_warning("%s", error_text());
    else
        log_info("ublk device %u goes on, with the export '%s'", r->number, r->name);
    return true;
}

/* Handle one record: take the device over, leave it for later, or drop what nothing needs. A device that no client has
 * recorded, and that is mounted all the same, goes on. Returns whether that is done. */
static bool recover_one(struct devices *set, struct ublk_control *c, struct waiting *w)
{
    struct record r;
    struct ublk_info info;
    int rc = record_read(set->socket, w->tag, &r);
    if (rc == -ENOENT)
        return true;
    if (rc) {
        if (!w->told)
            log_error("a ublk device waits, and its readers with it: %s%s", error_text(),
                      rc == -EBADMSG ? "; restart the machine to end its reads" : "");
        w->told = true;
        return rc == -EBADMSG;
    }
    rc = ublk_info(c, r.number, &info);
    if (rc == -ENODEV || (!rc && info.tag != r.tag)) {
        record_remove(set->socket, r.tag);
        return true;
    }
    if (!rc && r.state != RECORD_NEW && !info.dead)
        return take_over(set, c, &r, &info, w);
    if (!rc)
        rc = ublk_remove(c, r.number, r.tag);
    if (rc == -EBUSY && !info.dead)
        return take_over(set, c, &r, &info, w);
    if (rc) {
        tell_once(w, &r);
        return false;
    }
    record_remove(set->socket, r.tag);
    return true;
}

unsigned devices_recover(struct devices *set, struct ublk_control *c)
{
    size_t left = 0;
    for (size_t i = 0; i < set->waiting.len; i++)
        if (!recover_one(set, c, &set->waiting.items[i]))
            set->waiting.items[left++] = set->waiting.items[i];
    set->waiting.len = left;
    return (unsigned)left;
}
