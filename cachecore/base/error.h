/* Errors: a function that can fail returns 0 or a negative errno, and whoever first knows of the
 * failure writes one sentence that names the thing and the remedy. Everybody else passes the code
 * up untouched; only front doors print.
 *
 * Meanings are fixed: -ENOENT absent, -EBADMSG corrupt, -EAGAIN and -ETIMEDOUT worth a retry,
 * -ESTALE another version than the one asked for, -EEXIST a condition (if-absent, if-match) did not
 * hold, -EINVAL wrong input from the user, -EACCES refused by the other side, -ENOMEM, -ENOSPC,
 * -EIO everything else.
 */
#ifndef GRANARY_BASE_ERROR_H
#define GRANARY_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { ERROR_TEXT_MAX = 512 };

/* An error that travels between threads: a worker takes it, the waiter restores it. */
struct error {
    int code; /* 0 or negative errno */
    unsigned retry_after_s;
    char text[ERROR_TEXT_MAX];
};

/* Set the calling thread's sentence and return code (a negative errno), for `return
 * error_set(-EBADMSG, ...)`. The text is cut to ERROR_TEXT_MAX and control bytes are shown as '?',
 * so that hostile names cannot break a log line. errno is left alone.
 */
int error_set(int code, const char *fmt, ...) GR_PRINTF(2, 3);

/* Put "prefix: " before the calling thread's sentence; returns code. For a caller that knows what
 * the work was for. */
int error_prefix(int code, const char *fmt, ...) GR_PRINTF(2, 3);

/* "out of memory", as everybody says it; returns -ENOMEM. What was being done adds nothing: the remedy is the same. */
int error_no_memory(void);

#ifdef __clang_analyzer__ /* it sees one file at a time, and would follow an error that is 0 */
#define error_set(code, ...) ((error_set)(code, __VA_ARGS__), -EIO)
#define error_prefix(code, ...) ((error_prefix)(code, __VA_ARGS__), -EIO)
#define error_no_memory() ((error_no_memory)(), -ENOMEM)
#endif

/* The other side asks to be left alone for so long (0: it does not say); goes with the sentence until the thread's next
 * error_set. Returns code. */
int error_retry_after(int code, unsigned seconds);
unsigned error_retry_after_s(void);

/* How many sentences the calling thread has set: whether a call that failed set one. */
unsigned error_count(void);

/* The calling thread's sentence; never NULL. Valid until the thread's next error_set. */
const char *error_text(void);

/* Is rc about the one thing that was asked for, absent or corrupt? Anything else the next thing would meet too. */
static inline bool error_of_one_thing(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG;
}

/* Copy code and the calling thread's sentence into *out. */
void error_take(struct error *out, int code);

/* Make *e the calling thread's error; returns e->code. */
int error_restore(const struct error *e);

#endif
