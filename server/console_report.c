/* The document of /status, and what the page shows besides: the way of a read with the rates and durations of the last
 * seconds, strips of what is cached, what the cache has saved.
 *
 * Each document leaves a sample of the counters behind. Rates compare with the third sample before, durations with the
 * oldest one. Nobody makes documents while nobody looks; then the samples are too old to tell of now, and are dropped.
 */
#include "server/console_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "format/json_name.h"
#include "image/warm/warm_run.h"

enum {
    SAMPLES = 10,       /* kept */
    RATES_BACK = 3,     /* samples that rates go back */
    TOO_OLD_MS = 60000, /* from one sample to the next at most */
    EXPORTS_MS = 2000,  /* from one sample of the exports to the next at least */
};

/* The way of a read: each hop takes what the one before it did not have. */
enum hop { HOP_READS, HOP_MEMORY, HOP_DISK, HOP_PROXIES, HOP_STORE, HOPS };

static const struct {
    const char *name, *histogram; /* NULL: its durations are not measured, as they are too short */
} hops[HOPS] = {
    [HOP_READS] = {"reads", "granary_read_seconds"},          [HOP_MEMORY] = {"memory", NULL},
    [HOP_DISK] = {"disk", "granary_cache_disk_read_seconds"}, [HOP_PROXIES] = {"proxies", "granary_l2_get_seconds"},
    [HOP_STORE] = {"store", "granary_store_get_seconds"},
};

/* What passed the hops since the start. */
struct sample {
    uint64_t at_us;
    struct {
        uint64_t bytes, requests, counts[HISTOGRAM_BOUNDS + 1];
    } hop[HOPS];
    uint64_t hole_bytes; /* read, and in no store */
};

struct console_report {
    struct stack *stack;
    struct added_exports *added;
    struct reports *reports;
    struct console_strips *strips;
    bool acts;
    char node[256];
    struct sample samples[SAMPLES]; /* the oldest first */
    size_t count;
    struct history_sample exports, exports_before; /* rates of exports are since the second */
};

/* ---- samples ---- */

static void take_counter(void *arg, const struct counter_row *row)
{
    struct sample *s = arg;
    const struct {
        const char *name;
        uint64_t *to;
    } wanted[] = {
        {"granary_image_read_bytes_total", &s->hop[HOP_READS].bytes},
        {"granary_image_reads_total", &s->hop[HOP_READS].requests},
        {"granary_image_hole_bytes_total", &s->hole_bytes},
        {"granary_cache_memory_hit_bytes_total", &s->hop[HOP_MEMORY].bytes},
        {"granary_cache_memory_hits_total", &s->hop[HOP_MEMORY].requests},
        {"granary_cache_hit_bytes_total", &s->hop[HOP_DISK].bytes},
        {"granary_cache_hits_total", &s->hop[HOP_DISK].requests},
        {"granary_l2_bytes_total", &s->hop[HOP_PROXIES].bytes},
        {"granary_l2_requests_total", &s->hop[HOP_PROXIES].requests},
        {"granary_store_get_bytes_total", &s->hop[HOP_STORE].bytes},
        {"granary_store_gets_total", &s->hop[HOP_STORE].requests},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(wanted); i++)
        if (!strcmp(row->name, wanted[i].name))
            *wanted[i].to = row->value;
}

