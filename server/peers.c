/* Answers other nodes from this node's cache, as a shared cache proxy does (docs/reference/peer-protocol.md). A node
 * keeps chunks and not packs, so a request names the chunks that its range consists of.
 *
 *     daemon's thread   request, connection suspended --> lookups
 *     LOOKERS threads   lookups: all chunks cached? --> body, connection resumed
 *                          `-- no --> fetches
 *     FETCHERS threads  fetches: bring the missing ones into the cache --> body, connection resumed
 *     daemon's thread   body sent, or dropped with its connection
 *
 * So a request that waits for the store delays none for what is cached. A request that cannot be served, for whatever
 * reason, is answered with 404, and its node goes to the store: an answer may always be missing, but never wrong. */
#include "server/server_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/queue.h"
#include "base/text.h"
#include "base/thread.h"
#include "net/http.h"
#include "net/peer_key.h"
#include "server/http_daemon.h"
#include "server/peer_ask.h"
#include "server/peer_clients.h"
#include "server/peer_limits.h"
#include "server/peer_tls.h"

enum {
    IDLE_TIMEOUT_S = 120,         /* longer than a node keeps an idle connection */
    STRANGER_TIMEOUT_S = 10,      /* of a connection on which no node has shown itself yet */
    LOOKS = 3,                    /* into the cache, while what is missing is being cached by others */
    SEND_MS = 60000,              /* for an answer; the node that asks has long given up then */
    PLAIN_MAX = 64 << 20,         /* bytes that a fetcher decompresses for one request */
    CONNECTION_MEMORY = 16 << 10, /* bytes of a request's header */
};

struct peers {
    struct stack *stack;
    struct store_node node;                      /* its address, and the key or certificates of all nodes */
    char weight[16];                             /* of this node, for HTTP_NODE_HEADER */
    struct MHD_OptionItem tls[PEER_TLS_OPTIONS]; /* of the daemon, where there is TLS */
    struct http_port port;
    struct queue *lookups, *fetches;
    pthread_t threads[PEER_LOOKERS + PEER_FETCHERS];
    size_t thread_count, looker_count;
    struct peer_clients *clients;

    /* Requests whose answers are being sent, the longest first. The daemon's thread's. */
    struct peer_request *sending, *sending_last;
    _Atomic uint64_t send_ms; /* constant, except that tests shorten it */
};

/* A client's connection. The daemon's thread's. */
struct link {
    struct peer_client *client; /* a reference; NULL: it is refused */
    bool checked, good;         /* where there is TLS; good: its certificate is a node's */
    bool known;                 /* a node has shown itself on it */
};

/* One request. It belongs to the daemon's thread but while it is in a queue or with the thread that took it out. */
struct peer_request {
    struct peers *peers;
    struct MHD_Connection *connection;
    struct peer_ask ask;
    size_t n;
    struct cache_piece *pieces; /* n whole chunks */
    struct peer_client *client; /* a reference, once it is asked */
    bool asked;                 /* it has been in a queue */
    _Atomic bool decided;       /* no thread has it any more */
    uint8_t *body;              /* ask.len bytes; NULL: the answer is a refusal */
    uint64_t asked_ms;          /* when it arrived, on clock_now_ms */

    bool is_sent; /* it is in peers->sending */
    struct peer_request *next, *previous;
    uint64_t sent_ms; /* since when */
};

/* ---- bodies ---- */

static bool body_new(struct peer_request *r)
{
    if (!peer_client_take(r->client, PEER_BODY_BYTES, r->ask.len))
        return false;
    r->body = pages_get(r->ask.len);
    if (!r->body)
        peer_client_give(r->client, PEER_BODY_BYTES, r->ask.len);
    return r->body;
}

static void body_free(struct peer_request *r)
{
    if (!r->body)
        return;
    pages_put(r->body, r->ask.len);
    r->body = NULL;
    peer_client_give(r->client, PEER_BODY_BYTES, r->ask.len);
}

/* ---- answers that are being sent ---- */

