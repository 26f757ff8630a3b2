/* Reads of hundreds of nodes that are each other's cache, in virtual time, on the code that schedules them: of each
 * node the fetches of its readers and those for others (fetch/: queues, runs, limits, windows, hedged requests), the
 * choice of the node to ask and what its answer changes (store/l2: choice, health), and the limits on requests of
 * others (server/peer_clients, base/queue, peer_limits.h). clock_gettime below gives all of that the virtual time.
 *
 * Not that code but written here, since there it is threads that wait for sockets and disks: that a worker carries out
 * a run (fetch_run.c), what a node does with a request (look, fetch or refuse; peers.c), and what it does after an
 * answer (store_l2.c). A disk, a link and the store are each a queue that serves in order at a constant rate; a GET's
 * chunks arrive together. Caches never evict.
 *
 *   reader -> fetch -> run -> the stripe's owner: lookups -> fetches -> fetch -> run -> the store
 *                        `--- own, refused, hedged ------------------------------------^ */
#include "peers-simulation.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/le.h"
#include "base/queue.h"
#include "cache/cache.h"
#include "repository/read/chunk_read.h"
#include "server/peer_clients.h"

enum {
    HEDGE_PERCENT = 5,  /* the default of --hedge */
    WORKERS = 64,       /* and of --store-connections */
    NODE_US = 100,      /* one way to another node, */
    STORE_US = 5000,    /* and to the store */
    LOOK_US = 30,       /* of a looker for a request, without reading */
    HIT_US = 300,       /* a file from the own cache */
    NODE_LINK = 3125,   /* bytes/us: 25 Gbit/s, each way */
    STORE_LINK = 12500, /* 100 Gbit/s for all */
    DISK = 2000,        /* bytes/us of a looker */
};

uint64_t virtual_us;
struct world world;

int clock_gettime(clockid_t id, struct timespec *out)
{
    if (!virtual_us)
        return (int)syscall(SYS_clock_gettime, id, out);
    *out = clock_at_us(virtual_us);
    return 0;
}

/* ---- events ---- */

struct event {
    uint64_t at_us, number; /* equal times: in the order in which they were planned */
    void (*call)(void *arg);
    void *arg;
};

static struct {
    struct event *heap;
    size_t len, cap;
    uint64_t planned;
} events;

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

void traffic_plan(uint64_t at_us, void (*call)(void *arg), void *arg)
{
    if (events.len == events.cap) {
        events.cap = events.cap ? 2 * events.cap : 1 << 16;
        events.heap = realloc(events.heap, events.cap * sizeof *events.heap);
        if (!events.heap)
            abort();
    }
    const struct event e = {at_us, events.planned++, call, arg};
    size_t i = events.len++;
    for (; i && is_before(&e, &events.heap[(i - 1) / 2]); i = (i - 1) / 2)
        events.heap[i] = events.heap[(i - 1) / 2];
    events.heap[i] = e;
}

static struct event next_event(void)
{
    const struct event first = events.heap[0], last = events.heap[--events.len];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < events.len) {
        child += child + 1 < events.len && is_before(&events.heap[child + 1], &events.heap[child]);
        if (!is_before(&events.heap[child], &last))
            break;
        events.heap[i] = events.heap[child];
        i = child;
    }
    events.heap[i] = last;
    return first;
}

void traffic_run(void)
{
    while (events.len) {
        const struct event e = next_event();
        virtual_us = e.at_us;
        e.call(e.arg);
    }
}

/* ---- the world ---- */

/* A request to another node. */
struct ask {
    struct get *get; /* of the node that asks */
    struct node *at;
    struct peer_client *client;
    uint64_t asked_ms, len;
    bool holds_body;
    unsigned n;
    struct inflight *waits[FETCH_RUN_CHUNKS_MAX];
};

/* A run that is carried out. */
struct get {
    struct fetch_run run; /* must be first */
    struct node *node;
    struct proxy *proxy; /* a reference; NULL: the store alone */
    bool trial, lacks;
};

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool has(const struct node *n, size_t chunk)
{
    return n->has[chunk / 8] >> chunk % 8 & 1;
}