static void take_histogram(void *arg, const struct histogram_row *row)
{
    struct sample *s = arg;
    for (size_t i = 0; i < HOPS; i++)
        if (hops[i].histogram && !strcmp(row->name, hops[i].histogram))
            memcpy(s->hop[i].counts, row->counts, sizeof row->counts);
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The cache's own counters are of memory and disk together. */
static void take_sample(struct stack *stack, struct sample *out)
{
    *out = (struct sample){.at_us = clock_now_us()};
    stack_counters(stack, take_counter, out);
    stack_histograms(stack, take_histogram, out);
    out->hop[HOP_DISK].bytes = less(out->hop[HOP_DISK].bytes, out->hop[HOP_MEMORY].bytes);
    out->hop[HOP_DISK].requests = less(out->hop[HOP_DISK].requests, out->hop[HOP_MEMORY].requests);
}

static void forget_exports(struct console_report *r)
{
    history_sample_release(&r->exports);
    history_sample_release(&r->exports_before);
    r->exports = r->exports_before = (struct history_sample){0};
}

/* Drop samples that are too old, or the oldest of too many, and append one of now. Returns it. */
static const struct sample *add_sample(struct console_report *r)
{
    struct sample now;
    take_sample(r->stack, &now);
    if (r->count && now.at_us - r->samples[r->count - 1].at_us > TOO_OLD_MS * 1000ull) {
        r->count = 0;
        forget_exports(r);
    }
    if (r->count == SAMPLES)
        memmove(r->samples, r->samples + 1, --r->count * sizeof *r->samples);
    r->samples[r->count++] = now;
    return &r->samples[r->count - 1];
}

/* The exports' own sums are taken every other second: there may be many. On failure rates go back further. */
static void add_exports_sample(struct console_report *r)
{
    struct history_sample now;
    if ((r->exports.at_us && clock_now_us() - r->exports.at_us < EXPORTS_MS * 1000ull) || history_take(r->stack, &now))
        return;
    history_sample_release(&r->exports_before);
    r->exports_before = r->exports;
    r->exports = now;
}

/* Return the sample that exports' rates are since; NULL: there is none that is old enough. */
static const struct history_sample *exports_then(const struct console_report *r)
{
    if (r->exports_before.at_us)
        return &r->exports_before;
    bool old = r->exports.at_us && clock_now_us() - r->exports.at_us >= EXPORTS_MS * 1000ull / 4;
    return old ? &r->exports : NULL;
}

/* ---- figures ---- */

uint64_t console_quantile(const uint64_t counts[HISTOGRAM_BOUNDS + 1], unsigned percent)
{
    uint64_t all = 0, below = 0;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        all += counts[i];
    if (!all)
        return 0;
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        below += counts[i];
        if (below * 100 >= all * percent)
            return histogram_bounds_us[i];
    }
    return UINT64_MAX;
}

/* As JSON: null: there is none; -1: beyond the last bound. */
static json_t *quantile_json(const uint64_t counts[HISTOGRAM_BOUNDS + 1], unsigned percent)
{
    uint64_t us = console_quantile(counts, percent);
    return !us ? json_null() : json_integer(us == UINT64_MAX ? -1 : (json_int_t)us);
}

static double per_second(uint64_t now, uint64_t then, uint64_t us)
{
    return us ? (double)less(now, then) * 1e6 / (double)us : 0;
}

static json_t *hop_json(const struct console_report *r, const struct sample *now, enum hop hop)
{
    const struct sample *then = &r->samples[r->count > RATES_BACK ? r->count - 1 - RATES_BACK : 0];
    uint64_t counts[HISTOGRAM_BOUNDS + 1], us = now->at_us - then->at_us;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        counts[i] = less(now->hop[hop].counts[i], r->samples[0].hop[hop].counts[i]);
    json_t *object = json_object();
    json_object_set_new(object, "hop", json_string(hops[hop].name));
    json_object_set_new(object, "bytes", control_json_integer(now->hop[hop].bytes));
    json_object_set_new(object, "requests", control_json_integer(now->hop[hop].requests));
    json_object_set_new(object, "bytes_s", json_real(per_second(now->hop[hop].bytes, then->hop[hop].bytes, us)));
    json_object_set_new(object, "requests_s",
                        json_real(per_second(now->hop[hop].requests, then->hop[hop].requests, us)));
    json_object_set_new(object, "p50_us", quantile_json(counts, 50));
    json_object_set_new(object, "p99_us", quantile_json(counts, 99));
    return object;
}

static json_t *hops_json(const struct console_report *r, const struct sample *now)
{
    json_t *list = json_array();
    for (enum hop hop = 0; hop < HOPS; hop++)
        json_array_append_new(list, hop_json(r, now, hop));
    return list;
}

/* What reading the source directly would have cost more: every read a request, and its bytes. Negative where more was
 * fetched than read, as after warming. */
static json_t *saved_json(const struct sample *now)
{
    json_int_t read = (json_int_t)less(now->hop[HOP_READS].bytes, now->hole_bytes);
    json_t *object = json_object();
    json_object_set_new(
        object, "requests",
        json_integer((json_int_t)now->hop[HOP_READS].requests - (json_int_t)now->hop[HOP_STORE].requests));
    json_object_set_new(object, "bytes", json_integer(read - (json_int_t)now->hop[HOP_STORE].bytes));
    return object;
}

