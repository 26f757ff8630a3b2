/* Time. */
#ifndef GRANARY_BASE_CLOCK_H
#define GRANARY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of a clock that never jumps. */
static inline uint64_t clock_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The same, going on while the machine sleeps: for what others wait for meanwhile. */
static inline uint64_t clock_boot_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#endif
