/* granary top [TARGET]: a table of the reads of a server's exports, redrawn every few seconds. Rates are the difference
 * between this status and the one before (cli/servers.h), so the first table appears after one interval.
 *
 * On a terminal the table is cut to its size: as many exports as fit, those with the most traffic first, each line cut
 * to the width. Elsewhere everything is printed, for a log.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

enum { TERMINAL_ROWS = 24, TERMINAL_COLUMNS = 80 /* where it does not say */ };
enum { FRAME_ROWS = 6 /* title, health, load, head, sum, the cursor's */ };
enum { WIDE_COLUMNS = 90 /* a terminal of fewer has no room for every source */ };

struct top_values {
    uint64_t count, interval;
    bool once;
};

static const struct top_values defaults = {.interval = 2};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "once", NULL, offsetof(struct top_values, once), 0, 0, "one table, like --count 1"},
    {OPTION_NUMBER, 'n', "count", "N", offsetof(struct top_values, count), 1, 0,
     "end after N tables (default: at an interrupt)"},
    {OPTION_NUMBER, 0, "interval", "SECONDS", offsetof(struct top_values, interval), 1, 3600,
     "time between tables, over which rates are taken (default 2)"},
    {0},
};

/* Order by bytes read per second, then by name. */
static int by_bytes(const void *a, const void *b)
{
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    double of_x = server_rate(x, "read_bytes"), of_y = server_rate(y, "read_bytes");
    if (of_x != of_y)
        return of_x < of_y ? 1 : -1;
    return strcmp(server_status_text(x, "name"), server_status_text(y, "name"));
}

/* Where a table goes. It is written to memory first and then cut, since a line that wraps would move the others. */
struct table {
    FILE *to;
    const char *where; /* the target, as given or found */
    uint64_t interval_s;
    size_t columns, rows; /* of the terminal; columns 0: not a terminal, nothing is cut */
    bool peers;           /* the server is a node among others */
};

/* Does the server list itself among its shared cache proxies? Nodes alone know of one that leaves. */
static bool is_node(json_t *status)
{
    const json_t *proxies = json_object_get(status, "l2");
    for (size_t i = 0; i < json_array_size(proxies); i++)
        if (!strcmp(server_status_text(json_array_get(proxies, i), "state"), "self") ||
            !strcmp(server_status_text(json_array_get(proxies, i), "state"), "leaving"))
            return true;
    return false;
}

/* Whether there is room for a column of that source. */
static bool shows(const struct table *t, const char *rate)
{
    if (!strcmp(rate, "peer_bytes"))
        return t->peers;
    return !t->columns || t->columns >= WIDE_COLUMNS || (strcmp(rate, "memory_bytes") && strcmp(rate, "l2_bytes"));
}

/* One export, or the sum of all, which has the same members. */
static void print_row(const struct table *t, json_t *rates_of, const char *name)
{
    char size[TEXT_SIZE_MAX], hits[16] = "-";
    double percent = server_hit_percent(rates_of);
    if (percent >= 0)
        snprintf(hits, sizeof hits, "%.0f%%", percent);
    fprintf(t->to, "%8.1f %10s %5s", server_rate(rates_of, "reads"),
            text_format_size((uint64_t)server_rate(rates_of, "read_bytes"), size), hits);
    for (const char *const *rate = server_rate_names + 2; *rate; rate++)
        if (shows(t, *rate))
            fprintf(t->to, " %10s", text_format_size((uint64_t)server_rate(rates_of, *rate), size));
    fprintf(t->to, "  ");
    print_name(t->to, name, strlen(name), t->columns > 0);
    putc('\n', t->to);
}

static const char *format_latency(uint64_t us, char out[24])
{
    if (!us)
        return "-";
    if (us == UINT64_MAX)
        return "more than a minute";
    if (us < 1000)
        snprintf(out, 24, "%llu us", (unsigned long long)us);
    else
        snprintf(out, 24, "%g %s", (double)us / (us < 1000000 ? 1e3 : 1e6), us < 1000000 ? "ms" : "s");
    return out;
}

/* Print the lines above the rows: health, latency, hit ratio, queue. */
static void print_head(const struct table *t, json_t *status, json_t *before)
{
    char median[24], slow[24];
    fprintf(t->to, "granary top: every %llu s, ", (unsigned long long)t->interval_s);
    print_name(t->to, t->where, strlen(t->where), t->columns > 0);
    fprintf(t->to, "\n%s, reads take up to p50 %s, p99 %s\n", server_status_text(status, "health"),
            format_latency(server_latency_us(status, before, 50), median),
            format_latency(server_latency_us(status, before, 99), slow));
    fprintf(t->to, "hit ratio %.1f %%, %llu GETs in flight, %llu chunks queued\n",
            100 * json_number_value(json_object_get(status, "hit_ratio")),
            (unsigned long long)server_status_counter(status, "granary_fetch_busy_workers"),
            (unsigned long long)server_status_counter(status, "granary_fetch_queued"));
    fprintf(t->to, "%8s %10s %5s", "reads/s", "read/s", "hits");
    for (const char *const *rate = server_rate_names + 2; *rate; rate++)
        if (shows(t, *rate)) {
            char head[16];
            const char *source = strcmp(*rate, "l2_bytes") ? *rate : "proxies";
            snprintf(head, sizeof head, "%.*s/s", (int)strcspn(source, "_"), source);
            fprintf(t->to, " %10s", head);
        }
    fprintf(t->to, "  export\n");
}

