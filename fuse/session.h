/* The threads that answer for a FUSE mount, as many as its requests need. */
#ifndef GRANARY_FUSE_SESSION_H
#define GRANARY_FUSE_SESSION_H

#include "base/compiler.h"
#include "server/serving.h"

enum { SESSION_THREADS = 256 }; /* a read that waits for a store holds one */

struct session;

/* Take over fd, /dev/fuse that is mounted: unanswered until now, or answered by a process that has died since. Owned,
 * if this succeeds. Makes no thread. */
GR_MUST_CHECK int session_open(struct serving *s, int fd, unsigned threads_max, struct session **out);
/* Answer requests, in threads. */
GR_MUST_CHECK int session_start(struct session *s);
/* A descriptor that is readable once the mount is gone: nothing more will be asked. */
int session_ended_fd(const struct session *s);
/* Requests under way are answered to their end, others stay with the kernel. NULL is allowed. */
void session_close(struct session *s);

#endif