static void begin_sending(struct peer_request *r)
{
    struct peers *p = r->peers;
    r->is_sent = true;
    r->sent_ms = clock_now_ms();
    r->previous = p->sending_last;
    *(r->previous ? &r->previous->next : &p->sending) = r;
    p->sending_last = r;
}

static void end_sending(struct peer_request *r)
{
    struct peers *p = r->peers;
    if (!r->is_sent)
        return;
    *(r->previous ? &r->previous->next : &p->sending) = r->next;
    *(r->next ? &r->next->previous : &p->sending_last) = r->previous;
    r->is_sent = false;
    r->next = r->previous = NULL;
}

/* Cut off clients that take an answer too slowly: it holds memory that others need. Only a request that needs memory
 * checks for them. */
static void cut_off_slow(struct peers *p)
{
    uint64_t now = clock_now_ms();
    for (struct peer_request *r; (r = p->sending) && now - r->sent_ms >= p->send_ms;) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const struct linger at_once = {.l_onoff = 1}; /* what the kernel holds of it goes, too */
        if (info && !setsockopt(info->connect_fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once))
            shutdown(info->connect_fd, SHUT_RDWR);
        end_sending(r); /* it is freed with its connection */
    }
}

void peers_send_within(struct peers *p, uint64_t ms)
{
    p->send_ms = ms;
}

/* The daemon's thread alone. */
static void request_free(struct peer_request *r)
{
    end_sending(r);
    body_free(r);
    peer_client_unref(r->client);
    free(r->pieces);
    free(r);
}

/* ---- what is asked for ---- */

