/* Names come from a dataset, which may be hostile: an escape sequence in a file name could reprogram the terminal on
 * which it is listed. On a terminal, control characters in names are therefore escaped. Into a pipe or file, names are
 * written byte for byte, for the next program to read.
 *
 * Progress is drawn when enough time has passed since the last line. Rate and time left are computed over the current
 * phase only, as phases differ in speed. A JSON reader is owed the last state, even if it came too soon to be drawn.
 */
#include "cli/output.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

const char *print_digest(const struct digest *d, char out[PRINT_DIGEST_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, PRINT_DIGEST_MAX, "sha256:%s", digest_hex(d, hex));
    return out;
}

bool print_escapes(FILE *to)
{
    return isatty(fileno(to));
}

/* May a character be printed to a terminal? C0, DEL and C1 control characters may not, nor a backslash, which begins
 * our own escapes. */
static bool shown_as_is(const unsigned char *p, size_t len)
{
    if (len == 1)
        return *p >= 0x20 && *p != 0x7f && *p != '\\';
    return len > 2 || (len == 2 && (*p > 0xc2 || p[1] >= 0xa0));
}

/* Bytes that are not UTF-8 are escaped one by one. */
void print_name(FILE *to, const char *name, size_t len, bool escape)
{
    if (!escape) {
        fwrite(name, 1, len, to);
        return;
    }
    for (size_t i = 0; i < len;) {
        const unsigned char *p = (const unsigned char *)name + i;
        size_t n = text_utf8_length(p, len - i);
        if (n && shown_as_is(p, n))
            fwrite(p, 1, n, to);
        else if (*p == '\n' || *p == '\t' || *p == '\\')
            fprintf(to, "\\%c", *p == '\n' ? 'n' : *p == '\t' ? 't' : '\\');
        else
            for (size_t k = 0; k < (n ? n : 1); k++)
                fprintf(to, "\\x%02x", p[k]);
        i += n ? n : 1;
    }
}

void print_text(const char *name)
{
    if (name)
        print_name(stdout, name, strlen(name), print_escapes(stdout));
}

/* A zero digest means "none": null. */
json_t *print_json_digest(const struct digest *d)
{
    char text[PRINT_DIGEST_MAX];
    return digest_is_zero(d) ? json_null() : json_string(print_digest(d, text));
}

json_t *print_json_time(int64_t seconds)
{
    char text[TEXT_TIME_MAX];
    return json_string(text_format_time(seconds, text));
}

void print_needs(const struct manifest *m)
{
    if (manifest_erofs_48bit(m))
        printf("  %-16s Linux %s or later, since the image has more than 16 TiB\n", "needs", manifest_linux(m));
}

json_t *print_json_counts(const struct manifest_counts *c)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "files", INTEGER(c->files), "directories", INTEGER(c->directories),
                     "symlinks", INTEGER(c->symlinks), "hard_links", INTEGER(c->hard_links), "others",
                     INTEGER(c->others), "bytes", INTEGER(c->bytes));
}

int print_json_to(FILE *to, json_t *object)
{
    if (!object)
        return error_no_memory();
    int rc = json_dumpf(object, to, JSON_COMPACT);
    json_decref(object);
    putc('\n', to);
    return rc && !ferror(to) ? error_set(-ENOMEM, "cannot print the result as JSON") : 0;
}

/* A failed write is reported by main when it flushes. */
int print_json(json_t *object)
{
    return print_json_to(stdout, object);
}

/* ---- progress ---- */

enum { TERMINAL_COLUMNS = 80 /* where it does not say */ };
enum { TERMINAL_EVERY_MS = 200, JSON_EVERY_MS = 1000, PLAIN_EVERY_MS = 5000, RATE_AFTER_MS = 500 };

void progress_init(struct progress *p, const char *what, bool quiet)
{
    *p = (struct progress){.what = what, .quiet = quiet, .terminal = isatty(STDERR_FILENO)};
    p->last_ms = clock_now_ms();
}

/* Append formatted text as far as there is room. */
#define APPEND(...)                                                                                                    \
    do {                                                                                                               \
        size_t used_ = strlen(out);                                                                                    \
        snprintf(out + used_, PROGRESS_LINE_MAX - used_, __VA_ARGS__);                                                 \
    } while (0)

/* Speed and time left. */
struct pace {
    double bytes_per_s, files_per_s; /* 0: unknown */
    bool known;                      /* seconds_left is known */
    uint64_t seconds_left;
};

/* Estimate by bytes if their total is known, else by files. */
static struct pace pace_of(const struct progress_state *s, uint64_t elapsed_ms, uint64_t bytes_before,
                           uint64_t files_before)
{
    struct pace p = {0};
    if (elapsed_ms < RATE_AFTER_MS)
        return p;
    p.bytes_per_s = (double)(s->bytes_done - bytes_before) * 1000 / (double)elapsed_ms;
    p.files_per_s = (double)(s->files_done - files_before) * 1000 / (double)elapsed_ms;
    uint64_t over = s->bytes_done + s->failed_bytes;
    double left = 0;
    if (p.bytes_per_s > 0 && s->bytes_total > over)
        left = (double)(s->bytes_total - over) / p.bytes_per_s;
    else if (!s->bytes_total && p.files_per_s > 0 && s->files_total > s->files_done)
        left = (double)(s->files_total - s->files_done) / p.files_per_s;
    p.known = left > 0;
    p.seconds_left = (uint64_t)left;
    return p;
}

