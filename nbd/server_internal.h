/* What the parts of the server share. Everything here is under nbd_server.lock unless it says otherwise; no I/O but
 * sending to a socket that does not block is done for a connection, and that without the lock.
 *
 *   server.c      the thread of the connections: accepts, waits for sockets, looks after the clock
 *   connection.c  one connection: bytes in
 *   replies.c     bytes out, and its end
 *   tls.c         TLS on its socket
 *   workers.c     which request is next, and reading for it
 *   pool.c        tasks, the queues that they wait in, threads
 *
 * A task is a request from the moment that it is whole until its reply has been sent:
 *
 *   received --> waiting[UNSORTED] --> taken by a thread --> out --> sent
 *                       |                    ^
 *                       +-- not cached --> waiting[MISSING]      only where threads or memory are short (workers.c)
 *
 * A reply in out whose client takes nothing is given up where others need its memory: its task goes back to
 * waiting[UNSORTED], and is read for again when the client takes more.
 */
#ifndef GRANARY_NBD_SERVER_INTERNAL_H
#define GRANARY_NBD_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/asker.h"
#include "base/buf.h"
#include "base/log_limit.h"
#include "base/vec.h"
#include "nbd/handshake.h"
#include "nbd/request.h"
#include "nbd/server.h"
#include "nbd/tls.h"

enum {
    CONNECTION_IN = 8192,            /* holds the longest option that is looked at */
    CONNECTION_UNANSWERED_MAX = 256, /* requests of one client; then nothing more of it is received for now */
    REFUSED_MAX = 64,                /* connections beyond the clients, who are told so */
    TICK_MS = 1000,
    LEAVING_MS = 5000, /* that a client who sends nothing more may wait for the next reply; then it is disconnected */
};

/* Of the memory: what is reserved for reads of what is cached, and the largest read; what one client may have; and
 * beside it, what handshakes may say. */
enum { MEMORY_RESERVE_PART = 4, CLIENT_PART = 2, TEXT_PART = 4 };

enum waiting { WAITING_UNSORTED, WAITING_MISSING, WAITINGS };

struct task {
    struct task *next;
    struct connection *connection;
    struct request request;
    struct nbd_wire_simple_reply head;
    size_t head_len; /* 0: data alone, of a handshake */
    struct buf *data;
    size_t sent;       /* bytes of both */
    size_t memory;     /* that it holds */
    size_t *memory_of; /* and of which of the server's */
};

struct task_list {
    struct task *first, *last;
};

struct connection {
    struct nbd_server *server;
    struct connection *prev, *next;         /* of the server's */
    struct connection *ring_next[WAITINGS]; /* in the rings */
    int fd;                                 /* constant */
    uint32_t events;                        /* what is waited for */
    bool refused;                           /* constant: one client too many */
    bool ended;                             /* nothing more is taken from it; dead once all is answered */
    bool dead;                              /* nobody is there; freed once no thread works for it */
    bool sending;                           /* a thread is, without the lock: nobody else touches out's head */
    bool blocked;                           /* the socket takes no more for now */
    unsigned working;                       /* threads, the one that sends too */
    unsigned unanswered;                    /* tasks */
    size_t memory;                          /* of its tasks, of the server's memory */
    size_t out_memory;                      /* of those in out that can be given up */
    bool given_up;                          /* replies were, and it has taken nothing since */
    struct task *broken_off;                /* the reply that was given up half sent: it is the next to be sent */
    struct task_list waiting[WAITINGS], out;
    uint64_t watched_ms;                   /* since when it is looked whether it takes its replies; 0: it is not */
    size_t watched_waiting, watched_taken; /* bytes that waited then, and were taken since */
    uint64_t heard_ms;                     /* when it ended, or took something after that */
    struct tls_session *tls;               /* NULL: plaintext; set before anything is sent by it, then constant */
    struct asker asker;

    /* Of the connections' thread alone. */
    uint64_t since_ms;
    bool securing;     /* TLS's handshake goes on; begins when the answer to STARTTLS has left */
    bool transmitting; /* behind the handshake */
    bool stalled;      /* memory is short */
    struct handshake handshake;
    struct serving_export *export; /* once asked for; constant behind the handshake */
    struct request skipped;        /* is answered when its data have been passed over */
    uint32_t skip;
    size_t in_len;
    uint8_t in[CONNECTION_IN];
};

struct ring {
    struct connection *first, *last;
    size_t count;
};

