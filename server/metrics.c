/* Prometheus wants all lines of a metric together, so the metrics of exports are written metric by metric, and for each
 * one over all exports. The exports' figures are taken once, before the first: otherwise a metric and the next could
 * tell of different exports. The number of exports is bounded, since each line is a time series in the scraper's
 * memory.
 *
 * Every client that reaches the TCP port may ask, so a client gets little: a connection is for one request, ends after
 * IDLE_TIMEOUT_S of silence, and is one of CONNECTIONS_MAX, of which one address may hold half. One thread answers all
 * requests one after the other; metrics_write never blocks. */
#include "server/server_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "server/http_daemon.h"

/* A document being written; rc is its first failure, after which visitors append nothing. */
struct appending {
    struct bytes *out;
    int rc;
};

/* Return the metric's type, which its name tells. */
static const char *metric_type(const char *name)
{
    size_t len = strlen(name);
    return len > 6 && !strcmp(name + len - 6, "_total") ? "counter" : "gauge";
}

/* Append a metric's two header lines. */
static int append_head(struct bytes *out, const char *name, const char *help, const char *type)
{
    return bytes_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Append a counter or gauge with its two header lines. */
static void append_counter(void *arg, const struct counter_row *row)
{
    struct appending *a = arg;
    if (!a->rc)
        a->rc = append_head(a->out, row->name, row->help, metric_type(row->name));
    if (!a->rc)
        a->rc = bytes_printf(a->out, "%s %llu\n", row->name, (unsigned long long)row->value);
}

/* ---- histograms ---- */

/* Format a bound in seconds without a double's rounding: 0.00005, 60. */
static void format_bound(uint64_t us, char out[32])
{
    int len = snprintf(out, 32, "%llu.%06llu", (unsigned long long)(us / 1000000), (unsigned long long)(us % 1000000));
    while (out[len - 1] == '0')
        len--;
    out[out[len - 1] == '.' ? len - 1 : len] = 0;
}

/* Append a histogram. Prometheus' buckets are cumulative, ours are not. */
static void append_histogram(void *arg, const struct histogram_row *row)
{
    struct appending *a = arg;
    uint64_t count = 0;
    if (!a->rc)
        a->rc = append_head(a->out, row->name, row->help, "histogram");
    for (unsigned i = 0; !a->rc && i <= HISTOGRAM_BOUNDS; i++) {
        char bound[32] = "+Inf";
        if (i < HISTOGRAM_BOUNDS)
            format_bound(histogram_bounds_us[i], bound);
        count += row->counts[i];
        a->rc = bytes_printf(a->out, "%s_bucket{le=\"%s\"} %llu\n", row->name, bound, (unsigned long long)count);
    }
    if (!a->rc)
        a->rc = bytes_printf(a->out, "%s_sum %llu.%06llu\n%s_count %llu\n", row->name,
                             (unsigned long long)(row->sum_us / 1000000), (unsigned long long)(row->sum_us % 1000000),
                             row->name, (unsigned long long)count);
}

/* ---- exports ---- */

/* A metric of exports: one value, or one for each label value of from="...". */
struct export_metric {
    const char *name, *help;
    struct {
        const char *from; /* the label's value; NULL: the metric has no such label */
        size_t at;        /* offset of the figure in struct image_traffic */
    } values[6];
    size_t count;
};

#define AT(member) offsetof(struct image_traffic, member)

static const struct export_metric export_metrics[] = {
    {"granary_export_reads_total", "Reads of an export", {{NULL, AT(reads)}}, 1},
    {"granary_export_read_bytes_total", "Bytes read of an export", {{NULL, AT(read_bytes)}}, 1},
    {"granary_export_served_total",
     "Pieces of chunks served to reads of an export, by where they came from",
     {{"memory", AT(served.pieces[CACHE_FROM_MEMORY])},
      {"disk", AT(served.pieces[CACHE_FROM_DISK])},
      {"peer", AT(served.pieces[CACHE_FROM_PEER])},
      {"l2", AT(served.pieces[CACHE_FROM_L2])},
      {"store", AT(served.pieces[CACHE_FROM_STORE])}},
     5},
    {"granary_export_served_bytes_total",
     "Bytes served to reads of an export, by where they came from",
     {{"memory", AT(served.bytes[CACHE_FROM_MEMORY])},
      {"disk", AT(served.bytes[CACHE_FROM_DISK])},
      {"peer", AT(served.bytes[CACHE_FROM_PEER])},
      {"l2", AT(served.bytes[CACHE_FROM_L2])},
      {"store", AT(served.bytes[CACHE_FROM_STORE])},
      {"hole", AT(hole_bytes)}},
     6},
    {"granary_fence_refusals_total",
     "Reads of an export refused in cache-only mode (fence=warmed), since their data is not cached",
     {{NULL, AT(fence_refusals)}},
     1},
    {"granary_export_prefetches_total", "Ranges of an export that clients asked to cache", {{NULL, AT(prefetches)}}, 1},
    {"granary_export_prefetch_bytes_total",
     "Bytes of an export that clients asked to cache",
     {{NULL, AT(prefetch_bytes)}},
     1},
};

/* Append a name as a label's value. Bytes that are not UTF-8 are written as \xNN, so that different names stay
 * different. */
static int append_label(struct bytes *out, const char *name)
{
    int rc = 0;
    size_t len = strlen(name);
    for (size_t i = 0, n; !rc && i < len; i += n ? n : 1) {
        n = text_utf8_length(name + i, len - i);
        if (!n)
            rc = bytes_printf(out, "\\\\x%02x", (unsigned char)name[i]);
        else if (name[i] == '\n')
            rc = bytes_printf(out, "\\n");
        else if (name[i] == '\\' || name[i] == '"')
            rc = bytes_printf(out, "\\%c", name[i]);
        else
            rc = bytes_append(out, name + i, n);
    }
    return rc;
}

/* An export's figures, taken once for all metrics. */
struct export_row {
    struct stack_export *export; /* a reference */
    struct image_traffic traffic;
};

typedef VEC(struct export_row) export_rows;

static void release_rows(export_rows *rows)
{
    for (size_t i = 0; i < rows->len; i++)
        stack_put(rows->items[i].export);
    vec_release(rows);
}

/* Take the figures of the first METRICS_EXPORTS_MAX exports, each with a reference. */
static int take_rows(struct stack *stack, export_rows *out)
{
    struct stack_export *e = NULL;
    while (out->len < METRICS_EXPORTS_MAX && (e = stack_next(stack, e))) {
        struct export_row row = {.export = e};
        image_traffic(stack_export_image(e), &row.traffic);
        if (vec_push(out, row)) {
            stack_put(e);
            return -ENOMEM;
        }
        stack_ref(e);
    }
    stack_put(e);
    return 0;
}

/* Append one value of one export. */
static int append_export_value(struct bytes *out, const struct export_metric *m, size_t v, const struct export_row *row)
{
    uint64_t value;
    memcpy(&value, (const char *)&row->traffic + m->values[v].at, sizeof value);
    int rc = bytes_printf(out, "%s{export=\"", m->name);
    if (!rc)
        rc = append_label(out, stack_export_name(row->export));
    if (!rc && m->values[v].from)
        rc = bytes_printf(out, "\",from=\"%s", m->values[v].from);
    return rc ? rc : bytes_printf(out, "\"} %llu\n", (unsigned long long)value);
}

/* Append all metrics of exports. */
static int append_exports(struct stack *stack, struct bytes *out)
{
    CLEANUP(release_rows) export_rows rows = {0};
    int rc = take_rows(stack, &rows);
    size_t count = rows.len;
    for (size_t m = 0; !rc && m < GR_ARRAY_SIZE(export_metrics); m++) {
        const struct export_metric *metric = &export_metrics[m];
        rc = append_head(out, metric->name, metric->help, metric_type(metric->name));
        for (size_t i = 0; !rc && i < count * metric->count; i++)
            rc = append_export_value(out, metric, i % metric->count, &rows.items[i / metric->count]);
    }
    return rc;
}

/* ---- what may be down, one by one ---- */

/* Append one row: NAME{LABEL="OF",MORE="AS"} and 1 or 0; without an AS (NULL, ""), NAME{LABEL="OF"}. */
static int append_up(struct bytes *out, const char *name, const char *label, const char *of, const char *more,
                     const char *as, bool up)
{
    int rc = bytes_printf(out, "%s{%s=\"", name, label);
    if (!rc)
        rc = append_label(out, of);
    if (!rc && as && *as)
        rc = bytes_printf(out, "\",%s=\"", more);
    if (!rc && as)
        rc = append_label(out, as);
    return rc ? rc : bytes_printf(out, "\"} %d\n", up);
}

/* A cache directory in any other state, such as one that is being tried again, still does its part. */
static bool is_used(const char *state)
{
    return strcmp(state, "down") != 0 && strcmp(state, "absent") != 0;
}

/* A directory has two rows, since it may be read while it cannot be written. A store is down while its breaker lets one
 * request at a time through. */
static int append_ups(struct stack *stack, struct bytes *out)
{
    static const struct up_metric {
        const char *name, *help;
    } directory = {"granary_cache_directory_up", "Whether a cache directory is read and written"};
    static const struct up_metric proxy = {"granary_l2_up", "Whether a shared cache proxy is in use"};
    static const struct up_metric list = {"granary_l2_list_up", "Whether a list of shared cache proxies is up to date"};
    static const struct up_metric store = {"granary_store_up", "Whether a store answers"};

    struct cache_dir_report dirs[CACHE_DIRS_MAX];
    size_t n = stack_cache_dirs(stack, dirs);
    int rc = append_head(out, directory.name, directory.help, "gauge");
    for (const struct cache_dir_report *dir = dirs; !rc && dir < dirs + n; dir++) {
        rc = append_up(out, directory.name, "directory", dir->path, "as", "reading", is_used(dir->reading));
        if (!rc)
            rc = append_up(out, directory.name, "directory", dir->path, "as", "writing", is_used(dir->writing));
    }

    CLEANUP(store_l2_reports_release) struct store_l2_reports proxies;
    stack_l2(stack, &proxies);
    if (!rc)
        rc = append_head(out, proxy.name, proxy.help, "gauge");
    for (size_t i = 0; !rc && i < proxies.len; i++)
        rc = append_up(out, proxy.name, "l2", proxies.items[i].url, NULL, NULL, !proxies.items[i].down);
    if (!rc)
        rc = append_head(out, list.name, list.help, "gauge");
    for (size_t i = 0; !rc && i < proxies.list_count; i++)
        rc = append_up(out, list.name, "list", proxies.lists[i].list, NULL, NULL, !proxies.lists[i].failing_ms);

    struct store_health health;
    const char *url;
    char of[STACK_EXPORT_NAME_MAX + 1]; /* whose own keys it uses */
    if (!rc)
        rc = append_head(out, store.name, store.help, "gauge");
    for (size_t i = 0; !rc && i < METRICS_EXPORTS_MAX && (url = stack_store_health(stack, i, of, &health)); i++)
        rc = append_up(out, store.name, "store", url, "export", of, !health.silent);
    return rc;
}

/* ---- directories that follow a tag ---- */

/* A metric of them: a figure of their report. */
struct follow_metric {
    const char *name, *help;
    size_t at; /* its offset in struct followed_report; AGE: the report's age */
};

enum { AGE = sizeof(struct followed_report) };

static const struct follow_metric follow_metrics[] = {
    {"granary_follow_versions", "Versions of a followed directory or export that are alive",
     offsetof(struct followed_report, versions)},
    {"granary_follow_switches_total", "Times a followed directory or export has shown another version than before",
     offsetof(struct followed_report, switches)},
    {"granary_follow_behind_seconds", "Time for which a followed directory or export has not shown what its tag names",
     offsetof(struct followed_report, behind_s)},
    {"granary_follow_report_age_seconds", "Time since the follower of a directory or export reported last", AGE},
};

/* One metric being written. */
struct follow_rows {
    struct bytes *out;
    const struct follow_metric *metric;
};

/* A directory that was behind is so until a report says otherwise. */
static int append_followed(void *arg, const char *dir, const union report *report, uint64_t age_s)
{
    const struct follow_rows *rows = arg;
    uint64_t value = age_s;
    if (rows->metric->at != AGE)
        memcpy(&value, (const char *)&report->followed + rows->metric->at, sizeof value);
    if (rows->metric->at == offsetof(struct followed_report, behind_s) && value)
        value += age_s;
    int rc = bytes_printf(rows->out, "%s{dir=\"", rows->metric->name);
    if (!rc)
        rc = append_label(rows->out, dir);
    return rc ? rc : bytes_printf(rows->out, "\"} %llu\n", (unsigned long long)value);
}

/* A report may come between two metrics: a directory may then be in the second alone. */
static int append_follow(struct reports *reports, struct bytes *out)
{
    uint64_t now_ms = clock_now_ms();
    int rc = 0;
    for (const struct follow_metric *m = follow_metrics; !rc && m < follow_metrics + GR_ARRAY_SIZE(follow_metrics);
         m++) {
        struct follow_rows rows = {.out = out, .metric = m};
        rc = append_head(out, m->name, m->help, metric_type(m->name));
        if (!rc)
            rc = reports_each(reports, REPORT_FOLLOWED, now_ms, append_followed, &rows);
    }
    return rc;
}

/* The order of the document: the server, its counters, its histograms, its exports, what may be down, what follows. */
int metrics_write(struct stack *stack, struct added_exports *added, struct reports *reports, struct bytes *out)
{
    char why[SERVER_HEALTH_WHY_MAX];
    const struct counter_row health = {"granary_health",
                                       "How well readers are served: 0 healthy, 1 degraded, 2 failing",
                                       server_health(stack, added, why)};
    struct appending a = {.out = out};
    a.rc = append_head(out, "granary_build_info", "Version of this server", "gauge");
    if (!a.rc)
        a.rc = bytes_printf(out, "granary_build_info{version=\"%s\"} 1\n", GRANARY_VERSION);
    append_counter(&a, &health);
    stack_counters(stack, append_counter, &a);
    stack_histograms(stack, append_histogram, &a);
    if (!a.rc)
        a.rc = append_exports(stack, out);
    if (!a.rc)
        a.rc = append_ups(stack, out);
    return a.rc ? a.rc : append_follow(reports, out);
}

/* ---- the TCP port ---- */

enum { CONNECTIONS_MAX = 32, CONNECTIONS_OF_ONE_MAX = CONNECTIONS_MAX / 2, IDLE_TIMEOUT_S = 60 };

/* Constant after metrics_server_start. */
struct metrics_server {
    struct stack *stack;
    struct added_exports *added;
    struct reports *reports;
    struct http_port port;
};

/* libmicrohttpd's access handler: GET or HEAD /metrics, and nothing else. */
static enum MHD_Result on_metrics_request(void *arg, struct MHD_Connection *connection, const char *url,
                                          const char *method, const char *version, const char *data, size_t *data_len,
                                          void **state)
{
    const struct metrics_server *m = arg;
    enum MHD_Result refusal;
    if (http_daemon_refuses(connection, *state, &refusal))
        return refusal;
    if (!http_daemon_whole(data_len, state))
        return MHD_YES;
    if (strcmp(url, "/metrics") != 0)
        return http_daemon_answer_text(connection, MHD_HTTP_NOT_FOUND, "not found; there is /metrics\n", true);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return http_daemon_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "/metrics takes GET and HEAD only\n",
                                       true);
    CLEANUP_BYTES body = BYTES_INIT(METRICS_DOCUMENT_MAX);
    if (metrics_write(m->stack, m->added, m->reports, &body))
        return http_daemon_answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n", true);
    return http_daemon_answer(connection, MHD_HTTP_OK, METRICS_TYPE, body.data, body.len, true);
}

int metrics_server_open(const char *address, struct stack *stack, struct added_exports *added, struct reports *reports,
                        struct metrics_server **out)
{
    CLEANUP_FREE struct metrics_server *m = calloc(1, sizeof *m);
    if (!m)
        return error_no_memory();
    *m = (struct metrics_server){.stack = stack, .added = added, .reports = reports, .port = HTTP_PORT_INIT("metrics")};
    int rc = http_port_open(&m->port, address);
    if (!rc)
        *out = steal_ptr(&m);
    return rc;
}

unsigned metrics_server_port(const struct metrics_server *m)
{
    return m->port.number;
}

int metrics_server_start(struct metrics_server *m)
{
    struct MHD_OptionItem options[] = {{MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
                                       {MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE_MAX, NULL},
                                       {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL},
                                       {MHD_OPTION_END, 0, NULL}};
    return http_port_start(&m->port, 0, on_metrics_request, m, options);
}

void metrics_server_close(struct metrics_server *m)
{
    if (!m)
        return;
    http_port_close(&m->port);
    free(m);
}
