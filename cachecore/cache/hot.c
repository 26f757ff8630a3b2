/* The table of first hits. A chunk's digest chooses its word, and a new chunk overwrites what it finds there. A word
 * is a tag from the digest, the time of the first hit, and which work is queued. Words change by compare-and-swap
 * without a lock; a hit that loses the race is forgotten, which costs at most a later move. */
#include "cache/cache_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/le.h"
#include "base/queue.h"
#include "format/chunk.h"

enum { QUEUE_ITEMS = 256, WORDS_MIN = 1024, WORDS_MAX = 1 << 20, APART_DEFAULT_MS = 1000 };

/* A word: tag (38 bits) | time of the first hit in ms (24 bits, wraps after 4.6 hours) | queued work (2 bits). */
enum { TIME_SHIFT = 2, TIME_BITS = 24, TAG_SHIFT = 26 };
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)

/* The table and the queue. Constant after hot_new but for the words and the counter. */
struct hot {
    struct hot_config config;
    counter dropped;
    _Atomic uint64_t *words;
    uint64_t word_mask;
    struct queue *queue;
};

DEFINE_CLEANUP(hot, struct hot *, hot_free)

static _Atomic uint64_t *word_of(struct hot *h, const struct digest *digest)
{
    return &h->words[le64_get(digest->b + 16) & h->word_mask];
}

/* The tag's bits are disjoint from those that choose the word. */
static uint64_t tag_of(const struct digest *digest)
{
    return le64_get(digest->b + 24) >> TAG_SHIFT << TAG_SHIFT;
}

/* Note a hit and return the work that it makes due, out of `may`. The first hit makes nothing due, and work that is
 * queued already is not due again. */
static unsigned note_hit(struct hot *h, const struct digest *digest, unsigned may)
{
    _Atomic uint64_t *word = word_of(h, digest);
    uint64_t now = clock_now_ms() & TIME_MASK, tag = tag_of(digest);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen >> TAG_SHIFT << TAG_SHIFT != tag) {
        atomic_store_explicit(word, tag | now << TIME_SHIFT, memory_order_relaxed);
        return 0;
    }
    uint64_t ago = (now - (seen >> TIME_SHIFT & TIME_MASK)) & TIME_MASK;
    unsigned due = may & ~(unsigned)(seen & HOT_WORK);
    if (ago < h->config.apart_ms)
        due &= ~(unsigned)HOT_MOVE;
    if (!due ||
        !atomic_compare_exchange_strong_explicit(word, &seen, seen | due, memory_order_relaxed, memory_order_relaxed))
        return 0;
    return due;
}

/* Clear a chunk's word, so that its next hit is a first one. */
static void forget_hit(struct hot *h, const struct digest *digest)
{
    _Atomic uint64_t *word = word_of(h, digest);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen >> TAG_SHIFT << TAG_SHIFT == tag_of(digest))
        (void)atomic_compare_exchange_strong_explicit(word, &seen, 0, memory_order_relaxed, memory_order_relaxed);
}

void hot_hit(struct hot *h, const struct cache_piece *p, bool slow)
{
    bool in_part = p->len != p->ref.plain_len;
    unsigned may = (h->config.to_memory && in_part ? HOT_LIFT : 0) | (slow ? HOT_MOVE : 0);
    unsigned due = may ? note_hit(h, &p->ref.digest, may) : 0;
    if (!due)
        return;
    struct hot_chunk *chunk = malloc(sizeof *chunk);
    if (chunk) {
        *chunk = (struct hot_chunk){.piece = {.ref = p->ref, .len = p->ref.plain_len}, .work = due};
        if (queue_try_push(h->queue, chunk))
            return;
        free(chunk);
    }
    counter_add(&h->dropped, 1);
    forget_hit(h, &p->ref.digest);
}

struct hot_chunk *hot_take(struct hot *h)
{
    return queue_pop(h->queue);
}

void hot_done(struct hot *h, struct hot_chunk *chunk)
{
    forget_hit(h, &chunk->piece.ref.digest);
    free(chunk);
}

void hot_close(struct hot *h)
{
    queue_close(h->queue);
}

uint64_t hot_dropped(struct hot *h)
{
    return counter_get(&h->dropped);
}

int hot_new(const struct hot_config *config, struct hot **out)
{
    CLEANUP(cleanup_hot) struct hot *h = calloc(1, sizeof *h);
    if (!h)
        return error_no_memory();
    h->config = *config;
    if (!h->config.apart_ms)
        h->config.apart_ms = APART_DEFAULT_MS;
    uint64_t words = WORDS_MIN;
    while (words < WORDS_MAX && words < config->capacity / CHUNK_SIZE_DEFAULT)
        words *= 2;
    h->word_mask = words - 1;
    h->words = calloc(words, sizeof *h->words);
    h->queue = queue_new(QUEUE_ITEMS);
    if (!h->words || !h->queue)
        return error_no_memory();
    *out = steal_ptr(&h);
    return 0;
}

void hot_free(struct hot *h)
{
    if (!h)
        return;
    if (h->queue)
        queue_free(h->queue);
    free(h->words);
    free(h);
}
