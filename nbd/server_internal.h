/* What the server's files share. Everything here is guarded by nbd_server.lock unless it says otherwise. The only I/O
 * for a connection is on sockets that do not block, and it is done without the lock.
 *
 *   server.c      the connections' thread: accepts, waits for sockets, checks the clock
 *   connection.c  one connection: bytes in
 *   replies.c     bytes out, and the end of a connection
 *   tls.c         TLS on its socket
 *   workers.c     which request is next, and reading for it
 *   pool.c        tasks, the queues in which they wait, threads
 *
 * A task is a request from the moment it is complete until its reply has been sent:
 *
 *   received --> waiting[UNSORTED] --> taken by a thread --> out --> sent
 *                       |                    ^
 *                       +-- not cached --> waiting[MISSING]      only where threads or memory are short (workers.c)
 *
 * A reply in `out` whose client takes nothing is dropped when others need its memory: its task goes back to
 * waiting[UNSORTED], and is read again when the client takes more. So does the task of a long reply when a part of it
 * has been sent.
 */
#ifndef GRANARY_NBD_SERVER_INTERNAL_H
#define GRANARY_NBD_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/client.h"
#include "base/log.h"
#include "base/vec.h"
#include "nbd/handshake.h"
#include "nbd/request.h"
#include "nbd/server.h"
#include "nbd/tls.h"

enum {
    CONNECTION_IN = 8192,            /* bytes of input; holds the longest option that is examined */
    CONNECTION_UNANSWERED_MAX = 256, /* requests of one client in flight; at this number no more are received */
    REFUSED_MAX = 64,                /* connections over the limit that still get a refusal with a message */
    TICK_MS = 1000,
    LEAVING_MS =
        5000, /* a client that has ended its input waits this long for the next reply before it is disconnected */
};

/* Parts of the memory, as divisors: reserved for reads of cached data, which is also the most that one reply holds; for
 * one client; and, in addition, for the messages of handshakes. */
enum { MEMORY_RESERVE_PART = 4, CLIENT_PART = 2, TEXT_PART = 4 };

/* Why a task waits: nobody has looked whether it is cached, or it is not. */
enum waiting { WAITING_UNSORTED, WAITING_MISSING, WAITINGS };

/* A request and its reply, or a message of a handshake. */
struct task {
    struct task *next;
    struct connection *connection;
    struct request request;
    bool alone; /* it was put back once: it is not read together with others */
    struct nbd_wire_simple_reply head;
    size_t head_len;   /* 0: data only, of a handshake */
    struct buf *data;  /* a part of the reply's data, or all */
    size_t data_at;    /* where in the reply's data the part begins */
    size_t sent;       /* bytes sent of head and data together */
    size_t memory;     /* bytes it holds */
    size_t *memory_of; /* the server's sum that they count in */
};

struct task_list {
    struct task *first, *last;
};

/* A client's connection. It is freed by the connections' thread, once it is dead and no thread works for it. */
struct connection {
    struct nbd_server *server;
    struct connection *prev, *next;         /* in the server's list */
    struct connection *ring_next[WAITINGS]; /* the next one in each of the server's rings */
    int fd;                                 /* constant */
    uint32_t events;                        /* epoll events that are waited for */
    bool refused;                           /* constant: over the limit of clients, to be refused */
    bool ended;                             /* no more input is taken; it dies when everything is answered */
    bool dead;                              /* disconnected; freed when no thread works for it */
    bool receiving;                         /* the connections' thread uses its input without the lock */
    bool kept;                              /* a worker receives in its place */
    bool sending;                           /* a thread sends without the lock: no other may change the head of `out` */
    bool blocked;                           /* the socket accepts no more for now */
    unsigned working;                       /* threads that work for it, the sending one included */
    unsigned unanswered;                    /* tasks not answered yet */
    size_t memory;                          /* bytes its tasks hold of the server's memory */
    size_t out_memory;                      /* bytes of those replies in `out` that can be dropped */
    bool given_up;                          /* replies were dropped, and the client has taken nothing since */
    struct task *broken_off;                /* a reply that is half sent and not in memory; it must be sent next */
    struct task_list waiting[WAITINGS], out;
    uint64_t watched_ms;                   /* since when it is watched whether it takes its replies; 0: it is not */
    size_t watched_waiting, watched_taken; /* bytes that waited at that time, and bytes taken since */
    uint64_t heard_ms;                     /* when its input ended, or when it last took something after that */
    struct tls_session *tls;               /* NULL: plaintext; set before anything is sent through it, then constant */
    struct client client;
    struct store_share *store; /* of its export's store; NULL before it has one, constant after the handshake */