static struct chunk_ref ref_of(uint32_t chunk)
{
    struct chunk_ref ref = {.object = world.packs[chunk / PACK_CHUNKS],
                            .kind = OBJECT_PACK,
                            .offset = chunk % PACK_CHUNKS * CHUNK,
                            .stored_len = CHUNK,
                            .plain_len = CHUNK};
    le32_put(ref.digest.b, chunk * 2654435761u);
    le32_put(ref.digest.b + 4, chunk);
    ref.digest.b[31] = 1;
    return ref;
}

static uint32_t chunk_of(const struct chunk_ref *ref)
{
    return le32_get(ref->digest.b + 4);
}

static void look_at_fetches(void *node);
static void begin_read(void *reader);
static void send_run(struct get *get);

/* ---- a node's fetches ---- */

/* As note_arrival_locked of fetch_run.c. */
static void note_arrival(struct fetch_run *run)
{
    struct fetch *f = run->f;
    fetch_heard_locked(f, run->of);
    const struct concurrency_arrival arrival = {.sent_us = run->sent_us,
                                                .now_us = virtual_us,
                                                .bytes = CHUNK,
                                                .first = !run->answered,
                                                .waiting = fetch_is_full_locked(f)};
    run->answered = true;
    window_arrived(&f->window, &arrival, f->concurrency.base_us, f->in_flight[PRIORITY_WARM],
                   f->in_flight[PRIORITY_READAHEAD]);
    (void)concurrency_arrived(&f->concurrency, &arrival);
}

/* refused: the count of refusals that it belongs to; NULL: it is answered. */
static void end_ask(struct ask *a, uint64_t *refused);

/* Answer the requests that wait for nothing more. */
static void look_at_asks(struct node *n)
{
    for (unsigned i = 0; i < PEER_FETCHERS; i++) {
        struct ask *a = n->active[i];
        bool all = a;
        for (unsigned k = 0; a && k < a->n; k++)
            all = all && a->waits[k]->landed;
        if (all)
            end_ask(a, NULL);
    }
}

/* The GET has brought its chunks, before another one for them or after it. */
static void end_get(void *arg)
{
    struct get *get = arg;
    struct fetch_run *run = &get->run;
    struct fetch *f = run->f;
    struct node *n = get->node;
    if (get->lacks)
        proxies_lacks(n->proxies, get->proxy, get->trial);
    hedge_end(&f->hedge, &run->get, true, virtual_us / 1000);
    for (size_t i = 0; i < run->n; i++) {
        struct inflight *inflight = run->inflights[i];
        inflight->attempts--;
        fetch_arrived_locked(run, &inflight->chunk);
        if (inflight->completed)
            continue;
        inflight->completed = true;
        note_arrival(run);
        inflight_note(inflight, run);
        inflight_land(inflight, 0, buf_ref(world.bytes), NULL);
        f->config.on_landed(f->config.arg, inflight, inflight->warm);
    }
    inflight_unref_all(run->inflights, run->n);
    fetch_end_run_locked(f, run);
    if (get->proxy)
        proxy_unref(get->proxy);
    free(get);
    look_at_asks(n);
    traffic_plan(virtual_us, look_at_fetches, n);
}

static void reader_landed(void *arg, struct inflight *inflight, bool warm)
{
    struct node *n = arg;
    struct reader *r = &n->all[inflight->tag];
    uint32_t chunk = chunk_of(&inflight->chunk);
    if (inflight_is_own(inflight))
        n->has[chunk / 8] |= (uint8_t)(1 << chunk % 8);
    if (!--r->left)
        traffic_plan(virtual_us, begin_read, r);
    fetch_retire(n->readers, inflight);
}

static void other_landed(void *arg, struct inflight *inflight, bool warm)
{
    struct node *n = arg;
    uint32_t chunk = chunk_of(&inflight->chunk);
    n->has[chunk / 8] |= (uint8_t)(1 << chunk % 8);
    fetch_retire(n->others, inflight);
}

