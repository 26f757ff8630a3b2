/* Reads an image's chunks from its store, each decoded and verified: a run of neighbours by one get, all of an image in
 * order, or bytes at any address. Blocks. */
#ifndef GRANARY_REPOSITORY_READ_CHUNK_READ_H
#define GRANARY_REPOSITORY_READ_CHUNK_READ_H

#include "format/chunk.h"
#include "format/manifest.h"
#include "store/store.h"

/* ---- runs (chunk_read.c): one ranged get over neighbouring chunks of an object; any thread ---- */

enum { CHUNK_BASES_BYTES = 4 << 20 }; /* plain bytes of bases that a run holds at a time; one base at least */

/* Called once for each ref as soon as the chunk is complete: in order, but for deltas, which come after all others,
 * when their bases are there. rc 0: plain is its data, and the callee takes the reference; stored points to its stored
 * bytes, verified too, valid during the call. rc < 0: both are NULL, and the thread's sentence says why. */
typedef void chunk_read_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored);

/* Read refs[0..n). They should be in one object with ascending offsets; gaps are allowed and skipped, and anything
 * else costs more gets. done is called exactly once for each ref, even if the get fails in the middle; a chunk that
 * fails verification does not stop the others. Memory: the stored bytes of the run's deltas, and CHUNK_BASES_BYTES of
 * their bases. Returns the first failure of a get, or -EBADMSG for an impossible ref; done gets the results of the
 * refs. */
int chunk_read_run(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_done *done, void *arg);

/* Get `n` chunks, which are bases of deltas, close together in one object and in ascending order, and report them as
 * chunk_read_run does. */
typedef void chunk_read_bases(void *arg, const struct chunk_ref *const *bases, size_t n, chunk_read_done *done,
                              void *done_arg);

/* The same, but bases come from `read`, called in this thread, with read_arg. NULL: from s, as chunk_read_run does. */
int chunk_read_run_upon(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_bases *read,
                        void *read_arg, chunk_read_done *done, void *arg);

/* Is it worth reading both chunks by one get, a before b? Not over a gap of more than CHUNK_READ_GAP bytes, nor from
 * one stripe of the object into the next, which another node may keep. */
enum { CHUNK_READ_GAP = 64 << 10 };
static inline bool chunk_reads_on(const struct chunk_ref *a, const struct chunk_ref *b)
{
    const uint64_t end = (uint64_t)a->offset + a->stored_len;
    return digest_equal(&a->object, &b->object) && b->offset >= end && b->offset - end <= CHUNK_READ_GAP &&
           a->offset / STORE_STRIPE == b->offset / STORE_STRIPE;
}

/* Return the end of the stretch from refs[begin] on that one get of at most `most` bytes should read, of n chunks in
 * order of their places. It has one chunk at least, whatever its length. */
static inline size_t chunk_reads_end(const struct chunk_ref *const *refs, size_t begin, size_t n, uint64_t most)
{
    size_t end = begin + 1;
    while (end < n && chunk_reads_on(refs[end - 1], refs[end]) &&
           (uint64_t)refs[end]->offset + refs[end]->stored_len - refs[begin]->offset <= most)
        end++;
    return end;
}

/* Read one chunk. The caller drops the reference *out. -EBADMSG: damaged; -ENOENT: its object is missing; else the
 * store's errors. */
GR_MUST_CHECK int chunk_read_one(struct store *s, const struct chunk_ref *ref, struct buf **out);
/* The same, and the base of a delta comes from `read`, as in chunk_read_run_upon. */
GR_MUST_CHECK int chunk_read_one_upon(struct store *s, const struct chunk_ref *ref, chunk_read_bases *read,
                                      void *read_arg, struct buf **out);

/* ---- all chunks of an image, read by a pool of threads and delivered in address order in the calling thread
 * (chunk_stream.c). Memory: at most 2 * threads + 2 runs of neighbouring chunks, of CHUNK_STREAM_JOB bytes each, and
 * what chunk_read_run needs for each thread ---- */

