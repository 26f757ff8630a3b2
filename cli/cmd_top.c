/* granary top [TARGET]: what a server's exports are read, as the difference between two answers to /status. The exports
 * stand in the same order in both; after a restart the counters begin at 0 again, which the process id tells.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/control_client.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/control_target.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/server_status.h"
#include "cli/verbs.h"

enum { TERMINAL_ROWS = 30, COLUMNS = 5 };

struct top_values {
    uint64_t count, interval;
    bool once;
};

static const struct top_values defaults = {.interval = 2};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "once", NULL, offsetof(struct top_values, once), 0, 0, "one table, like --count 1"},
    {OPTION_NUMBER, 'n', "count", "N", offsetof(struct top_values, count), 1, 0,
     "so many tables (default: until interrupted)"},
    {OPTION_NUMBER, 0, "interval", "SECONDS", offsetof(struct top_values, interval), 1, 3600,
     "time between tables, over which rates are taken (default 2)"},
    {0},
};

/* Sums of an export as /status has them, and then what was added to them in a second. */
static const char *const columns[COLUMNS] = {"reads", "read_bytes", "memory_bytes", "disk_bytes", "store_bytes"};

struct row {
    const char *name; /* the status's */
    double rates[COLUMNS];
};

struct sample {
    json_t *status;
    uint64_t when_ms;
};

static int take_sample(const char *control, struct sample *out)
{
    int rc = server_status_get(control, &out->status);
    out->when_ms = clock_now_ms();
    return rc;
}

static int by_bytes(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->rates[1] != y->rates[1])
        return x->rates[1] < y->rates[1] ? 1 : -1;
    return strcmp(x->name, y->name);
}

static struct row row_of(json_t *export, json_t *before, double seconds)
{
    struct row row = {.name = server_status_text(export, "name")};
    for (size_t i = 0; i < COLUMNS; i++) {
        uint64_t now = control_number(export, columns[i]), then = control_number(before, columns[i]);
        row.rates[i] = now > then ? (double)(now - then) / seconds : 0;
    }
    return row;
}

static void print_row(const struct row *row)
{
    char size[TEXT_SIZE_MAX];
    printf("%10.1f", row->rates[0]);
    for (size_t i = 1; i < COLUMNS; i++)
        printf(" %12s", text_format_size((uint64_t)row->rates[i], size));
    printf("  ");
    print_name(stdout, row->name, strlen(row->name), print_escapes(stdout));
    putchar('\n');
}

static void print_head(json_t *status)
{
    printf("%s, hit ratio %.1f %%, %llu gets in flight, %llu chunks queued\n", server_status_text(status, "health"),
           100 * json_number_value(json_object_get(status, "hit_ratio")),
           (unsigned long long)server_status_counter(status, "granary_fetch_busy_workers"),
           (unsigned long long)server_status_counter(status, "granary_fetch_queued"));
    printf("%10s %12s %12s %12s %12s  %s\n", "reads/s", "read/s", "memory/s", "disk/s", "store/s", "export");
}

static int print_table(const struct sample *before, const struct sample *now)
{
    json_t *exports = json_object_get(now->status, "exports");
    size_t count = json_array_size(exports), shown = count;
    bool restarted = control_number(now->status, "pid") != control_number(before->status, "pid");
    json_t *others = restarted ? NULL : json_object_get(before->status, "exports");
    double seconds = (double)GR_MAX(now->when_ms - before->when_ms, UINT64_C(1)) / 1000;
    CLEANUP_FREE struct row *table = calloc(count + 1, sizeof *table);
    if (!table)
        return error_set(-ENOMEM, "out of memory");
    struct row sum = {.name = "all"};
    for (size_t i = 0; i < count; i++) {
        table[i] = row_of(json_array_get(exports, i), json_array_get(others, i), seconds);
        for (size_t k = 0; k < COLUMNS; k++)
            sum.rates[k] += table[i].rates[k];
    }
    qsort(table, count, sizeof *table, by_bytes);
    if (isatty(STDOUT_FILENO)) {
        printf("\033[H\033[2J");
        shown = GR_MIN(count, (size_t)TERMINAL_ROWS);
    }
    print_head(now->status);
    for (size_t i = 0; i < shown; i++)
        print_row(&table[i]);
    print_row(&sum);
    if (shown < count)
        printf("%zu exports that are read less are not shown\n", count - shown);
    return fflush(stdout) ? -EPIPE : 0;
}

/* A signal ends the pause. */
static void pause_until(uint64_t when_ms, const volatile int *interrupted)
{
    struct timespec at = clock_at_ms(when_ms);
    while (!*interrupted && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static int run(const struct invocation *inv)
{
    const struct top_values *v = inv->values;
    if (v->once && v->count)
        return options_exclude("--once", "--count", "both say how many tables");
    uint64_t left = v->once ? 1 : v->count ? v->count : UINT64_MAX;
    char control[PATH_MAX];
    struct sample before = {0}, now = {0};
    int rc = control_target_find(inv->operand_count ? inv->operands[0] : NULL, control, sizeof control);
    const volatile int *interrupted = interrupt_watch();
    if (!rc)
        rc = take_sample(control, &before);
    for (; !rc && left && !*interrupted; left--) {
        pause_until(before.when_ms + v->interval * 1000, interrupted);
        if (*interrupted)
            break;
        rc = take_sample(control, &now);
        if (!rc)
            rc = print_table(&before, &now);
        json_decref(before.status);
        before = now;
        now.status = NULL;
    }
    json_decref(before.status);
    return rc == -EPIPE && ferror(stdout) ? 0 : rc; /* main says what there is to say */
}

const struct verb verb_top = {
    .name = "top",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Show live what a server's exports are read, and where it comes from",
    .details = "TARGET is a mount point or a server's control socket; the default is that of 'granary serve'.\n"
               "A table every two seconds, the busiest export first; the last row is the sum.",
    .options = rows,
    .values_size = sizeof(struct top_values),
    .defaults = &defaults,
    .run = run,
};