/* As take_hedge_locked of fetch_run.c. */
static bool take_hedge(struct fetch *f, struct fetch_run *run)
{
    uint64_t due_ms;
    struct hedge_get *get = f->busy + 1 < f->config.workers ? hedge_next(&f->hedge, &due_ms) : NULL;
    if (!get || virtual_us / 1000 < due_ms)
        return false;
    const struct fetch_run *late = (const struct fetch_run *)get;
    run->priority = PRIORITY_DEMAND;
    run->second = true;
    run->n = 0;
    run->in_flight = 0;
    run->store = run->bases_store = store_origin(late->store);
    run->of = late->of;
    for (size_t i = 0; i < late->n; i++)
        if (!late->inflights[i]->completed)
            fetch_add_to_run_locked(run, late->inflights[i]);
    fetch_begin_run_locked(f, run);
    hedge_send(&f->hedge, get);
    counter_add(&f->counters.hedges, 1);
    return true;
}

/* As a worker that is idle does: take all that may be sent. Returns when to look again. */
static uint64_t send_all(struct node *n, struct fetch *f)
{
    uint64_t due_us, late_ms;
    for (;;) {
        struct get *get = malloc(sizeof *get);
        if (!get)
            abort();
        get->node = n;
        get->proxy = NULL;
        get->lacks = false;
        struct fetch_run *run = &get->run;
        run->f = f;
        run->get = (struct hedge_get){.store = NULL};
        run->bases_silent = run->won = run->others = run->answered = false;
        memset(&run->context, 0, sizeof run->context);
        if (!fetch_take_run_locked(f, run) && !take_hedge(f, run)) {
            free(get);
            break;
        }
        run->sent_us = run->asked_us = virtual_us;
        send_run(get);
    }
    if (!fetch_is_full_locked(f) && f->busy < f->concurrency.limit)
        concurrency_starved(&f->concurrency);
    (void)fetch_next_locked(f, &due_us);
    if (f->busy + 1 < f->config.workers && hedge_next(&f->hedge, &late_ms))
        due_us = GR_MIN(due_us, late_ms * 1000);
    return due_us;
}

static void look_at_fetches(void *node)
{
    struct node *n = node;
    uint64_t due_us = send_all(n, n->readers), others_us = send_all(n, n->others);
    due_us = max64(GR_MIN(due_us, others_us), virtual_us + 1);
    if (n->timer_us <= virtual_us)
        n->timer_us = UINT64_MAX;
    if (due_us < n->timer_us) {
        n->timer_us = due_us;
        traffic_plan(due_us, look_at_fetches, n);
    }
    world.most_queued = GR_MAX(world.most_queued, n->readers->queued);
}

/* ---- the store ---- */

static void ask_store(struct get *get)
{
    const struct fetch_run *run = &get->run;
    uint64_t len = fetch_end_of(run->inflights[run->n - 1]) - run->chunks[0].offset;
    world.store_bytes += len;
    world.store_free_us = max64(world.store_free_us, virtual_us + STORE_US) + len / STORE_LINK;
    traffic_plan(world.store_free_us + STORE_US, end_get, get);
}

/* ---- another node ---- */

static void answer_arrives(void *arg)
{
    struct ask *a = arg;
    struct get *get = a->get;
    proxies_complete(get->node->proxies, get->proxy, true, get->trial);
    free(a);
    end_get(get);
}

static void body_sent(void *arg)
{
    struct ask *a = arg;
    peer_client_give(a->client, PEER_BODY_BYTES, a->len);
    peer_client_unref(a->client);
    struct node *to = a->get->node;
    to->in_free_us = max64(to->in_free_us, virtual_us) + a->len / NODE_LINK;
    traffic_plan(to->in_free_us + NODE_US, answer_arrives, a);
}