/* How far its image's warming is, whoever began it; nothing while none has anything to fetch. */
static void add_warming(struct image *img, json_t *object)
{
    struct warm_progress p;
    if (!warm_progress(img, &p) || p.bytes_done == p.bytes_total)
        return;
    json_t *warming = json_object();
    json_object_set_new(warming, "bytes_done", control_json_integer(p.bytes_done));
    json_object_set_new(warming, "bytes_total", control_json_integer(p.bytes_total));
    json_object_set_new(warming, "left_s", p.left_ms == UINT64_MAX ? json_null() : json_real((double)p.left_ms / 1000));
    json_object_set_new(object, "warming", warming);
}

/* Called for each export: add its strip, the share that is cached as far as it was looked at, and its warming. */
static void add_to_export(void *arg, const struct stack_export *e, json_t *object)
{
    const struct console_report *r = arg;
    char strip[CONSOLE_STRIP_MAX];
    double share = console_strips_get(r->strips, stack_export_number(e), strip);
    json_object_set_new(object, "strip", json_string(strip));
    json_object_set_new(object, "cached_share", share < 0 ? json_null() : json_real(share));
    add_warming(stack_export_image(e), object);
}

/* The export that serves an image; NULL: it was removed. */
static struct stack_export *export_of(struct stack *stack, const struct digest *image)
{
    struct stack_export *e = NULL;
    while ((e = stack_next(stack, e)))
        if (digest_equal(image_digest(stack_export_image(e)), image))
            return e;
    return NULL;
}

static json_t *slow_read_json(struct stack *stack, const struct slow_read *read)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = export_of(stack, &read->image);
    json_t *object = json_object();
    const struct control_sum sums[] = {
        {"offset", read->offset},       {"len", read->len},           {"ago_ms", less(clock_now_ms(), read->ended_ms)},
        {"took_us", read->took_us},     {"index_us", read->index_us}, {"disk_us", read->disk_us},
        {"queued_us", read->queued_us}, {"store_us", read->store_us},
    };
    control_json_add(object, sums, GR_ARRAY_SIZE(sums));
    if (e)
        json_name_set(object, "export", stack_export_name(e), strlen(stack_export_name(e)));
    json_name_set(object, "what", read->what, strlen(read->what));
    json_object_set_new(object, "from", json_lossy(read->from));
    json_object_set_new(object, "failed", json_boolean(read->failed));
    return object;
}

/* Those that the log has too, the slowest first. */
static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct slow_read *)a)->took_us, y = ((const struct slow_read *)b)->took_us;
    return x < y ? 1 : x > y ? -1 : 0;
}

static json_t *slow_reads_json(struct stack *stack)
{
    struct slow_read reads[SLOW_READS_KEPT];
    size_t n = stack_slow_reads(stack, reads);
    json_t *list = json_array();
    qsort(reads, n, sizeof *reads, by_time);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, slow_read_json(stack, &reads[i]));
    return list;
}

/* ---- the document ---- */

int console_report_make(struct console_report *r, char **out, size_t *out_len)
{
    const struct sample *now = add_sample(r);
    add_exports_sample(r);
    const struct status_view view = {.stack = r->stack,
                                     .added = r->added,
                                     .reports = r->reports,
                                     .then = exports_then(r),
                                     .exports_max = CONSOLE_EXPORTS_MAX,
                                     .more = add_to_export,
                                     .arg = r};
    CLEANUP_JSON json_t *root = status_json(&view);
    json_object_set_new(root, "node", json_lossy(r->node));
    json_object_set_new(root, "exports_total", control_json_integer(stack_count(r->stack)));
    json_object_set_new(root, "hops", hops_json(r, now));
    json_object_set_new(root, "saved", saved_json(now));
    json_object_set_new(root, "slow_reads", slow_reads_json(r->stack));
    json_object_set_new(root, "acts", json_boolean(r->acts));
    CLEANUP_FREE char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!text)
        return error_no_memory();
    *out_len = strlen(text);
    if (*out_len > CONSOLE_DOCUMENT_MAX)
        return error_set(-EMSGSIZE, "the names of this server's exports are too long for the console; use granary top");
    *out = steal_ptr(&text);
    return 0;
}

int console_report_new(struct stack *stack, struct added_exports *added, struct reports *reports,
                       struct console_strips *strips, bool acts, struct console_report **out)
{
    struct console_report *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    r->stack = stack;
    r->added = added;
    r->reports = reports;
    r->strips = strips;
    r->acts = acts;
    if (gethostname(r->node, sizeof r->node - 1))
        *r->node = 0;
    *out = r;
    return 0;
}

void console_report_free(struct console_report *r)
{
    if (!r)
        return;
    forget_exports(r);
    free(r);
}
