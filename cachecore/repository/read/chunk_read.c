/* One ranged get over a run of chunks. The bytes arrive in pieces of any size:
 *
 *   pieces   |-------------|---------|-----------------------|
 *   chunks     [  A  ]  [      B     ]     [  C  ][   D   ]
 *              in place   gathered         in place
 *
 * A chunk that lies within one piece is decoded in place; one that spans several is gathered in a buffer first. Bytes
 * between chunks are skipped. Each chunk is delivered at once, so a reader waits only for its own bytes. Deltas alone
 * wait for the end of the run, and for their bases (chunk_deltas.c).
 *
 * References are not trusted: a run ends where the next chunk does not begin after the previous one, and a chunk with
 * an impossible length fails without a get. */
#include "repository/read/chunk_read.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/pages.h"
#include "repository/read/chunk_deltas.h"

/* One get in progress, on the stack of chunk_read_run. */
struct run {
    struct store *store;
    const struct chunk_ref *const *refs;
    size_t next, end;   /* the chunk that is due; the end of the run */
    uint64_t at;        /* object offset of the next byte to arrive */
    struct pages piece; /* bytes of the chunk that is due, if it spans several pieces */
    size_t held;        /* bytes gathered there */
    struct chunk_deltas deltas;
    chunk_read_done *done;
    void *arg;
};

/* Can a chunk have this length and offset? Checked before any arithmetic with them. */
static bool length_possible(const struct chunk_ref *ref)
{
    return ref->stored_len > 0 && ref->stored_len <= CHUNK_SIZE_MAX && ref->offset <= UINT32_MAX - ref->stored_len;
}

/* Decode and verify the chunk that is due, and deliver it; or keep it, if it is a delta. */
static void deliver(struct run *r, const void *stored)
{
    struct buf *plain = NULL;
    const size_t i = r->next++;
    const bool delta = chunk_is_delta(r->refs[i]);
    int rc = delta ? chunk_deltas_add(&r->deltas, r->refs[i], i, stored) : chunk_decode(r->refs[i], stored, &plain);
    r->held = 0;
    if (rc)
        rc = error_prefix(rc, "%s", r->store->url);
    if (rc || !delta)
        r->done(r->arg, i, rc, plain, rc ? NULL : stored);
}

/* Gather the next n bytes of the chunk that is due, and deliver it when complete. */
static int gather(struct run *r, const uint8_t *p, size_t n)
{
    uint32_t len = r->refs[r->next]->stored_len;
    if (r->piece.len < len) { /* empty now: the buffer grows only before a chunk's first byte */
        cleanup_pages(&r->piece);
        r->piece = (struct pages){.data = pages_get(len), .len = len};
    }
    if (!r->piece.data) {
        r->piece.len = 0;
        return error_set(-ENOMEM, "chunk read: no memory for %u bytes", len);
    }
    memcpy((uint8_t *)r->piece.data + r->held, p, n);
    r->held += n;
    if (r->held == len)
        deliver(r, r->piece.data);
    return 0;
}

/* The sink of the get: skip, gather or deliver until the piece is used up. */
static int run_sink(void *arg, const void *data, size_t len)
{
    struct run *r = arg;
    const uint8_t *p = data;
    while (len > 0 && r->next < r->end) {
        const struct chunk_ref *ref = r->refs[r->next];
        uint64_t from = ref->offset + r->held; /* the next byte needed */
        if (r->at < from) {
            size_t skip = (size_t)GR_MIN((uint64_t)len, from - r->at);
            p += skip;
            len -= skip;
            r->at += skip;
            continue;
        }
        size_t n = GR_MIN(len, ref->stored_len - r->held);
        if (n == ref->stored_len) {
            deliver(r, p);
        } else {
            int rc = gather(r, p, n);
            if (rc)
                return rc;
        }
        p += n;
        len -= n;
        r->at += n;
    }
    return 0;
}

/* Fail all chunks that were not delivered yet with rc and the thread's sentence. Callbacks may change the sentence, so
 * it is restored each time. */
static void fail_rest(struct run *r, int rc)
{
    struct error e;
    error_take(&e, rc);
    while (r->next < r->end)
        r->done(r->arg, r->next++, error_restore(&e), NULL, NULL);
    (void)error_restore(&e);
}