/* A 404: the store is asked. */
static void refusal_arrives(void *arg)
{
    struct ask *a = arg;
    struct get *get = a->get;
    get->trial = proxies_answered(get->node->proxies, get->proxy, get->trial);
    get->run.context.owner_lacks = true;
    get->lacks = true;
    free(a);
    ask_store(get);
}

static void refuse(struct ask *a, uint64_t *count)
{
    ++*count;
    if (a->holds_body)
        peer_client_give(a->client, PEER_BODY_BYTES, a->len);
    peer_client_unref(a->client);
    traffic_plan(virtual_us + NODE_US, refusal_arrives, a);
}

static void send_body(struct ask *a)
{
    a->at->answered++;
    a->at->out_free_us = max64(a->at->out_free_us, virtual_us) + a->len / NODE_LINK;
    traffic_plan(a->at->out_free_us, body_sent, a);
}

static bool take_body(struct ask *a)
{
    return a->holds_body = peer_client_take(a->client, PEER_BODY_BYTES, a->len);
}

static bool is_cached(const struct ask *a)
{
    bool all = true;
    for (size_t i = 0; i < a->get->run.n; i++)
        all = all && has(a->at, chunk_of(&a->get->run.chunks[i]));
    return all;
}

static void run_fetchers(struct node *n);

static void end_ask(struct ask *a, uint64_t *refused)
{
    struct node *n = a->at;
    for (unsigned i = 0; i < PEER_FETCHERS; i++)
        if (n->active[i] == a)
            n->active[i] = NULL;
    inflight_unref_all(a->waits, a->n);
    n->fetching--;
    peer_client_give(a->client, PEER_REQUESTS, 1);
    if (refused)
        refuse(a, refused);
    else
        send_body(a);
    run_fetchers(n);
}

static void ask_is_late(void *arg)
{
    struct node *n = arg;
    for (unsigned i = 0; i < PEER_FETCHERS; i++)
        if (n->active[i] && virtual_us / 1000 >= n->active[i]->asked_ms + PEER_ANSWER_MS)
            end_ask(n->active[i], &world.refused_late);
}

/* Join or start the fetches of what is missing, as start_for_others of cache_fetch.c. */
static void fetch_for(struct node *n, struct ask *a)
{
    struct chunk_ref refs[FETCH_RUN_CHUNKS_MAX];
    const bool joins = chunk_is_own(n->l2, &a->get->run.chunks[0]);
    for (size_t i = 0; i < a->get->run.n; i++) {
        const struct chunk_ref *ref = &refs[i];
        refs[i] = a->get->run.chunks[i];
        if (has(n, chunk_of(ref)))
            continue;
        struct inflight *there = joins ? fetch_find(n->readers, n->l2, ref) : NULL;
        if (!there)
            simulation_must(fetch_start(n->others, n->origin, &ref, 1, 1, PRIORITY_DEMAND, 0, &there));
        a->waits[a->n++] = there;
    }
    unsigned free_at = 0;
    while (n->active[free_at])
        free_at++;
    n->active[free_at] = a;
    traffic_plan((a->asked_ms + PEER_ANSWER_MS) * 1000, ask_is_late, n);
    traffic_plan(virtual_us, look_at_fetches, n);
}

static void run_fetchers(struct node *n)
{
    while (n->fetching < PEER_FETCHERS && n->fetches_waiting) {
        struct ask *a = queue_pop(n->fetches);
        n->fetches_waiting--;
        n->fetching++;
        if (virtual_us / 1000 - a->asked_ms >= PEER_WAIT_MS)
            end_ask(a, &world.refused_late);
        else if (!take_body(a))
            end_ask(a, &world.refused_memory);
        else if (is_cached(a))
            end_ask(a, NULL);
        else
            fetch_for(n, a);
    }
}

static void run_lookers(struct node *n);

