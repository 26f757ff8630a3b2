/* Clocks. Durations and deadlines use CLOCK_MONOTONIC, which an administrator cannot set; see also thread_cond_init
 * (base/thread.h).
 */
#ifndef GRANARY_BASE_CLOCK_H
#define GRANARY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds or milliseconds on CLOCK_MONOTONIC, which never jumps and stops while the machine is suspended. */
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

/* A time of clock_now_us or clock_now_ms as the deadline of pthread_cond_timedwait, for a condition made by
 * thread_cond_init. */
static inline struct timespec clock_at_us(uint64_t now_us)
{
    return (struct timespec){.tv_sec = (time_t)(now_us / 1000000), .tv_nsec = (long)(now_us % 1000000) * 1000};
}
static inline struct timespec clock_at_ms(uint64_t now_ms)
{
    return clock_at_us(now_ms * 1000);
}

/* Milliseconds on CLOCK_BOOTTIME, which keeps counting while the machine is suspended: for deadlines that other
 * machines watch, such as leases. */
static inline uint64_t clock_boot_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#endif