static const char *header_of(const struct peer_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

/* Does it come from a node, as far as the key says? */
static bool has_key(const struct peer_request *r, const char *list)
{
    char key[OBJECT_KEY_MAX];
    const struct peer_get get = {
        .key = object_key(r->ask.kind, &r->ask.object, key), .off = r->ask.off, .len = r->ask.len, .chunks = list};
    struct peer_key *of_all = r->peers->node.key;
    return !of_all || peer_key_check(of_all, &get, time(NULL), header_of(r, PEER_PROOF_HEADER));
}

static struct link *link_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* And as far as its certificate says? A connection is looked at once. */
static bool has_certificate(const struct peer_request *r)
{
    struct link *link = link_of(r->connection);
    if (!r->peers->node.tls)
        return true;
    if (link && !link->checked) {
        link->good = peer_tls_is_node(r->connection);
        link->checked = true;
    }
    return link && link->good;
}

/* Take the request apart. 0, or the status to refuse it with. */
static unsigned parse_request(struct peer_request *r, const char *url, const char *method)
{
    struct chunk_ref refs[CHUNK_LIST_MAX];
    if (!has_certificate(r))
        return MHD_HTTP_UNAUTHORIZED;
    const char *list = header_of(r, CHUNK_LIST_HEADER);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    if (!peer_ask_key(url, &r->ask))
        return MHD_HTTP_NOT_FOUND;
    if (!list || !peer_ask_range(header_of(r, MHD_HTTP_HEADER_RANGE), &r->ask))
        return MHD_HTTP_BAD_REQUEST;
    if (!has_key(r, list))
        return MHD_HTTP_UNAUTHORIZED;
    if (!peer_ask_chunks(list, &r->ask, refs, &r->n))
        return MHD_HTTP_BAD_REQUEST;
    r->pieces = calloc(r->n, sizeof *r->pieces);
    if (!r->pieces)
        return MHD_HTTP_NOT_FOUND;
    for (size_t i = 0; i < r->n; i++)
        r->pieces[i] = (struct cache_piece){.ref = refs[i], .len = refs[i].plain_len};
    return 0;
}

/* A GET has no body. One that says it has is refused before anything of it arrives: it might never end. */
static bool has_body(const struct peer_request *r)
{
    const char *len = header_of(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return header_of(r, MHD_HTTP_HEADER_TRANSFER_ENCODING) || (len && strcmp(len, "0") != 0);
}

/* ---- answering ---- */

/* Copy what is cached of the chunks; what lies between them was not asked for and is zero. Returns how many are left,
 * which come first in pieces then. */
static size_t copy_cached(struct peer_request *r)
{
    bool got[CHUNK_LIST_MAX];
    size_t left = 0;
    for (size_t i = 0; i < r->n; i++)
        r->pieces[i].dst = r->body + (r->pieces[i].ref.offset - r->ask.off);
    cache_read_stored(stack_cache(r->peers->stack), r->pieces, r->n, got);
    for (size_t i = 0; i < r->n; i++) {
        const struct cache_piece piece = r->pieces[i];
        if (got[i])
            continue;
        r->pieces[i] = r->pieces[left];
        r->pieces[left++] = piece;
    }
    return left;
}

/* Fetch the first n chunks into the body. */
static int fetch_missing(struct peer_request *r, size_t n)
{
    uint64_t plain = 0, stored = 0;
    for (size_t i = 0; i < n; i++) {
        plain += r->pieces[i].ref.plain_len;
        stored += r->pieces[i].ref.stored_len;
    }
    if (plain > PLAIN_MAX)
        return -ENOBUFS;
    int rc = cache_get_stored(stack_cache(r->peers->stack), r->pieces, n, r->asked_ms + PEER_ANSWER_MS);
    counter_add(&stack_peer_counts(r->peers->stack)->fetched, rc ? 0 : stored);
    return rc;
}

/* Make the body from the cache and, if fetches is set, the store. Looks again for what has been cached meanwhile. */
static bool make_body(struct peer_request *r, bool fetches)
{
    size_t left;
    int rc = -EAGAIN;
    if (!body_new(r))
        return false;
    memset(r->body, 0, r->ask.len);
    for (unsigned i = 0; rc == -EAGAIN && i < LOOKS; i++) {
        left = copy_cached(r);
        rc = !left ? 0 : fetches ? fetch_missing(r, left) : -ENODATA;
    }
    if (rc)
        body_free(r);
    return !rc;
}

/* The request is decided: let the daemon's thread send the answer. The request may be freed from then on. */
static void decide(struct peer_request *r)
{
    struct stack_peer_counts *counts = stack_peer_counts(r->peers->stack);
    counter_add(r->body ? &counts->served : &counts->refused, 1);
    counter_add(&counts->bytes, r->body ? r->ask.len : 0);
    peer_client_give(r->client, PEER_REQUESTS, 1);
    atomic_store(&r->decided, true);
    MHD_resume_connection(r->connection);
}

/* Is every chunk cached, in whatever form? No I/O. */
static bool is_cached(const struct peer_request *r)
{
    bool all = true;
    for (size_t i = 0; all && i < r->n; i++)
        all = cache_has(stack_cache(r->peers->stack), &r->pieces[i].ref.digest);
    return all;
}

/* May the missing chunks be fetched? Not while the store is silent: the node that asks would lose patience, and then
 * think that it is this one that is silent. The store alone is asked, never another node, which might ask this one. */
static bool may_fetch(struct peer_request *r)
{
    struct store *store = stack_peer_store(r->peers->stack);
    struct store_health health;
    if (!store || stack_is_leaving(r->peers->stack))
        return false;
    store_health(store, &health);
    for (size_t i = 0; i < r->n; i++)
        r->pieces[i].store = store;
    return !health.silent;
}

/* A request that waits for the store holds no body: those for what is cached need the memory. */
static void look(struct peer_request *r)
{
    if (is_cached(r) && make_body(r, false)) {
        decide(r);
        return;
    }
    if (!may_fetch(r) || !queue_try_push(r->peers->fetches, r))
        decide(r);
}

static void fetch(struct peer_request *r)
{
    if (clock_now_ms() - r->asked_ms < PEER_WAIT_MS)
        (void)make_body(r, true);
    decide(r);
}

static void *run_looker(void *arg)
{
    const struct peers *p = arg;
    for (struct peer_request *r; (r = queue_pop(p->lookups));)
        look(r);
    return NULL;
}

static void *run_fetcher(void *arg)
{
    const struct peers *p = arg;
    for (struct peer_request *r; (r = queue_pop(p->fetches));)
        fetch(r);
    return NULL;
}

/* ---- the daemon ---- */

static void free_sent(void *arg)
{
    request_free(arg);
}

/* For HTTP_NODE_HEADER. */
static const char *weight_of(const struct peers *p)
{
    return stack_is_leaving(p->stack) ? "0" : p->weight;
}

/* Queue the answer; the request goes with it. */
static enum MHD_Result send_body(struct peer_request *r, void **state)
{
    char range[80];
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(r->ask.len, r->body, free_sent, r);
    if (!response)
        return MHD_NO;
    *state = NULL;
    begin_sending(r);
    snprintf(range, sizeof range, "bytes %llu-%llu/*", (unsigned long long)r->ask.off,
             (unsigned long long)(r->ask.off + r->ask.len - 1));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, range);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    MHD_add_response_header(response, HTTP_NODE_HEADER, weight_of(r->peers));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"); /* true for these chunks alone */
    return http_daemon_queue(r->connection, MHD_HTTP_PARTIAL_CONTENT, response);
}

/* The header tells the node that asks that this is a node, which has its reasons, and no failing proxy. */
static enum MHD_Result send_refusal(const struct peer_request *r, unsigned status)
{
    const char *text = status == MHD_HTTP_BAD_REQUEST ? "a node answers GETs with Range and " CHUNK_LIST_HEADER
                                                        " only, and without a body\n"
                       : status == MHD_HTTP_UNAUTHORIZED ? "no valid key or certificate of the nodes\n"
                                                         : "not here\n";
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
    MHD_add_response_header(response, HTTP_NODE_HEADER, weight_of(r->peers));
    return http_daemon_queue(r->connection, status, response);
}

/* Refuse what is no request of a node, or one that cannot be taken in. */
static enum MHD_Result refuse(const struct peer_request *r, unsigned status)
{
    struct stack_peer_counts *counts = stack_peer_counts(r->peers->stack);
    counter_add(status == MHD_HTTP_UNAUTHORIZED ? &counts->strangers : &counts->refused, 1);
    return send_refusal(r, status);
}

/* A node has shown itself: its connection may be idle for longer than a stranger's. */
static void know(struct MHD_Connection *connection)
{
    struct link *link = link_of(connection);
    if (!link || link->known)
        return;
    link->known = true;
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S);
}

