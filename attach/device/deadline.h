/* Calls into the kernel that may never return, with a time limit: a child process makes them. */
#ifndef GRANARY_ATTACH_DEVICE_DEADLINE_H
#define GRANARY_ATTACH_DEVICE_DEADLINE_H

#include <stdint.h>

#include "base/compiler.h"

/* The call to make. Runs in the child process. */
typedef int deadline_work(void *arg);

/* Call work(arg) in a child process and return its result and sentence. work changes nothing in this process.
 * -ETIMEDOUT, without a sentence: it did not return in time; the kernel may or may not finish what was begun. Call it
 * from a process with one thread, since it forks. */
GR_MUST_CHECK int deadline_call(deadline_work *work, void *arg, uint64_t timeout_ms);

#endif
