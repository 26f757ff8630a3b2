/* One log line a slow read: the whole time, split into index, disk, queue and store; "other" is the rest. The chunk
 * with the longest wait is named, with the object it is in. */
#include "image/slow_read.h"

#include <stdio.h>

static double seconds(uint64_t us)
{
    return (double)us / 1e6;
}

/* Describe the chunk with the longest wait, and where it was fetched from. */
static void describe_slowest(const struct cache_served *served, char *out, size_t size)
{
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    const struct chunk_ref *ref = &served->slowest;
    if (!served->slowest_us) {
        *out = 0;
        return;
    }
    snprintf(out, size, "; longest for chunk %s in %s: asked %u times, last of %s", digest_hex(&ref->digest, hex),
             object_key(ref->kind, &ref->object, key), served->store.tries,
             served->store.from ? served->store.from : "nobody");
}

void slow_reads_init(struct slow_reads *s, uint64_t least_us)
{
    *s = (struct slow_reads){.least_us = least_us, .limit = LOG_LIMIT_INIT};
}

/* Counted before the rate limit, so that the counter also covers reads that were not logged. */
void slow_reads_note(struct slow_reads *s, const struct slow_read *read)
{
    if (!s->least_us || read->took_us < s->least_us)
        return;
    const struct cache_served *served = read->served;
    uint64_t known_us = read->index_us + served->disk_us + served->store.queued_us + served->store.get_us;
    char hex[DIGEST_HEX_SIZE], slowest[512];
    counter_add(&s->total, 1);
    describe_slowest(served, slowest, sizeof slowest);
    log_limited(&s->limit, LOG_LEVEL_WARNING,
                "slow read: %llu bytes at %llu of image sha256:%s %s %.3f s: index %.3f, disk %.3f, queue %.3f, store "
                "%.3f, other %.3f%s",
                (unsigned long long)read->len, (unsigned long long)read->offset, digest_hex(read->image, hex),
                read->failed ? "failed after" : "took", seconds(read->took_us), seconds(read->index_us),
                seconds(served->disk_us), seconds(served->store.queued_us), seconds(served->store.get_us),
                seconds(read->took_us > known_us ? read->took_us - known_us : 0), slowest);
    if (s->ask)
        s->ask(s->ask_arg, read->of, read->offset);
}
