/* Time. */
#ifndef GRANARY_BASE_CLOCK_H
#define GRANARY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Micro- and milliseconds of a clock that never jumps. */
static inline uint64_t clock_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
static inline uint64_t clock_now_ms(void)
{
    return clock_now_us() / 1000;
}

/* That moment as pthread_cond_timedwait wants it, of a condition on CLOCK_MONOTONIC. */
static inline struct timespec clock_at_us(uint64_t now_us)
{
    return (struct timespec){.tv_sec = (time_t)(now_us / 1000000), .tv_nsec = (long)(now_us % 1000000) * 1000};
}
static inline struct timespec clock_at_ms(uint64_t now_ms)
{
    return clock_at_us(now_ms * 1000);
}

/* Milliseconds of a clock that goes on while the machine sleeps: for what others wait for meanwhile. */
static inline uint64_t clock_boot_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#endif