/* Write the table to t->to. */
static int write_table(const struct table *t, json_t *status, json_t *before)
{
    json_t *exports = json_object_get(status, "exports"), *export;
    size_t i, count = json_array_size(exports), room = t->rows > FRAME_ROWS ? t->rows - FRAME_ROWS : 0;
    /* if not all fit, one row is needed to say so */
    size_t shown = !t->columns || count <= room ? count : GR_MAX(room, (size_t)1) - 1;
    CLEANUP_FREE json_t **table = calloc(count + 1, sizeof(json_t *));
    if (!table)
        return error_no_memory();
    json_array_foreach(exports, i, export) table[i] = export;
    qsort(table, count, sizeof *table, by_bytes);
    print_head(t, status, before);
    for (i = 0; i < shown; i++)
        print_row(t, table[i], server_status_text(table[i], "name"));
    print_row(t, status, "all");
    if (shown < count)
        fprintf(t->to, "%zu that are read less are not shown\n", count - shown);
    return 0;
}

/* Return how many bytes of a line fit into that many columns, at one column per character. */
static size_t cut(const char *line, size_t len, size_t columns)
{
    size_t at = 0;
    for (; at < len && columns; columns--)
        at += GR_MAX(text_utf8_length(line + at, len - at), (size_t)1);
    return at;
}

/* The cursor goes home and the screen is cleared only on a terminal; into a file, tables follow each other. */
static int print_table(const char *where, uint64_t interval_s, json_t *status, json_t *before)
{
    struct winsize size = {0};
    bool terminal = isatty(STDOUT_FILENO);
    CLEANUP_FREE char *text = NULL;
    size_t len = 0;
    if (terminal)
        (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const struct table t = {.to = open_memstream(&text, &len),
                            .where = where,
                            .interval_s = interval_s,
                            .columns = !terminal     ? 0
                                       : size.ws_col ? size.ws_col
                                                     : TERMINAL_COLUMNS,
                            .rows = size.ws_row ? size.ws_row : TERMINAL_ROWS,
                            .peers = is_node(status)};
    if (!t.to)
        return error_no_memory();
    int rc = write_table(&t, status, before);
    if (fclose(t.to) && !rc)
        rc = error_no_memory();
    if (rc)
        return rc;
    if (terminal)
        printf("\033[H\033[2J");
    for (const char *line = text; line < text + len; line += strcspn(line, "\n") + 1) {
        size_t line_len = strcspn(line, "\n");
        fwrite(line, 1, t.columns ? cut(line, line_len, t.columns) : line_len, stdout);
        putchar('\n');
    }
    return fflush(stdout) ? -EPIPE : 0;
}

/* The reader's leaving (a closed pipe) and an interrupt both end it without an error. */
static int cmd_top_run(const struct invocation *inv)
{
    const struct top_values *v = inv->values;
    if (v->once && v->count)
        return options_exclude("--once", "--count", "both say how many tables");
    uint64_t left = v->once ? 1 : v->count ? v->count : UINT64_MAX;
    char control[PATH_MAX];
    json_t *before = NULL, *now = NULL;
    int rc = control_target_find(inv->operand_count ? inv->operands[0] : NULL, control, sizeof control);
    const volatile int *interrupted = interrupt_watch();
    if (!rc)
        rc = control_status(control, &before);
    for (; !rc && left && !*interrupted; left--) {
        interrupt_pause_until(clock_now_ms() + v->interval * 1000);
        if (*interrupted)
            break;
        rc = control_status(control, &now);
        if (!rc) {
            server_rates_add(now, before);
            rc = print_table(inv->operand_count ? inv->operands[0] : control, v->interval, now, before);
        }
        json_decref(before);
        before = now;
        now = NULL;
    }
    json_decref(before);
    return rc == -EPIPE && ferror(stdout) ? 0 : rc; /* main reports failed output */
}

const struct verb verb_top = {
    .name = "top",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Show live how much is read of a server's exports, and where the bytes come from",
    .details = "TARGET is a mount point or a server's control socket; the default is that of\n"
               "'granary serve', else the only one.\n"
               "A table every two seconds, the busiest export first; the last row is the sum. hits is the share of\n"
               "the bytes that came from memory and disk. Latencies are the bounds of the buckets that\n"
               "half, and 99 %, of the reads in between ended within; hit ratio counts from the server's start.",
    .options = rows,
    .values_size = sizeof(struct top_values),
    .defaults = &defaults,
    .run = cmd_top_run,
};
