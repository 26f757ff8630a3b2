/* The threads that answer a FUSE mount's requests, as many as there are requests to answer. */
#ifndef GRANARY_FUSE_SESSION_H
#define GRANARY_FUSE_SESSION_H

#include "base/compiler.h"
#include "server/serving.h"

enum { SESSION_THREADS = 256 }; /* maximum; a read that waits for a store occupies one */

struct session;

/* Take over fd, a /dev/fuse that is mounted: one that nothing has answered yet, or one whose process has died. fd is
 * owned on success. Makes no thread. -EINVAL: fd is not such a descriptor; -ENOMEM. */
GR_MUST_CHECK int session_open(struct serving *s, int fd, unsigned threads_max, struct session **out);
/* Start the first thread; it makes others as they are needed. */
GR_MUST_CHECK int session_start(struct session *s);
/* Return a descriptor that becomes readable once the mount is gone and no request will come. Owned by the session. */
int session_ended_fd(const struct session *s);
/* Answer the requests in progress and stop; unread requests stay with the kernel for the next process. NULL is allowed.
 */
void session_close(struct session *s);

#endif
