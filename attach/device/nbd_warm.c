/* One connection by libnbd with IN_FLIGHT requests. Work comes from two places:
 *
 *   ranges   requested in order, CHUNKS chunks at a time
 *   again    failed requests; repeated first, chunk by chunk, to find the chunk at fault
 *
 * A slot adds at most one range to `again`, and takes new work only from there until it is empty. So IN_FLIGHT places
 * are enough.
 */
#include "attach/device/device_internal.h"

#include <errno.h>
#include <libnbd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/rate.h"
#include "base/vec.h"
#include "format/chunk.h"

enum {
    IN_FLIGHT = 64,     /* requests at a time */
    CHUNKS = 16,        /* a server works on no more of a request at once; also the step of progress */
    CHUNKS_LIMITED = 4, /* under a bandwidth limit: what was paid for at once arrives at once */
    STEP_MS = 500,      /* between two reports of progress, at most */
    REQUEST_MAX = 32 << 20,
    PROBE_AFTER_S = 30,
    PROBE_EVERY_S = 10,
    PROBES = 6,
};

/* Bytes [off, end) of the export. */
struct range {
    uint64_t off, end;
};

/* A request in flight; done and error are set by libnbd's callback. */
struct slot {
    struct range range;
    bool busy, done;
    int error;
};

/* One run. */
struct warming {
    struct nbd_handle *h;
    const struct nbd_warm *config;
    struct nbd_warm_state *state;
    uint64_t chunk;
    struct rate rate;         /* where the config has a limit */
    VEC(struct range) ranges; /* what to cache, in order, still to be requested from range_at on */
    size_t range_at;
    struct range again[IN_FLIGHT]; /* failed requests, to be repeated chunk by chunk */
    size_t again_count, busy;
    struct slot slots[IN_FLIGHT];
};

DEFINE_CLEANUP(nbd, struct nbd_handle *, nbd_close)

/* Return -EIO with libnbd's reason. */
static int failed(const char *what)
{
    return error_set(-EIO, "%s: %s", what, nbd_get_error() ? nbd_get_error() : "the server is gone");
}

/* ---- what is to be cached ---- */

/* Add a range, merged with the last one if it continues it. */
static int nbd_warm_add(struct warming *w, uint64_t off, uint64_t end)
{
    const struct range range = {.off = off, .end = end};
    struct range *last = w->ranges.len ? &w->ranges.items[w->ranges.len - 1] : NULL;
    if (end <= off)
        return 0;
    w->state->bytes_total += end - off;
    if (last && last->end == off) {
        last->end = end;
        return 0;
    }
    return vec_push(&w->ranges, range);
}

/* Add the metadata: the first chunk and the front, then the region that the description names. */
static int add_metadata(struct warming *w, const char *description, uint64_t size)
{
    unsigned long long off, len, front;
    const char *at = description ? strstr(description, " metadata ") : NULL;
    if (!at || sscanf(at, " metadata %llu+%llu front %llu", &off, &len, &front) != 3 || off > size ||
        len > size - off || front > size)
        return error_set(-ENOTSUP,
                         "the export at %s does not say where its metadata is: it is not one of this version "
                         "of Granary; use --all",
                         w->config->uri);
    uint64_t first_end = GR_MAX((uint64_t)front, GR_MIN(w->chunk, size));
    int rc = nbd_warm_add(w, 0, first_end);
    return rc ? rc : nbd_warm_add(w, GR_MAX((uint64_t)off, first_end), off + len);
}

/* Add a trace's chunks. NBD knows only offsets, so the trace must be of this very content. */
static int add_traced(struct warming *w, const char *description, uint64_t size)
{
    const struct trace *t = w->config->trace;
    struct digest root;
    if (nbd_content_root(description, &root) || !digest_equal(&root, &t->content_root) || size != t->size)
        return error_set(-EINVAL,
                         "the trace is of another image than the export at %s has, and by NBD there are no digests to "
                         "find its chunks by; give a mount point or a control socket",
                         w->config->uri);
    w->chunk = t->chunk_size;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < t->count; i++) {
        uint64_t off = (uint64_t)trace_entry_at(t, i).chunk * t->chunk_size;
        rc = nbd_warm_add(w, off, GR_MIN(off + t->chunk_size, size));
    }
    return rc;
}

/* Have TCP probe the server. An answer may take as long as the store does, so its delay does not tell a slow store from
 * a dead machine. No effect on a unix socket. */
static void keep_alive(struct nbd_handle *h)
{
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, PROBES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, (PROBE_AFTER_S + PROBES * PROBE_EVERY_S) * 1000}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(options); i++)
        (void)setsockopt(nbd_aio_get_fd(h), options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
}