struct worker {
    pthread_t thread;
    struct nbd_server *server;
    pthread_cond_t wake;
    struct worker *next_idle;
    bool woken;
};

struct nbd_server {
    struct nbd_server_config config;
    unsigned reserve; /* threads that take only what is cached */
    unsigned tick_ms; /* how often the clients' times are looked at */
    pthread_mutex_t lock;
    int epoll, wake_fd;
    pthread_t thread;
    struct connection *first; /* all that are not dead */
    struct connection *dead;  /* to be freed; by next */
    unsigned connections;     /* all that are not freed */
    struct ring rings[WAITINGS];
    VEC(struct worker *) workers;
    void *(*run)(void *worker);
    struct worker *idle; /* the last one that worked comes first: its caches are warm */
    unsigned busy, reserve_busy;
    unsigned starting;   /* threads that have not looked for work yet: each starts the next one, where it is needed */
    bool threads_short;  /* one could not be started; the next tick logs it */
    size_t memory;       /* of reads */
    size_t large_memory; /* of a read that is too large for that: of one at a time */
    size_t text_memory;  /* of what handshakes say */
    uint64_t short_ms;   /* when a request last waited for memory */
    bool draining, ending;
    uint64_t drain_until_ms;
    struct log_limit complaints;

    /* Of the connections' thread alone. */
    bool paused; /* no connection is accepted: descriptors or memory are short */
    char description[SERVING_DESCRIPTION_MAX];
};

/* ---- pool.c ---- */

void task_list_push(struct task_list *l, struct task *t);
void task_list_push_first(struct task_list *l, struct task *t);
struct task *task_list_pop(struct task_list *l);
void task_free_locked(struct task *t);
/* A task holds so much from now on, of one of the server's. */
void task_take_memory_locked(struct task *t, size_t bytes, size_t *of);
void task_give_memory_locked(struct task *t);

/* The connections that have something waiting. */
void ring_push(struct ring *ring, enum waiting which, struct connection *c);
struct connection *ring_pop(struct ring *ring, enum waiting which);

/* run: of each thread; its argument is a struct worker. */
GR_MUST_CHECK int pool_start(struct nbd_server *s, void *(*run)(void *worker));
void pool_stop(struct nbd_server *s); /* no connection is left */
void pool_queue_locked(struct task *t);
/* The same, without waking a thread. A reply that was broken off comes before the client's others. */
void pool_push_locked(struct task *t, enum waiting which);
void pool_forget_locked(struct connection *c); /* what waits of it */
/* A task has come, or memory has become free: a thread looks for work, where there is any. */
void pool_wake_locked(struct nbd_server *s);
/* The calling thread waits until it is woken. */
void pool_idle_locked(struct worker *w);

/* ---- replies.c ---- */

/* Send what it takes of out. The lock is let go meanwhile. */
void connection_send_locked(struct connection *c);
/* Its socket takes more. */
void connection_unblock_locked(struct connection *c);
/* Give up a reply, so that a client gets so much memory: of that which takes nothing and has the most. False: there is
 * none. Who takes nothing either gets nothing so, and who has memory already gets no more than the other one keeps:
 * such clients would only take it from each other in turn. */
bool replies_give_up_locked(const struct connection *by, size_t need);
/* The reply is complete. */
void connection_answer_locked(struct connection *c, struct task *t);
/* Nothing more is taken from it; it ends when all is answered. */
void connection_end_locked(struct connection *c);
/* It ends now. */
void connection_kill_locked(struct connection *c);
/* What its socket is waited for, after a change of that. */
void connection_wait_locked(struct connection *c);
/* After each change of it: it may be the last. */
void connection_settle_locked(struct connection *c);
/* A thread has ended its work for it. */
void connection_left_locked(struct connection *c);
/* Has it ended, and waits in vain for what was asked before? */
bool connection_is_gone_locked(const struct connection *c, uint64_t now_ms);
/* Has it taken too little of what waits for it? */
bool connection_is_slow_locked(struct connection *c, uint64_t now_ms);
void connection_free(struct connection *c);

/* ---- connection.c ---- */

/* By the connections' thread, without the lock. -ENOMEM; the descriptor is the connection's, or closed. */
GR_MUST_CHECK int connection_new(struct nbd_server *s, int fd, bool refused);
/* Likewise: bytes have come; go on with those that are there. */
void connection_receive(struct connection *c);
void connection_continue(struct connection *c);

/* ---- workers.c ---- */

/* A thread of the pool: reads for one request after another. */
void *workers_run(void *worker);

#endif
