/* For tests that start threads of their own. */
#ifndef GRANARY_TESTS_UNIT_THREADS_H
#define GRANARY_TESTS_UNIT_THREADS_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What cmocka's assertions are elsewhere: those would jump out of another thread's stack. The format says more. */
#define must(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "FAILED: %s: ", #condition);                                                               \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

#endif
