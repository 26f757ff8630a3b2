/* Calls of the kernel that may never come back, with an end: they are made by a child process. */
#ifndef GRANARY_ATTACH_DEVICE_DEADLINE_H
#define GRANARY_ATTACH_DEVICE_DEADLINE_H

#include <stdint.h>

#include "base/compiler.h"

typedef int deadline_work(void *arg);

/* work(arg), which changes nothing of this process, and its -errno with its sentence. -ETIMEDOUT without a sentence: it
 * has not come back for so long; what the kernel has begun for it goes on, or not. From a process's only thread. */
GR_MUST_CHECK int deadline_call(deadline_work *work, void *arg, uint64_t timeout_ms);

#endif