/* Let the other threads have a whole request, unless its client has its share of them. */
static enum MHD_Result take_in(struct peer_request *r)
{
    const struct link *link = link_of(r->connection);
    cut_off_slow(r->peers);
    if (!link || !link->client || !peer_client_take(link->client, PEER_REQUESTS, 1))
        return refuse(r, MHD_HTTP_NOT_FOUND);
    r->client = peer_client_ref(link->client);
    r->asked = true;
    r->asked_ms = clock_now_ms();
    MHD_suspend_connection(r->connection); /* before another thread may resume it */
    if (!queue_try_push(r->peers->lookups, r))
        decide(r);
    return MHD_YES;
}

/* libmicrohttpd's access handler: called with the header alone, then, unless the request was refused, again
 * when the request is complete, and again after its connection was resumed. A request whose connection is suspended
 * belongs to other threads until it is decided. */
static enum MHD_Result on_peer_request(void *arg, struct MHD_Connection *connection, const char *url,
                                       const char *method, const char *version, const char *data, size_t *data_len,
                                       void **state)
{
    struct peers *p = arg;
    enum MHD_Result refusal;
    if (http_daemon_refuses(connection, *state, &refusal))
        return refusal;
    struct peer_request *r = *state;
    if (!r) {
        *state = r = calloc(1, sizeof *r);
        if (r)
            *r = (struct peer_request){.peers = p, .connection = connection};
        return !r ? MHD_NO : has_body(r) ? refuse(r, MHD_HTTP_BAD_REQUEST) : MHD_YES;
    }
    if (r->asked)
        return !atomic_load(&r->decided) ? MHD_YES
               : r->body                 ? send_body(r, state)
                                         : send_refusal(r, MHD_HTTP_NOT_FOUND);
    unsigned status = parse_request(r, url, method);
    if (status)
        return refuse(r, status);
    know(connection);
    return take_in(r);
}

/* libmicrohttpd's note that a request is over. */
static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    if (*state && !http_daemon_owns(*state))
        request_free(*state);
    *state = NULL;
}

