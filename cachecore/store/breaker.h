/* Who may ask a store that does not answer. While it answers everybody may; after failures in a row the breaker is
 * open, and one operation at a time asks (it probes), until something is answered.
 *
 *   struct breaker_turn t = {0};                one operation
 *   while (breaker_wait(b, &t, ...) == 0)       before each try
 *       breaker_answered(b, &t) or breaker_failed(b, &t, code)
 *
 * Any thread; nothing is held while a store is asked.
 */
#ifndef GRANARY_STORE_BREAKER_H
#define GRANARY_STORE_BREAKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* Members are the breaker's own. */
struct breaker {
    const char *name; /* of the store, for the log */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic bool troubled;         /* failures is not 0: what a good answer has to look at */
    bool open, probing, reported;  /* told: the log has a line of this opening */
    unsigned failures, operations; /* tries that failed in a row, and operations that they were of */
    unsigned waiting;
    uint64_t row; /* which row of failures this is */
    uint64_t since_ms, reported_ms, probed_ms, pause_ms;
    struct error last;
    counter opens, probes;
};

/* One operation's; zeroed at its beginning. */
struct breaker_turn {
    uint64_t row;   /* the last one in which it failed; 0: none */
    uint64_t probe; /* the one in which it probes; 0: it does not */
};

void breaker_init(struct breaker *b, const char *name);
void breaker_release(struct breaker *b);

/* Wait until t's operation may ask the store. 0; -ETIMEDOUT: deadline_ms (on clock_now_ms) has passed; -ECANCELED:
 * *cancel (may be NULL) was set. After these the thread's sentence is the last failure of whoever asked. */
GR_MUST_CHECK int breaker_wait(struct breaker *b, struct breaker_turn *t, uint64_t deadline_ms,
                               const volatile int *cancel);

/* The store has answered something: a refusal, or the first bytes of a long answer. May be called again. */
void breaker_answered(struct breaker *b, struct breaker_turn *t);

/* It has not, or with a passing failure: code and the thread's sentence. Returns whether the breaker is open now. */
bool breaker_failed(struct breaker *b, struct breaker_turn *t, int code);

/* The try ended on this side (no memory): nothing is known of the store, and another operation may ask it. */
void breaker_withdraw(struct breaker *b, struct breaker_turn *t);

void breaker_look(struct breaker *b, struct store_health *out);
void breaker_counters(struct breaker *b, counter_visit *visit, void *arg);

/* A random number of [0, most]: what many did together they do not do together again. */
uint64_t breaker_jitter(uint64_t most);

#endif
