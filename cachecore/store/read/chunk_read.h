/* Reading chunks from a store: one ranged get over neighbouring chunks of one object, decoded and
 * verified one by one as their bytes arrive. Shared by fetch, verify, compaction and repair.
 */
#ifndef GRANARY_STORE_READ_CHUNK_READ_H
#define GRANARY_STORE_READ_CHUNK_READ_H

#include "format/chunk.h"
#include "store/store.h"

/* Called once for each ref, in order, as soon as it is whole: rc 0 and a buffer (the callee takes
 * the reference), or rc < 0 (thread's sentence set) and NULL. stored: the ref's stored bytes as they
 * came, proven too, for the time of the call; NULL with an error. */
typedef void chunk_read_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored);

/* Read refs[0..n): all of one object, ascending offsets, gaps allowed (their bytes are skipped).
 * done is called exactly once a ref, also when the get fails in the middle; a chunk that fails
 * verification does not stop the others. Returns the get's own result; the refs' results went to
 * done. */
int chunk_read_run(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_done *done, void *arg);

/* One chunk, blocking. */
GR_MUST_CHECK int chunk_read_one(struct store *s, const struct chunk_ref *ref, struct buf **out);

#endif