/* Connect, and collect the ranges. */
static int nbd_warm_connect_to(struct warming *w)
{
    const char *uri = w->config->uri;
    if (nbd_set_full_info(w->h, true) || nbd_connect_uri(w->h, uri))
        return failed(uri);
    keep_alive(w->h);
    int64_t size = nbd_get_size(w->h), chunk = nbd_get_block_size(w->h, LIBNBD_SIZE_PREFERRED);
    if (size < 0)
        return failed(uri);
    if (nbd_can_cache(w->h) != 1)
        return error_set(-ENOTSUP, "the server at %s cannot cache on demand (NBD_CMD_CACHE)", uri);
    w->chunk = chunk > 0 && chunk <= REQUEST_MAX / CHUNKS ? (uint64_t)chunk : CHUNK_SIZE_DEFAULT;
    CLEANUP_FREE char *description = nbd_get_export_description(w->h);
    if (w->config->metadata)
        return add_metadata(w, description, (uint64_t)size);
    if (!w->config->trace)
        return nbd_warm_add(w, 0, (uint64_t)size);
    int rc = add_metadata(w, description, (uint64_t)size);
    return rc ? rc : add_traced(w, description, (uint64_t)size);
}

/* ---- requests ---- */

/* Return the next request's range; false when none is left. Requests end where chunks end. */
static bool next(struct warming *w, struct range *out)
{
    if (!w->again_count && w->range_at == w->ranges.len)
        return false;
    struct range *from = w->again_count ? &w->again[w->again_count - 1] : &w->ranges.items[w->range_at];
    uint64_t step = w->chunk * (w->again_count ? 1 : w->config->bwlimit ? CHUNKS_LIMITED : CHUNKS);
    *out = (struct range){from->off, GR_MIN((from->off / step + 1) * step, from->end)};
    from->off = out->end;
    if (from->off == from->end && w->again_count)
        w->again_count--;
    else if (from->off == from->end)
        w->range_at++;
    return true;
}

/* libnbd's completion callback. */
static int on_answer(void *arg, int *error)
{
    struct slot *slot = arg;
    slot->done = true;
    slot->error = *error;
    return 1; /* retired */
}

/* Fill the free slots with requests. */
static int nbd_warm_ask(struct warming *w)
{
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        struct slot *slot = &w->slots[i];
        if (slot->busy)
            continue;
        *slot = (struct slot){0};
        if (!next(w, &slot->range))
            return 0;
        nbd_completion_callback callback = {.callback = on_answer, .user_data = slot};
        if (w->config->bwlimit) { /* waits; the server works on the requests in flight meanwhile */
            (void)rate_take(&w->rate, slot->range.end - slot->range.off, NULL);
            w->config->progress(w->config->arg, w->state);
        }
        slot->busy = true;
        w->busy++;
        if (nbd_aio_cache(w->h, slot->range.end - slot->range.off, slot->range.off, callback, 0) < 0)
            return failed(w->config->uri);
    }
    return 0;
}

/* Free a slot and count its answer; a failed request of several chunks is queued again. */
static int take_answer(struct warming *w, struct slot *slot)
{
    struct nbd_warm_state *s = w->state;
    uint64_t len = slot->range.end - slot->range.off;
    slot->busy = false;
    w->busy--;
    if (!slot->error) {
        s->bytes_done += len;
    } else if (len > w->chunk) {
        w->again[w->again_count++] = slot->range;
    } else {
        if (s->failed_chunks < NBD_WARM_NAMED)
            s->failed_at[s->failed_chunks] = slot->range.off;
        s->failed_bytes += len;
        if (++s->failed_chunks > NBD_WARM_FAILED_MAX)
            return error_set(-EIO, "%s: more than %d chunks could not be cached; the server's log says why",
                             w->config->uri, NBD_WARM_FAILED_MAX);
    }
    return 0;
}

/* The struct lives longer than the handle: closing the handle runs the callbacks of requests in flight. */
int nbd_warm(const struct nbd_warm *config, struct nbd_warm_state *out)
{
    *out = (struct nbd_warm_state){0};
    struct warming w = {.config = config, .state = out};
    CLEANUP(cleanup_nbd) struct nbd_handle *h = nbd_create();
    if (!h)
        return error_no_memory();
    w.h = h;
    rate_init(&w.rate, GR_MAX(config->bwlimit, (uint64_t)1));
    int rc = nbd_warm_connect_to(&w);
    if (!rc)
        rc = nbd_warm_ask(&w);
    while (!rc && w.busy) {
        if (nbd_poll(h, STEP_MS) < 0 || !nbd_aio_is_ready(h))
            rc = nbd_aio_is_processing(h) ? 0 : failed(config->uri);
        for (size_t i = 0; !rc && i < IN_FLIGHT; i++)
            if (w.slots[i].busy && w.slots[i].done)
                rc = take_answer(&w, &w.slots[i]);
        config->progress(config->arg, out);
        if (!rc)
            rc = nbd_warm_ask(&w);
    }
    if (!rc)
        nbd_shutdown(h, 0);
    vec_release(&w.ranges);
    rate_release(&w.rate);
    return rc;
}