/* "12.0 MiB of 1.0 GiB, 120 of 5000 files, 3 failed, 40.0 MiB/s, 0:25 left", as far as it is known. */
char *progress_format(const struct progress_state *s, uint64_t elapsed_ms, uint64_t bytes_before, uint64_t files_before,
                      char out[PROGRESS_LINE_MAX])
{
    char done[TEXT_SIZE_MAX], total[TEXT_SIZE_MAX], rate[TEXT_SIZE_MAX];
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
    if (s->failed)
        APPEND("%s%llu failed", *out ? ", " : "", (unsigned long long)s->failed);
    const struct pace pace = pace_of(s, elapsed_ms, bytes_before, files_before);
    const unsigned long long left = pace.seconds_left;
    if (pace.bytes_per_s > 0)
        APPEND(", %s/s", text_format_size((uint64_t)pace.bytes_per_s, rate));
    else if (pace.files_per_s > 0)
        APPEND(", %.0f files/s", pace.files_per_s);
    if (pace.known && left >= 3600)
        APPEND(", %llu:%02llu:%02llu left", left / 3600, left / 60 % 60, left % 60);
    else if (pace.known)
        APPEND(", %llu:%02llu left", left / 60, left % 60);
    return out;
}

/* By hand, since the phases are our own constants and need no escaping. */
char *progress_json(const struct progress_state *s, uint64_t elapsed_ms, uint64_t bytes_before, uint64_t files_before,
                    char out[PROGRESS_JSON_MAX])
{
    const struct pace pace = pace_of(s, elapsed_ms, bytes_before, files_before);
    char left[24] = "null";
    if (pace.known)
        snprintf(left, sizeof left, "%llu", (unsigned long long)pace.seconds_left);
    snprintf(out, PROGRESS_JSON_MAX,
             "{\"progress\": {\"phase\": \"%s\", \"bytes_done\": %llu, \"bytes_total\": %llu, \"files_done\": %llu, "
             "\"files_total\": %llu, \"failed_chunks\": %llu, \"bytes_per_s\": %.0f, \"seconds_left\": %s}}",
             s->phase, (unsigned long long)s->bytes_done, (unsigned long long)s->bytes_total,
             (unsigned long long)s->files_done, (unsigned long long)s->files_total, (unsigned long long)s->failed,
             pace.bytes_per_s, left);
    return out;
}

/* Draw the last state. */
static void progress_draw(struct progress *p, uint64_t now)
{
    const uint64_t elapsed_ms = now - p->phase_ms;
    char line[PROGRESS_LINE_MAX], object[PROGRESS_JSON_MAX];
    p->last_ms = now;
    p->owed = false;
    if (p->json && !p->terminal) {
        fprintf(stderr, "%s\n", progress_json(&p->last, elapsed_ms, p->phase_bytes, p->phase_files, object));
        return;
    }
    progress_format(&p->last, elapsed_ms, p->phase_bytes, p->phase_files, line);
    char whole[2 * PROGRESS_LINE_MAX];
    struct winsize size = {0};
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? TERMINAL_COLUMNS : size.ws_col;
    snprintf(whole, sizeof whole, "%s: %s%s%s", p->what, p->last.phase, *line ? " " : "", line);
    if (p->terminal)
        fprintf(stderr, "\r%.*s\033[K", columns - 1, whole); /* \r could not rewrite a line that wraps */
    else
        fprintf(stderr, "%s\n", whole);
    fflush(stderr);
    p->shown = true;
}

/* A new phase is drawn at once on a terminal. */
void progress_update(struct progress *p, const struct progress_state *state)
{
    if (p->quiet)
        return;
    uint64_t now = clock_now_ms(), pause_ms = p->terminal ? TERMINAL_EVERY_MS
                                              : p->json   ? JSON_EVERY_MS
                                                          : PLAIN_EVERY_MS;
    bool fresh = p->phase != state->phase, due = now - p->last_ms >= pause_ms;
    p->last = *state;
    p->owed = p->json && !p->terminal;
    if (fresh) {
        p->phase = state->phase;
        p->phase_ms = now;
        p->phase_bytes = state->bytes_done;
        p->phase_files = state->files_done;
    }
    if (due || (fresh && p->terminal))
        progress_draw(p, now);
}

/* Clears the terminal's line, so that what is printed next begins at its start. */
void progress_end(struct progress *p)
{
    if (p->owed)
        progress_draw(p, clock_now_ms());
    if (p->shown && p->terminal)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
}