static void looked(void *arg)
{
    struct ask *a = arg;
    struct node *n = a->at;
    n->looking--;
    if (is_cached(a) && take_body(a)) {
        peer_client_give(a->client, PEER_REQUESTS, 1);
        send_body(a);
    } else if (queue_try_push(n->fetches, a)) {
        n->fetches_waiting++;
        world.most_fetches = GR_MAX(world.most_fetches, n->fetches_waiting);
        run_fetchers(n);
    } else {
        peer_client_give(a->client, PEER_REQUESTS, 1);
        refuse(a, &world.refused_busy);
    }
    run_lookers(n);
}

static void run_lookers(struct node *n)
{
    while (n->looking < PEER_LOOKERS && n->looks_waiting) {
        struct ask *a = queue_pop(n->lookups);
        n->looks_waiting--;
        n->looking++;
        traffic_plan(virtual_us + LOOK_US + (is_cached(a) ? a->len / DISK : 0), looked, a);
    }
}

static void failure_arrives(void *arg)
{
    struct get *get = arg;
    world.failed++;
    (void)error_set(-ECONNREFUSED, "the connection is refused");
    proxies_complete(get->node->proxies, get->proxy, false, get->trial);
    ask_store(get);
}

static void ask_arrives(void *arg)
{
    struct ask *a = arg;
    struct node *n = a->at;
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(0x0a000000 + a->get->node->number)};
    if (!n->up) {
        traffic_plan(virtual_us + NODE_US, failure_arrives, a->get);
        free(a);
        return;
    }
    a->client = peer_client_get(n->clients, (const struct sockaddr *)&from);
    a->asked_ms = virtual_us / 1000;
    if (!peer_client_take(a->client, PEER_REQUESTS, 1)) {
        refuse(a, &world.refused_memory);
    } else if (!queue_try_push(n->lookups, a)) {
        peer_client_give(a->client, PEER_REQUESTS, 1);
        refuse(a, &world.refused_busy);
    } else {
        n->looks_waiting++;
        world.most_looks = GR_MAX(world.most_looks, n->looks_waiting);
        run_lookers(n);
    }
}

/* As l2_get of store_l2.c and watch of fetch_run.c. */
static void send_run(struct get *get)
{
    struct fetch_run *run = &get->run;
    struct node *n = get->node;
    const char *key = world.keys[chunk_of(&run->chunks[0]) / PACK_CHUNKS];
    struct proxy *proxy = run->f == n->readers && !run->second
                              ? proxies_choose(n->proxies, key, run->chunks[0].offset, &get->trial)
                              : NULL;
    run->others = proxy && !proxy->self;
    if (run->f == n->readers && !run->second && run->priority == PRIORITY_DEMAND)
        hedge_begin(&run->f->hedge, &run->get, run->others ? run->store : n->origin, n->origin, run->n,
                    virtual_us / 1000);
    if (!run->others) {
        if (proxy)
            proxy_unref(proxy);
        ask_store(get);
        return;
    }
    get->proxy = proxy;
    struct ask *a = calloc(1, sizeof *a);
    if (!a)
        abort();
    a->get = get;
    a->at = &world.node[simulation_node(proxy->store->url)];
    a->len = fetch_end_of(run->inflights[run->n - 1]) - run->chunks[0].offset;
    traffic_plan(virtual_us + NODE_US, ask_arrives, a);
}

/* ---- readers ---- */

static void note_time(uint64_t us)
{
    if (world.times_len == world.times_cap) {
        world.times_cap = world.times_cap ? 2 * world.times_cap : 1 << 20;
        world.times = realloc(world.times, world.times_cap * sizeof *world.times);
        if (!world.times)
            abort();
    }
    world.times[world.times_len++] = (uint32_t)us;
    world.ended_us = virtual_us;
}

