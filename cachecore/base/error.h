/* Errors. A function that can fail returns 0 or a negative errno. The function that detects the failure also sets one
 * sentence, which names the thing and the remedy. Its callers pass the code up unchanged; only front ends and the
 * command line print the sentence.
 *
 * The codes have fixed meanings:
 *
 *   -ENOENT              absent
 *   -EBADMSG             corrupt
 *   -EAGAIN, -ETIMEDOUT  temporary: worth a retry
 *   -ESTALE              there is another version than the one requested, or the store is no longer one
 *   -EEXIST              a condition of a write (if-absent, if-match) did not hold
 *   -EINVAL              wrong input from the user
 *   -EACCES              refused by the other side
 *   -ENOKEY              refused by the other side because of the credentials: so will everything else be
 *   -EKEYREJECTED        not signed by a key that is trusted
 *   -ENOMEM, -ENOSPC     as usual
 *   -EIO                 everything else
 *
 * The sentence belongs to the calling thread. Every function here works on that thread's sentence alone.
 */
#ifndef GRANARY_BASE_ERROR_H
#define GRANARY_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { ERROR_TEXT_MAX = 512 }; /* bytes of a sentence, with the final NUL */

/* An error on its way to another thread: the worker that failed takes it, the waiter restores it. */
struct error {
    int code;               /* 0 or negative errno */
    unsigned retry_after_s; /* see error_retry_after */
    char text[ERROR_TEXT_MAX];
};

/* Set the calling thread's sentence; returns code, for `return error_set(-EBADMSG, ...)`. The text is cut to
 * ERROR_TEXT_MAX, and control bytes become '?', so that a hostile name cannot break a log line. Keeps errno. Arguments
 * may point into error_text(). */
int error_set(int code, const char *fmt, ...) GR_PRINTF(2, 3);

/* Put "prefix: " before the calling thread's sentence; returns code. For a caller that knows what the failed work was
 * for. */
int error_prefix(int code, const char *fmt, ...) GR_PRINTF(2, 3);

/* Set the sentence "out of memory"; returns -ENOMEM. It names no operation, because the remedy is always the same. */
int error_no_memory(void);

#ifdef __clang_analyzer__ /* the analyzer sees one file at a time and would follow paths on which an error is 0 */
#define error_set(code, ...) ((error_set)(code, __VA_ARGS__), -EIO)
#define error_prefix(code, ...) ((error_prefix)(code, __VA_ARGS__), -EIO)
#define error_no_memory() ((error_no_memory)(), -ENOMEM)
#endif

/* Note how many seconds the other side asks us to wait before a retry, as in HTTP's Retry-After (0: it did not say).
 * The number stays with the sentence until the thread's next error_set. Returns code. */
int error_retry_after(int code, unsigned seconds);
unsigned error_retry_after_s(void);

/* Return how many sentences the calling thread has set so far. Comparing two counts shows whether a call set one. */
unsigned error_count(void);

/* Return the calling thread's sentence; never NULL. Valid until the thread's next error_set. */
const char *error_text(void);

/* Does rc concern only the thing that was requested, absent or corrupt? Any other error would likely hit the next
 * request as well. */
static inline bool error_of_one_thing(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG;
}

/* Copy code, the calling thread's sentence and its retry delay into *out. */
void error_take(struct error *out, int code);

/* Make *e the calling thread's error; returns e->code. Counts as a sentence set. */
int error_restore(const struct error *e);

#endif
