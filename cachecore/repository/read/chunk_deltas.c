/* Deltas of a run are small and lie together, and so mostly do their bases. So the deltas wait until all of the run has
 * arrived. Then they are sorted by the places of their bases, and each stretch of neighbouring bases is one get:
 *
 *   deltas, by base:  [d1 d2 d3 d4][d5 d6 ... d40][d41 ... d118]
 *                      pack a       pack b, as much as CHUNK_BASES_BYTES have room for
 *
 * A base is verified like any chunk before it is used, and is no delta itself: nothing here recurs.
 */
#include "repository/read/chunk_deltas.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

void chunk_deltas_release(struct chunk_deltas *d)
{
    for (size_t i = 0; i < d->list.len; i++)
        buf_unref(d->list.items[i].stored);
    vec_release(&d->list);
}

int chunk_deltas_add(struct chunk_deltas *d, const struct chunk_ref *ref, size_t number, const void *stored)
{
    char hex[DIGEST_HEX_SIZE];
    const struct chunk_ref base = chunk_base_ref(ref);
    if (chunk_is_delta(&base))
        return error_set(-EBADMSG,
                         "chunk %s is a delta, and its base cannot be used: it is a delta, too; build the image again "
                         "with --parent none",
                         digest_hex(&ref->digest, hex));
    CLEANUP_BUF struct buf *copy = buf_new(ref->stored_len);
    if (!copy)
        return error_no_memory();
    memcpy(copy->data, stored, ref->stored_len);
    const struct chunk_delta fresh = {.ref = ref, .number = number, .stored = copy, .base = base};
    int rc = vec_push(&d->list, fresh);
    if (!rc)
        (void)steal_ptr(&copy);
    return rc;
}

static int by_base(const void *a, const void *b)
{
    const struct chunk_delta *x = a, *y = b;
    int order = memcmp(x->base.object.b, y->base.object.b, DIGEST_SIZE);
    if (order)
        return order;
    if (x->base.offset != y->base.offset)
        return x->base.offset < y->base.offset ? -1 : 1;
    return x->number < y->number ? -1 : 1; /* of one place in two forms, one is wrong; each is a base of its own */
}

/* Do two deltas have one base? */
static bool same_base(const struct chunk_ref *a, const struct chunk_ref *b)
{
    return digest_equal(&a->object, &b->object) && a->offset == b->offset && a->stored_len == b->stored_len &&
           a->stored_crc == b->stored_crc && a->flags == b->flags && a->plain_len == b->plain_len &&
           digest_equal(&a->digest, &b->digest);
}

/* The deltas of one stretch of bases, while these arrive. */
struct stretch {
    const struct chunk_delta *deltas;
    size_t count;
    const struct chunk_ref **bases; /* one for each delta at most */
    size_t *first;                  /* of a base, its first delta; ascending */
    size_t base_count;
    const char *url;
    chunk_read_done *done;
    void *arg;
};

/* Decode the deltas of a base that has arrived, or fail them. */
static void base_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    const struct stretch *s = arg;
    CLEANUP_BUF struct buf *base = plain;
    const size_t end = i + 1 < s->base_count ? s->first[i + 1] : s->count;
    struct error e;
    error_take(&e, rc ? error_prefix(rc, "the base of a delta cannot be used") : 0);
    for (size_t k = s->first[i]; k < end; k++) {
        const struct chunk_delta *d = &s->deltas[k];
        struct buf *out = NULL;
        int result = rc ? error_restore(&e) : chunk_decode_upon(d->ref, base, d->stored->data, &out);
        if (result && !rc)
            result = error_prefix(result, "%s", s->url);
        s->done(s->arg, d->number, result, out, result ? NULL : d->stored->data);
    }
}

/* Find the stretch that begins with s->deltas, among `left` deltas. */
static void find_stretch(struct stretch *s, size_t left)
{
    size_t bytes = 0;
    s->base_count = 0;
    for (s->count = 0; s->count < left; s->count++) {
        const struct chunk_ref *base = &s->deltas[s->count].base;
        const struct chunk_ref *last = s->base_count ? s->bases[s->base_count - 1] : NULL;
        if (last && same_base(last, base))
            continue;
        if (last && (!chunk_reads_on(last, base) || bytes + base->plain_len > CHUNK_BASES_BYTES))
            return;
        bytes += base->plain_len;
        s->first[s->base_count] = s->count;
        s->bases[s->base_count++] = base;
    }
}

static void fail_all(struct chunk_deltas *d, int rc, chunk_read_done *done, void *arg)
{
    struct error e;
    error_take(&e, rc);
    for (size_t i = 0; i < d->list.len; i++)
        done(arg, d->list.items[i].number, error_restore(&e), NULL, NULL);
}

void chunk_deltas_finish(struct chunk_deltas *d, const char *url, chunk_read_bases *read, void *read_arg,
                         chunk_read_done *done, void *arg)
{
    const size_t n = d->list.len;
    if (!n)
        return;
    CLEANUP_FREE const struct chunk_ref **bases = calloc(n, sizeof *bases);
    CLEANUP_FREE size_t *first = calloc(n, sizeof *first);
    if (!bases || !first) {
        fail_all(d, error_no_memory(), done, arg);
    } else {
        struct stretch s = {.bases = bases, .first = first, .url = url, .done = done, .arg = arg};
        qsort(d->list.items, n, sizeof *d->list.items, by_base);
        for (size_t at = 0; at < n; at += s.count) {
            s.deltas = &d->list.items[at];
            find_stretch(&s, n - at);
            read(read_arg, s.bases, s.base_count, base_done, &s);
        }
    }
    chunk_deltas_release(d);
}