/* Start the fetches of n chunks from `chunk` on that this node does not have. */
static void start(struct reader *r, uint32_t chunk, unsigned n)
{
    struct node *node = r->node;
    struct chunk_ref refs[WARM_CHUNKS];
    const struct chunk_ref *wanted[WARM_CHUNKS];
    struct inflight *inflights[WARM_CHUNKS];
    unsigned missing = 0;
    for (unsigned i = 0; i < n; i++)
        if (!has(node, chunk + i)) {
            refs[missing] = ref_of(chunk + i);
            wanted[missing] = &refs[missing];
            missing++;
        }
    r->left = missing;
    r->began_us = virtual_us;
    if (!missing) {
        traffic_plan(virtual_us + HIT_US, begin_read, r);
        return;
    }
    simulation_must(fetch_start(node->readers, node->l2, wanted, missing, missing,
                                r->warms ? PRIORITY_WARM : PRIORITY_DEMAND, (uint32_t)(r - node->all), inflights));
    inflight_unref_all(inflights, missing);
    traffic_plan(virtual_us, look_at_fetches, node);
}

void traffic_read(void *arg)
{
    struct reader *r = arg;
    struct node *n = r->node;
    if (n->plan_at == n->plan_len && world.until_us)
        n->plan_at = 0;
    r->began_us = 0;
    if (n->plan_at < n->plan_len && (!world.until_us || virtual_us < world.until_us))
        start(r, n->plan[n->plan_at++], r->warms ? WARM_CHUNKS : FILE_CHUNKS);
}

static void begin_read(void *arg)
{
    struct reader *r = arg;
    if (r->began_us)
        note_time(virtual_us - r->began_us);
    if (world.think_us)
        traffic_plan(virtual_us + 1 + simulation_random(&world.random, 2 * world.think_us), traffic_read, r);
    else
        traffic_read(r);
}

/* ---- nodes ---- */

void traffic_members(struct node *n, unsigned count)
{
    struct members m CLEANUP(members_release) = {0};
    char url[64];
    for (unsigned i = 0; i < count; i++) {
        simulation_url(i, url);
        simulation_must(members_add(&m, url, strlen(url), 1));
    }
    simulation_must(proxies_set(n->proxies, &m));
}

void traffic_open(struct node *n, unsigned number, unsigned members)
{
    static const size_t most[PEER_HOLDINGS] = {
        [PEER_REQUESTS] = 2 * PEER_WAITING_MAX, [PEER_BODY_BYTES] = PEER_BODIES_MAX};
    const struct store_options options = {0};
    char url[64];
    *n = (struct node){.number = number, .up = true, .timer_us = UINT64_MAX};
    simulation_url(number, url);
    snprintf(n->address, sizeof n->address, "%.*s", (int)strcspn(url + 7, "/"), url + 7);
    const struct store_node node = {.address = n->address};
    simulation_must(proxies_new(simulation_open, NULL, &options, &node, &n->proxies));
    traffic_members(n, members);
    simulation_must(simulation_open(NULL, "store", &options, &n->origin));
    simulation_must(store_l2_open(n->origin, n->proxies, &n->l2));
    simulation_must(fetch_new(
        &(struct fetch_config){
            .workers = WORKERS, .hedge_percent = HEDGE_PERCENT, .on_landed = reader_landed, .arg = n},
        &n->readers));
    simulation_must(fetch_new(&(struct fetch_config){.workers = CACHE_OTHERS_GETS,
                                                     .timeout_ms = CACHE_OTHERS_MS,
                                                     .no_again = true,
                                                     .on_landed = other_landed,
                                                     .arg = n},
                              &n->others));
    simulation_must(peer_clients_new(most, &n->clients));
    n->lookups = queue_new(PEER_WAITING_MAX);
    n->fetches = queue_new(PEER_WAITING_MAX);
    n->has = calloc(world.chunks / 8 + 1, 1);
    n->plan = calloc(world.chunks, sizeof *n->plan);
    if (!n->lookups || !n->fetches || !n->has || !n->plan)
        abort();
    for (unsigned i = 0; i < WARMERS; i++)
        n->all[i].node = n;
}

void traffic_close(struct node *n)
{
    fetch_free(n->readers);
    fetch_free(n->others);
    store_close(n->l2);
    proxies_unref(n->proxies);
    peer_clients_free(n->clients);
    queue_free(n->lookups);
    queue_free(n->fetches);
    free(n->has);
    free(n->plan);
}
