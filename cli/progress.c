#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum { TERMINAL_EVERY_MS = 200, PLAIN_EVERY_MS = 5000, RATE_AFTER_MS = 500 };

void progress_init(struct progress *p, const char *what, bool quiet)
{
    *p = (struct progress){.what = what, .quiet = quiet, .terminal = isatty(STDERR_FILENO)};
    p->started_ms = p->last_ms = clock_now_ms();
}

/* Append formatted text as far as there is room. */
#define APPEND(...)                                                                                                    \
    do {                                                                                                               \
        size_t used_ = strlen(out);                                                                                    \
        snprintf(out + used_, PROGRESS_LINE_MAX - used_, __VA_ARGS__);                                                 \
    } while (0)

static void append_left(char *out, uint64_t seconds)
{
    if (seconds >= 3600)
        APPEND(", %llu:%02llu:%02llu left", (unsigned long long)seconds / 3600, (unsigned long long)seconds / 60 % 60,
               (unsigned long long)seconds % 60);
    else
        APPEND(", %llu:%02llu left", (unsigned long long)seconds / 60, (unsigned long long)seconds % 60);
}

/* The time left is judged by bytes where their total is known, else by files. */
static void append_rate(const struct progress_state *s, uint64_t elapsed_ms, uint64_t bytes, uint64_t files, char *out)
{
    char rate[TEXT_SIZE_MAX];
    double seconds = (double)elapsed_ms / 1000;
    if (bytes)
        APPEND(", %s/s", text_format_size((uint64_t)((double)bytes / seconds), rate));
    else if (files)
        APPEND(", %.0f files/s", (double)files / seconds);
    if (bytes && s->bytes_total > s->bytes_done)
        append_left(out, (uint64_t)((double)(s->bytes_total - s->bytes_done) / ((double)bytes / seconds)));
    else if (!s->bytes_total && files && s->files_total > s->files_done)
        append_left(out, (uint64_t)((double)(s->files_total - s->files_done) / ((double)files / seconds)));
}

char *progress_format(const struct progress_state *s, uint64_t elapsed_ms, uint64_t bytes_before, uint64_t files_before,
                      char out[PROGRESS_LINE_MAX])
{
    char done[TEXT_SIZE_MAX], total[TEXT_SIZE_MAX];
    *out = 0;
    if (s->bytes_done || s->bytes_total)
        APPEND("%s", text_format_size(s->bytes_done, done));
    if (s->bytes_total)
        APPEND(" of %s", text_format_size(s->bytes_total, total));
    if (s->files_done || s->files_total) {
        APPEND("%s%llu", *out ? ", " : "", (unsigned long long)s->files_done);
        if (s->files_total)
            APPEND(" of %llu", (unsigned long long)s->files_total);
        APPEND(" files");
    }
    if (elapsed_ms >= RATE_AFTER_MS)
        append_rate(s, elapsed_ms, s->bytes_done - bytes_before, s->files_done - files_before, out);
    return out;
}

void progress_update(struct progress *p, const struct progress_state *state)
{
    if (p->quiet)
        return;
    uint64_t now = clock_now_ms();
    bool fresh = p->phase != state->phase;
    if (!fresh && now - p->last_ms < (p->terminal ? TERMINAL_EVERY_MS : PLAIN_EVERY_MS))
        return;
    if (fresh) {
        p->phase = state->phase;
        p->phase_ms = now;
        p->phase_bytes = state->bytes_done;
        p->phase_files = state->files_done;
        if (!p->terminal && now - p->last_ms < PLAIN_EVERY_MS)
            return;
    }
    p->last_ms = now;
    char line[PROGRESS_LINE_MAX];
    progress_format(state, now - p->phase_ms, p->phase_bytes, p->phase_files, line);
    fprintf(stderr, p->terminal ? "\r%s: %s%s%s\033[K" : "%s: %s%s%s\n", p->what, state->phase, *line ? " " : "", line);
    fflush(stderr);
    p->shown = true;
}

void progress_end(struct progress *p)
{
    if (p->shown && p->terminal)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
}