    /* Used by the connections' thread only, or by the worker that keeps it. */
    uint64_t since_ms; /* when it was accepted */
    bool securing;     /* the TLS handshake is in progress; it begins when the answer to STARTTLS has been sent */
    bool transmitting; /* the handshake is over */
    bool stalled;      /* its handshake waits, because memory is short */
    struct handshake handshake;
    struct serving_export *export; /* the export it opened; constant after the handshake */
    struct request skipped;        /* a refused request, answered when its data have been skipped */
    uint32_t skip;                 /* bytes of it still to skip */
    size_t in_len;
    uint8_t in[CONNECTION_IN];
};

/* What the ordinary threads work on for the clients of one store. Stores are told apart by a hash: two that share a
 * slot share its part of threads and memory. */
struct store_share {
    unsigned busy;
    size_t memory;
    const struct connection *first; /* holds nothing, and waits for this share before all others; NULL: none does */
};

enum { STORE_SHARES = 64 };

/* A queue of connections that have a task waiting; clients take turns in it. */
struct ring {
    struct connection *first, *last;
    size_t count;
};

/* A short read in flight at the cache's disk. */
struct reading {
    struct image_cached_read read; /* the first member */
    struct task *task;             /* NULL: unused */
};

/* A thread of the pool. */
struct worker {
    pthread_t thread;
    struct nbd_server *server;
    pthread_cond_t wake;
    struct worker *next_idle;
    bool woken;
    struct connection *kept; /* the client that it receives from; NULL: none */

    /* Used by the thread itself. */
    struct cache_reader *reader; /* NULL: memory was short */
    size_t in_flight, bytes;     /* reads, and bytes of them */
    struct reading readings[IMAGE_READS_MAX];
};

/* The server. `lock` guards everything that is not constant and not the connections' thread's. */
struct nbd_server {
    struct nbd_server_config config;
    unsigned reserve; /* threads that take only requests for cached data */
    unsigned tick_ms; /* how often the clients' deadlines are checked */
    pthread_mutex_t lock;
    int epoll, wake_fd;
    pthread_t thread;
    struct connection *first; /* connections that are not dead */
    struct connection *dead;  /* dead ones to be freed, linked by next */
    unsigned connections;     /* connections that are not freed */
    struct ring rings[WAITINGS];
    VEC(struct worker *) workers;
    /* What each thread runs. */
    void *(*run)(void *worker);
    struct worker *idle;         /* a stack: the thread that worked last, whose caches are warm, is woken first */
    unsigned busy, reserve_busy; /* threads that work on any request; on cached ones, from the reserve */
    size_t busy_memory;          /* bytes of the requests that the `busy` ones work on */
    struct store_share stores[STORE_SHARES];
    unsigned starting;  /* threads that have not looked for work yet; each starts the next one if more work waits */
    unsigned waking;    /* threads that were idle, have been woken, and have not looked for work yet; likewise */
    bool threads_short; /* a thread could not be started; the next tick logs it and tries again */
    size_t memory;      /* bytes held by reads */
    size_t text_memory; /* bytes held by messages of handshakes */
    uint64_t short_ms;  /* when a request or handshake last waited for memory */
    bool draining, ending;
    uint64_t drain_until_ms;
    struct log_limit complaints;

    /* Used by the connections' thread only. */
    bool paused; /* accepting is paused: descriptors or memory are short */
    char description[SERVING_DESCRIPTION_MAX];
};

/* ---- pool.c ---- */