/* Read refs[next..end) by one get. Their lengths are possible, they ascend, and they are in one object. */
static int read_run(struct run *r)
{
    const struct chunk_ref *first = r->refs[r->next], *last = r->refs[r->end - 1];
    uint64_t len = (uint64_t)last->offset + last->stored_len - first->offset;
    char key[OBJECT_KEY_MAX];
    object_key(first->kind, &first->object, key);
    r->at = first->offset;
    r->held = 0;
    int rc = store_get(r->store, key, first->offset, len, run_sink, r);
    if (rc == 0 && r->next < r->end)
        rc = error_set(-EIO, "%s: %s: fewer bytes arrived than the range asked for", r->store->url, key);
    if (rc)
        fail_rest(r, rc);
    return rc;
}

/* Return the end of the longest run from `begin` on that one get can serve. */
static size_t run_end(const struct chunk_ref *const *refs, size_t begin, size_t n)
{
    size_t end = begin + 1;
    while (end < n && length_possible(refs[end]) && refs[end]->kind == refs[begin]->kind &&
           refs[end]->offset >= (uint64_t)refs[end - 1]->offset + refs[end - 1]->stored_len &&
           digest_equal(&refs[end]->object, &refs[begin]->object))
        end++;
    return end;
}

/* Read runs one after the other. Deltas are left in r->deltas. */
static int read_runs(struct run *r, size_t n)
{
    struct error first = {.code = 0};
    while (r->next < n) {
        int rc;
        if (length_possible(r->refs[r->next])) {
            r->end = run_end(r->refs, r->next, n);
            rc = read_run(r);
        } else {
            r->end = r->next + 1;
            char key[OBJECT_KEY_MAX];
            rc = error_set(-EBADMSG, "%s: a chunk of %u stored bytes at %u in %s is impossible", r->store->url,
                           r->refs[r->next]->stored_len, r->refs[r->next]->offset,
                           object_key(r->refs[r->next]->kind, &r->refs[r->next]->object, key));
            fail_rest(r, rc);
        }
        /* The first failure is the result; the other runs are still read. */
        if (rc && !first.code)
            error_take(&first, rc);
    }
    return first.code ? error_restore(&first) : 0;
}

/* A chunk_read_bases of the store that the deltas come from. */
static void read_bases(void *store, const struct chunk_ref *const *bases, size_t n, chunk_read_done *done,
                       void *done_arg)
{
    struct run r = {.store = store, .refs = bases, .done = done, .arg = done_arg};
    (void)read_runs(&r, n); /* done got the results */
    cleanup_pages(&r.piece);
}

int chunk_read_run_upon(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_bases *read,
                        void *read_arg, chunk_read_done *done, void *arg)
{
    struct run r = {.store = s, .refs = refs, .done = done, .arg = arg};
    struct error e;
    error_take(&e, read_runs(&r, n));
    cleanup_pages(&r.piece);
    chunk_deltas_finish(&r.deltas, s->url, read ? read : read_bases, read ? read_arg : s, done, arg);
    return e.code ? error_restore(&e) : 0;
}

int chunk_read_run(struct store *s, const struct chunk_ref *const *refs, size_t n, chunk_read_done *done, void *arg)
{
    return chunk_read_run_upon(s, refs, n, NULL, NULL, done, arg);
}

/* The result of chunk_read_one. */
struct one {
    int rc;
    struct buf *plain;
};

static void one_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct one *one = arg;
    one->rc = rc;
    one->plain = plain;
}

int chunk_read_one(struct store *s, const struct chunk_ref *ref, struct buf **out)
{
    return chunk_read_one_upon(s, ref, NULL, NULL, out);
}

int chunk_read_one_upon(struct store *s, const struct chunk_ref *ref, chunk_read_bases *read, void *read_arg,
                        struct buf **out)
{
    struct one one = {.rc = -EIO};
    int rc = chunk_read_run_upon(s, &ref, 1, read, read_arg, one_done, &one);
    /* The chunk may be complete although the get failed after it; its verification decides. */
    if (one.rc)
        return rc ? rc : one.rc;
    *out = one.plain;
    return 0;
}
