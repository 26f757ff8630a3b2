/* Reads chunks from a store: one ranged get over neighbouring chunks of an object, each decoded and verified as soon
 * as its last byte arrives. Shared by fetch, verify, compaction and repair. Any thread; blocks. */
#ifndef GRANARY_REPOSITORY_READ_CHUNK_READ_H
#define GRANARY_REPOSITORY_READ_CHUNK_READ_H

#include "format/chunk.h"
#include "store/store.h"

/* Called once for each ref, in order, as soon as the chunk is complete. rc 0: plain is its data, and the callee takes
 * the reference; stored points to its stored bytes, verified too, valid during the call. rc < 0: both are NULL, and
 * the thread's sentence says why. */
typedef void chunk_read_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored);

/* Read refs[0..n). They should be in one object with ascending offsets; gaps are allowed and skipped, and anything
 * else costs more gets. done is called exactly once for each ref, even if the get fails in the middle; a chunk that
 * fails verification does not stop the others. Returns the first failure of a get, or -EBADMSG for an impossible ref;
 * done gets the results of the refs. */
int chunk_read_run(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_done *done, void *arg);

/* Read one chunk. The caller drops the reference *out. -EBADMSG: damaged; -ENOENT: its object is missing; else the
 * store's errors. */
GR_MUST_CHECK int chunk_read_one(struct store *s, const struct chunk_ref *ref, struct buf **out);

#endif