void task_list_push(struct task_list *l, struct task *t);
void task_list_push_first(struct task_list *l, struct task *t);
struct task *task_list_pop(struct task_list *l);
void task_free_locked(struct task *t);
/* The task holds `bytes` from now on, counted in *of, one of the server's sums. */
void task_take_memory_locked(struct task *t, size_t bytes, size_t *of);
/* The task's memory is released. */
void task_give_memory_locked(struct task *t);

/* Append a connection to a ring; take the first. */
void ring_push(struct ring *ring, enum waiting which, struct connection *c);
struct connection *ring_pop(struct ring *ring, enum waiting which);

/* Start the first threads. Each runs `run` with its struct worker. -ENOMEM, -EAGAIN. */
GR_MUST_CHECK int pool_start(struct nbd_server *s, void *(*run)(void *worker));
void pool_stop(struct nbd_server *s); /* end and join all threads; no connection may be left */
/* Queue a task without waking a thread. A reply that is half sent goes before the client's others. */
void pool_push_locked(struct task *t, enum waiting which);
/* Take the first task of a client out of its queue. */
struct task *pool_take_locked(struct connection *c, enum waiting which);
void pool_forget_locked(struct connection *c); /* drop the connection's waiting tasks */
/* Wake or start one thread, if any task waits: a task has come, or memory became free. */
void pool_wake_locked(struct nbd_server *s);
/* Make the calling thread idle until it is woken. */
void pool_idle_locked(struct worker *w);

/* ---- replies.c ---- */

/* The bytes of a reply's data that have been sent. */
size_t reply_data_sent(const struct task *t);
/* Send as much of `out` as the socket accepts. Releases the lock meanwhile. */
void connection_send_locked(struct connection *c);
/* The socket accepts more: send. */
void connection_unblock_locked(struct connection *c);
/* Drop one reply so that client `by` gets `need` bytes. It is a reply of the client that takes nothing and holds the
 * most. false: there is none. A client that takes nothing gets no memory this way, and one that has memory gets no more
 * than the other keeps: otherwise such clients would take memory from each other in turn. */
bool replies_give_up_locked(const struct connection *by, size_t need);
/* The reply is complete: queue it, to be sent by connection_send_locked. */
void connection_reply_locked(struct connection *c, struct task *t);
/* The same, and send it. */
void connection_answer_locked(struct connection *c, struct task *t);
/* Take no more input; the connection ends when everything is answered. */
void connection_end_locked(struct connection *c);
/* Disconnect now. */
void connection_kill_locked(struct connection *c);
/* Update the events that are waited for; call it after any change to them. */
void connection_wait_locked(struct connection *c);
/* A thread has finished its work for the connection. */
void connection_left_locked(struct connection *c);
/* Has the client ended its input, and no reply been sent for too long? */
bool connection_is_lost_locked(const struct connection *c, uint64_t now_ms);
/* Has the client taken too little of what waits for it, while others need the memory? */
bool connection_is_slow_locked(struct connection *c, uint64_t now_ms);
/* By the connections' thread, without the lock. */
void connection_free(struct connection *c);

/* ---- connection.c ---- */

/* Begin a connection. Called by the connections' thread without the lock, like the next two. -ENOMEM. The descriptor
 * belongs to the connection, or is closed. */
GR_MUST_CHECK int connection_new(struct nbd_server *s, int fd, bool refused);
/* Bytes have arrived: receive them and act on them. connection_continue acts on bytes received before. Both do nothing
 * for a client that a worker keeps. */
void connection_receive(struct connection *c);
void connection_continue(struct connection *c);
/* A worker receives from now on, in place of the connections' thread. false: not now, or there is nothing to come. */
bool connection_keep_locked(struct connection *c);
/* The connections' thread receives again. The connection may be freed afterwards. */
void connection_let_go_locked(struct connection *c);
/* By a worker: wait up to wait_ms until other_fd (-1: none) can be read or, if it keeps the client, for input, and act
 * on that. Releases the lock meanwhile. false: no input came. */
bool connection_listen_locked(struct connection *c, int other_fd, int wait_ms, bool kept);

/* ---- workers.c ---- */

/* What each thread of the pool runs: it reads for one request after another. */
void *workers_run(void *worker);

#endif
