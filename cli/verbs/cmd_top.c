/* granary top [TARGET]: what a server's exports are read now, a table at a time. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/control_target.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/server_rates.h"
#include "cli/server_status.h"
#include "cli/verbs/verbs.h"

enum { TERMINAL_ROWS = 24 /* where it does not say */, FRAME_ROWS = 4 /* head, sum, the cursor's */ };

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

static int by_bytes(const void *a, const void *b)
{
    json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    double of_x = server_rate(x, "read_bytes"), of_y = server_rate(y, "read_bytes");
    if (of_x != of_y)
        return of_x < of_y ? 1 : -1;
    return strcmp(server_status_text(x, "name"), server_status_text(y, "name"));
}

static void print_row(json_t *rates_of, const char *name)
{
    char size[TEXT_SIZE_MAX];
    printf("%8.1f", server_rate(rates_of, server_rate_names[0]));
    for (const char *const *rate = server_rate_names + 1; *rate; rate++)
        printf(" %10s", text_format_size((uint64_t)server_rate(rates_of, *rate), size));
    printf("  ");
    print_name(stdout, name, strlen(name), print_escapes(stdout));
    putchar('\n');
}

static void print_head(json_t *status)
{
    printf("%s, hit ratio %.1f %%, %llu gets in flight, %llu chunks queued\n", server_status_text(status, "health"),
           100 * json_number_value(json_object_get(status, "hit_ratio")),
           (unsigned long long)server_status_counter(status, "granary_fetch_busy_workers"),
           (unsigned long long)server_status_counter(status, "granary_fetch_queued"));
    printf("%8s %10s %10s %10s %10s %10s  %s\n", "reads/s", "read/s", "memory/s", "disk/s", "tier/s", "store/s",
           "export");
}

/* How many of so many exports have room; one row less when the number of the others is said. */
static size_t rows_there_are(size_t count)
{
    struct winsize size = {0};
    size_t high = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row ? TERMINAL_ROWS : size.ws_row;
    size_t room = high > FRAME_ROWS ? high - FRAME_ROWS : 0;
    return count <= room ? count : GR_MAX(room, (size_t)1) - 1;
}

static int print_table(json_t *status)
{
    json_t *exports = json_object_get(status, "exports"), *export;
    size_t i, count = json_array_size(exports), shown = count;
    bool terminal = isatty(STDOUT_FILENO);
    CLEANUP_FREE json_t **table = calloc(count + 1, sizeof(json_t *));
    if (!table)
        return error_no_memory();
    json_array_foreach(exports, i, export) table[i] = export;
    qsort(table, count, sizeof *table, by_bytes);
    if (terminal) {
        printf("\033[H\033[2J\033[?7l"); /* what is too wide is cut off */
        shown = rows_there_are(count);
    }
    print_head(status);
    for (i = 0; i < shown; i++)
        print_row(table[i], server_status_text(table[i], "name"));
    print_row(status, "all");
    if (shown < count)
        printf("%zu that are read less are not shown\n", count - shown);
    if (terminal)
        printf("\033[?7h");
    return fflush(stdout) ? -EPIPE : 0;
}

static int run(const struct invocation *inv)
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
        rc = server_status_get(control, &before);
    for (; !rc && left && !*interrupted; left--) {
        interrupt_pause_until(clock_now_ms() + v->interval * 1000);
        if (*interrupted)
            break;
        rc = server_status_get(control, &now);
        if (!rc) {
            server_rates_add(now, before);
            rc = print_table(now);
        }
        json_decref(before);
        before = now;
        now = NULL;
    }
    json_decref(before);
    return rc == -EPIPE && ferror(stdout) ? 0 : rc; /* main says what there is to say */
}

const struct verb verb_top = {
    .name = "top",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Show live what a server's exports are read, and where it comes from",
    .details = "TARGET is a mount point or a server's control socket; the default is that of\n"
               "'granary serve', else the only one.\n"
               "A table every two seconds, the busiest export first; the last row is the sum.",
    .options = rows,
    .values_size = sizeof(struct top_values),
    .defaults = &defaults,
    .run = run,
};
