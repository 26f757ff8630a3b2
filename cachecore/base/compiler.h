/* Compiler attributes and the few macros that every file may use. */
#ifndef GRANARY_BASE_COMPILER_H
#define GRANARY_BASE_COMPILER_H

#define GR_MUST_CHECK __attribute__((warn_unused_result))
#define GR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define GR_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* One argument is evaluated twice: pass no calls that have side effects or are expensive. */
#define GR_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GR_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Round n up to a multiple of p, a power of two. */
#define GR_ALIGN_UP(n, p) (((n) + ((p)-1)) & ~((__typeof__(n))(p)-1))

#endif