/* libmicrohttpd's note that a connection begins or ends; *context is the connection's. */
static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct peers *p = arg;
    struct link *link = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *context = link = calloc(1, sizeof *link); /* NULL: it is refused */
        if (link)
            link->client = peer_client_get(p->clients, info ? info->client_addr : NULL);
    } else if (link) {
        peer_client_unref(link->client);
        free(link);
        *context = NULL;
    }
}

/* ---- life ---- */

int peers_open(const struct store_node *node, struct stack *stack, struct peers **out)
{
    CLEANUP_FREE struct peers *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    p->stack = stack;
    p->node = *node;
    p->send_ms = SEND_MS;
    snprintf(p->weight, sizeof p->weight, "%u", stack_node_weight(stack));
    p->port = (struct http_port)HTTP_PORT_INIT("peer-listen");
    int rc = http_port_open(&p->port, node->address);
    if (rc)
        return rc;
    rc = node->tls ? peer_tls_begin(node->tls, p->tls) : 0; /* here, where what is wrong ends the start */
    if (rc) {
        http_port_close(&p->port);
        return rc;
    }
    *out = steal_ptr(&p);
    return 0;
}

unsigned peers_port(const struct peers *p)
{
    return p->port.number;
}

/* Start one thread of those that take requests. */
static int start_thread(struct peers *p, void *(*run)(void *))
{
    int rc = thread_start(&p->threads[p->thread_count], run, p);
    p->thread_count += !rc;
    return rc;
}

static int start_daemon(struct peers *p)
{
    enum { OURS = 6 };
    struct rlimit files;
    const unsigned connections = peer_connections_max(getrlimit(RLIMIT_NOFILE, &files) ? 1024 : files.rlim_cur);
    struct MHD_OptionItem options[OURS + PEER_TLS_OPTIONS + 1] = {
        {MHD_OPTION_CONNECTION_LIMIT, connections, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, connections / 8 + 1, NULL}, /* several nodes may share an address */
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, STRANGER_TIMEOUT_S, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, p},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, NULL}};
    size_t n = OURS;
    unsigned flags = MHD_ALLOW_SUSPEND_RESUME;
    if (p->node.tls) {
        memcpy(options + n, p->tls, sizeof p->tls);
        n += PEER_TLS_OPTIONS;
        flags |= MHD_USE_TLS;
    }
    options[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return http_port_start(&p->port, flags, on_peer_request, p, options);
}

int peers_start(struct peers *p)
{
    int rc = 0;
    static const size_t most[PEER_HOLDINGS] = {
        [PEER_REQUESTS] = 2 * PEER_WAITING_MAX, [PEER_BODY_BYTES] = PEER_BODIES_MAX};
    p->lookups = queue_new(PEER_WAITING_MAX);
    p->fetches = queue_new(PEER_WAITING_MAX);
    if (!p->lookups || !p->fetches)
        return error_no_memory();
    rc = peer_clients_new(most, &p->clients);
    for (size_t i = 0; !rc && i < PEER_LOOKERS; i++)
        rc = start_thread(p, run_looker);
    p->looker_count = p->thread_count;
    for (size_t i = 0; !rc && i < PEER_FETCHERS; i++)
        rc = start_thread(p, run_fetcher);
    if (rc)
        return error_prefix(rc, "peer-listen");
    return start_daemon(p);
}

static void join(struct peers *p, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        pthread_join(p->threads[i], NULL);
}

/* The queues first: every request that is in them is decided, so that no connection stays suspended, which the daemon
 * would wait for. The lookers end before the fetchers, to which they pass requests. */
void peers_close(struct peers *p)
{
    if (!p)
        return;
    if (p->lookups)
        queue_close(p->lookups);
    join(p, 0, p->looker_count);
    if (p->fetches)
        queue_close(p->fetches);
    join(p, p->looker_count, p->thread_count);
    http_port_close(&p->port);
    if (p->node.tls)
        peer_tls_end();
    queue_free(p->lookups);
    queue_free(p->fetches);
    peer_clients_free(p->clients);
    free(p);
}
