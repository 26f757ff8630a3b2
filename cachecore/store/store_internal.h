/* What the implementations of store.h and the layers share: gets that continue elsewhere, the HTTP client's settings,
 * and the circuit breaker. */
#ifndef GRANARY_STORE_STORE_INTERNAL_H
#define GRANARY_STORE_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/http.h"
#include "store/store.h"

/* ---- for implementations (store.c) ---- */

/* Return -EBADMSG with the sentence that the object is shorter than the range. */
int store_shorter(const struct store *s, const char *key);

/* A caller's sink and how many bytes it has received, so that a get can continue elsewhere after them. */
struct store_resume {
    store_sink *sink;
    void *arg;
    uint64_t done; /* bytes passed on */
    int stopped;   /* what the caller's sink returned */
};
/* The sink to pass to the lower store. arg is the struct store_resume. */
int store_pass_on(void *arg, const void *data, size_t len);

/* ---- the backends that speak HTTP (backend/store_http.c) ---- */

/* Fill in the HTTP client's configuration from the store options: connections, timeouts, rate, cancel. */
void store_http_config(const struct store_options *options, struct http_config *out);

/* ---- the circuit breaker (breaker.c) ----
 *
 * Limits the requests to a store that does not answer. While the store answers, operations pass freely. After several
 * failures in a row the breaker opens: one operation at a time may send a request, the probe, and the others wait. The
 * first answer closes it.
 *
 *   struct breaker_turn t = {0};                one operation
 *   while (breaker_wait(b, &t, ...) == 0)       before each try
 *       breaker_answered(b, &t) or breaker_failed(b, &t, code) or breaker_withdraw(b, &t)
 *
 * Any thread. No lock is held during a request. */

/* `lock` guards all members but name, troubled and refusing (atomic) and the counters. A "row" is a series of
 * failures without an answer in between. Rows are numbered, so that a late report about an earlier row is recognized.
 */
struct breaker {
    const char *name; /* the store's URL, for the log; borrowed */
    pthread_mutex_t lock;
    pthread_cond_t changed;        /* a probe ended, or the breaker opened or closed */
    _Atomic bool troubled;         /* failures > 0; lets good answers return without the lock */
    bool open, probing, reported;  /* reported: this opening was logged */
    unsigned failures, operations; /* tries that failed in this row, and the operations that made them */
    unsigned waiting;              /* operations in breaker_wait */
    uint64_t row;                  /* number of the current row */
    /* On clock_now_ms: the row's first failure and its last, the last log line, the end of the last probe; and the
     * pause after that probe. */
    uint64_t since_ms, failed_ms, reported_ms, probed_ms, pause_ms;
    struct error last;                     /* the last failure */
    _Atomic bool refusing;                 /* refusals > 0; as troubled */
    unsigned refusals;                     /* objects that the store refused, since it last accepted an operation */
    uint32_t refused[STORE_REFUSED_MAX];   /* the CRC-32C of their keys */
    uint64_t refused_since_ms, refused_ms; /* on clock_now_ms: the first refusal and the last */
    struct error refusal;                  /* the last one */
    counter opens, probes;
};

/* One operation's state; the operation zeroes it before its first try. */
struct breaker_turn {
    uint64_t row;   /* the row in which it last failed; 0: none */
    uint64_t probe; /* the row for which it probes; 0: it does not */
};

/* name is borrowed and must outlive the breaker. */
void breaker_init(struct breaker *b, const char *name);
void breaker_release(struct breaker *b);

/* Wait until t's operation may send a request. 0: it may. -ETIMEDOUT: deadline_ms (on clock_now_ms) has passed;
 * -ECANCELED: *cancel (may be NULL) was set. On failure the thread's sentence is the store's last failure. */
GR_MUST_CHECK int breaker_wait(struct breaker *b, struct breaker_turn *t, uint64_t deadline_ms,
                               const volatile int *cancel);

/* Report that the store has answered anything: a refusal, or the first bytes of a long answer. Closes the breaker. May
 * be called repeatedly. */
void breaker_answered(struct breaker *b, struct breaker_turn *t);

/* Report a try without an answer, or with a passing failure: code, and the thread's sentence. Return whether the
 * breaker is open now. */
bool breaker_failed(struct breaker *b, struct breaker_turn *t, int code);

/* Report a try that ended on this side (no memory, interrupted): it says nothing about the store, and if it was the
 * probe, another operation may probe. */
void breaker_withdraw(struct breaker *b, struct breaker_turn *t);

/* Report that the store refused an operation, in a way that likely concerns the next one too (wrong keys, no such
 * bucket): the object's key or a listing's prefix, code, and the thread's sentence. Says nothing about whether it
 * answers; for the store's health alone. An object counts once: it alone may be forbidden, or archived. */
void breaker_refused(struct breaker *b, const char *key, int code);
/* Report that the store carried out an operation, or that only the requested object was in the way. */
void breaker_accepted(struct breaker *b);

/* Fill in the store's health. */
void breaker_look(struct breaker *b, struct store_health *out);
void breaker_counters(struct breaker *b, counter_visit *visit, void *arg);

#endif