enum { CHUNK_STREAM_JOB = 4 << 20, CHUNK_STREAM_THREADS = 8, CHUNK_STREAM_THREADS_MAX = 256 };

/* One chunk, or a run of holes. */
struct chunk_item {
    uint64_t number, count;      /* first chunk number; number of chunks, above 1 only for holes */
    const struct chunk_ref *ref; /* NULL: holes */
    const uint8_t *data;         /* ref->plain_len bytes, valid during the visit; NULL: holes, or rc is set */
    int rc; /* non-zero: the chunk is corrupt or could not be read; the thread's sentence says why */
};

/* Visits an item; a non-zero result ends the stream and is returned. */
typedef int chunk_stream_visit(void *arg, const struct chunk_item *item);

/* Options of chunk_stream; all zero is valid. */
struct chunk_stream_options {
    unsigned threads;           /* 0: CHUNK_STREAM_THREADS */
    const volatile int *cancel; /* set asynchronously: ends the stream with -ECANCELED; may be NULL */
    /* If set, only stored chunks for which it returns true are read, and holes are left out. Called in the calling
     * thread with visit's arg. */
    bool (*wanted)(void *arg, uint64_t number);
};

/* Visit every chunk in [0, manifest_chunk_count) once, ascending, except those that are not wanted. The index is
 * verified on the way (index_walk). Errors of the index end the stream; a chunk's error is passed to visit. */
GR_MUST_CHECK int chunk_stream(struct store *s, const struct manifest *m, const struct chunk_stream_options *options,
                               chunk_stream_visit *visit, void *arg);

/* ---- bytes at any address (image_bytes.c), for a rebuild, a repair or a comparison, which need little of an image and
 * have no cache directory. The most recently used chunks and index nodes stay in memory, so that neighbouring small
 * files cost one fetch ---- */

enum { IMAGE_BYTES_CHUNKS = 128, IMAGE_BYTES_MEMORY = 32 << 20 };

struct image_bytes;

/* Store and manifest are borrowed and must outlive *out. The caller frees *out with image_bytes_free. -ENOMEM. */
GR_MUST_CHECK int image_bytes_new(struct store *s, const struct manifest *m, struct image_bytes **out);
/* No call may be running. NULL is allowed. */
void image_bytes_free(struct image_bytes *b);
DEFINE_CLEANUP(image_bytes, struct image_bytes *, image_bytes_free)

/* Read exactly len bytes from `address`. -EINVAL: outside the image; -EBADMSG: damaged; otherwise the store's errors.
 * Any thread. */
GR_MUST_CHECK int image_bytes_read(struct image_bytes *b, uint64_t address, uint64_t len, uint8_t *dst);

/* ---- stripes of objects among nodes (STORE_STRIPE) ---- */

/* Does this node keep the chunk for all (store_is_own)? A delta is of use only with its base: each node gets it from
 * the store, and keeps it for itself. */
static inline bool chunk_is_own(struct store *s, const struct chunk_ref *ref)
{
    char key[OBJECT_KEY_MAX];
    return chunk_is_delta(ref) || store_is_own(s, object_key(ref->kind, &ref->object, key), ref->offset);
}

/* The stripe of the last chunk, and an answer that is the same for all of it. All zero: none yet. */
struct chunk_stripe {
    struct digest object;
    uint64_t number;
    bool known, yes;
};
/* Is the chunk in that stripe? If not, its own becomes the last one, and the caller sets `yes`. */
static inline bool chunk_stripe_has(struct chunk_stripe *s, const struct chunk_ref *ref)
{
    const uint64_t number = ref->offset / STORE_STRIPE;
    const bool same = s->known && s->number == number && digest_equal(&s->object, &ref->object);
    if (!same)
        *s = (struct chunk_stripe){.object = ref->object, .number = number, .known = true};
    return same;
}

#endif
