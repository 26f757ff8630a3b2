/* The report of figures, raw and Granary's side by side, and the clock of all measurements. */
#include "cli/bench/bench.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/output.h"

/* ---- the report ---- */

void bench_add(struct bench_report *r, const char *name, const char *what, enum bench_unit unit, double raw,
               double granary)
{
    assert(r->count < BENCH_FIGURES_MAX);
    r->figures[r->count++] =
        (struct bench_figure){.name = name, .what = what, .unit = unit, .raw = raw, .granary = granary};
}

void bench_note(struct bench_report *r, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(r->notes, json_lossy(text));
}

/* Format a figure as people read it; "-": not measured. */
static const char *format_value(double value, enum bench_unit unit, char out[TEXT_SIZE_MAX + 8])
{
    char size[TEXT_SIZE_MAX];
    const size_t room = TEXT_SIZE_MAX + 8;
    if (value < 0)
        snprintf(out, room, "-");
    else if (unit == BENCH_US)
        snprintf(out, room, "%.2f ms", value / 1000);
    else if (unit == BENCH_PER_S)
        snprintf(out, room, "%.0f/s", value);
    else
        snprintf(out, room, "%s%s", text_format_size((uint64_t)value, size), unit == BENCH_BYTES ? "" : "/s");
    return out;
}

void bench_print(const struct bench_report *r)
{
    size_t i;
    json_t *note;
    printf("%s ", r->kind);
    print_text(r->target);
    printf("%s%s\n\n%-46s %16s %16s\n", *r->image ? ", image " : "", r->image, "", "raw", "granary");
    for (i = 0; i < r->count; i++) {
        const struct bench_figure *f = &r->figures[i];
        char raw[TEXT_SIZE_MAX + 8], granary[TEXT_SIZE_MAX + 8];
        printf("%-46s %16s %16s\n", f->what, format_value(f->raw, f->unit, raw),
               format_value(f->granary, f->unit, granary));
    }
    json_array_foreach(r->notes, i, note)
    {
        printf("%s%s\n", i ? "" : "\n", json_string_value(note));
    }
}

static json_t *value_json(double value)
{
    return value < 0 ? json_null() : INTEGER(value);
}

json_t *bench_json(const struct bench_report *r, double seconds)
{
    static const char *const units[] = {
        [BENCH_US] = "us", [BENCH_PER_S] = "per_s", [BENCH_BYTES_PER_S] = "bytes_per_s", [BENCH_BYTES] = "bytes"};
    json_t *figures = json_object();
    for (size_t i = 0; i < r->count; i++) {
        const struct bench_figure *f = &r->figures[i];
        json_object_set_new(figures, f->name,
                            json_pack("{s:s,s:o,s:o}", "unit", units[f->unit], "raw", value_json(f->raw), "granary",
                                      value_json(f->granary)));
    }
    return json_pack("{s:s,s:o,s:o,s:f,s:o,s:O}", "kind", r->kind, "target", json_lossy(r->target), "image",
                     *r->image ? json_lossy(r->image) : json_null(), "seconds", seconds, "figures", figures, "notes",
                     r->notes);
}

/* ---- the clock ---- */

struct running {
    const struct bench_work *work;
    uint64_t until_ms; /* on clock_now_ms */
};

static int take_item(void *arg, size_t i)
{
    const struct running *r = arg;
    if (interrupt_came() || clock_now_ms() >= r->until_ms)
        return BENCH_DONE;
    return r->work->item(r->work->arg, i);
}

static int look_after(void *arg)
{
    const struct running *r = arg;
    if (r->work->cancel && (interrupt_came() || clock_now_ms() >= r->until_ms + BENCH_GRACE_MS))
        __atomic_store_n(r->work->cancel, 1, __ATOMIC_RELAXED);
    return 0;
}

int bench_run(const struct bench_work *work, uint64_t *out_us)
{
    uint64_t start = clock_now_us();
    struct running r = {.work = work, .until_ms = start / 1000 + work->ms};
    const struct parallel all = {
        .count = SIZE_MAX / 2, .threads = work->threads, .item = take_item, .step = look_after, .arg = &r};
    int rc = parallel_run(&all);
    *out_us = clock_now_us() - start;
    if (rc == BENCH_DONE || cancel_asked(work->cancel))
        rc = 0;
    return rc ? rc : cancel_check(interrupt_flag());
}

double bench_rate(uint64_t n, uint64_t us)
{
    return (double)n * 1e6 / (double)GR_MAX(us, (uint64_t)1);
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double bench_percentile(struct bench_times *t, unsigned percent)
{
    if (!t->count)
        return BENCH_NONE;
    qsort(t->us, t->count, sizeof *t->us, compare_times);
    size_t at = (t->count - 1) * percent / 100;
    return (double)t->us[at];
}
