/* A thread goes from image to image, and looks at a few cells of each before the next: soon all images have a coarse
 * strip, and a finer one later. The cells of an image come in an order that spreads over all of it, for the same
 * reason.
 *
 * The thread's own CPU time bounds a second's work, since a look may cost a microsecond or, where an index node is read
 * from the SSD and decoded, a hundred. */
#include "server/console_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "image/warm/warm_run.h"

enum {
    SAMPLE = 32,       /* chunks of a cell that are looked at */
    ROUNDS = 16,       /* of a second: an image's cells are looked at once a second at most */
    CPU_US = 4000,     /* of a second */
    EVERY_MS = 1000,   /* from one second's work to the next */
    WATCHED_MS = 9000, /* for so long after a look at the console the thread goes on */
    STRIDE = 521,      /* a prime above CONSOLE_STRIP_CELLS: its multiples visit each cell */
};

/* An export's strip. */
struct strip {
    uint64_t number; /* stack_export_number */
    size_t cells;
    uint64_t looked; /* cells looked at so far, again and again */
    char text[CONSOLE_STRIP_MAX];
};

struct console_strips {
    struct stack *stack;
    pthread_t thread;
    bool running;
    uint64_t last; /* the export looked at last; only the thread uses it */

    pthread_mutex_t lock; /* guards the rest; the thread alone changes `strips`, so it reads them without the lock */
    pthread_cond_t changed;
    bool stopping;
    uint64_t watched_ms;        /* clock_now_ms of the last look at the console; 0: none yet */
    VEC(struct strip *) strips; /* ascending by number */
};

char console_strip_cell(unsigned n, unsigned cached, unsigned memory, unsigned coming, bool unknown)
{
    if (!n)
        return unknown ? '?' : '-';
    unsigned level = cached * 9 / n;
    level += cached && !level; /* a part is shown as one, however small */
    return (char)((coming ? 'A' : memory * 2 >= n ? 'a' : '0') + (int)level);
}

/* ---- looking ---- */

/* Return which chunk of a cell of `count` chunks the sample begins with: another one at each pass. */
static uint64_t sample_offset(uint64_t count, uint64_t pass)
{
    return count <= SAMPLE ? 0 : pass * 0x9E3779B97F4A7C15u % (count - SAMPLE + 1);
}

/* Collect the references of a cell's sample. unknown: an index node is not there. */
static int collect(struct image_cursor *cursor, uint64_t first, uint64_t end, struct chunk_ref refs[SAMPLE],
                   size_t *out_count, bool *out_unknown)
{
    const struct chunk_ref *ref;
    uint64_t run;
    int rc = 0;
    for (uint64_t i = first; !rc && i < end; i += run) {
        rc = image_cursor_at(cursor, i, &ref, &run);
        if (!rc && ref)
            refs[(*out_count)++] = *ref;
        else if (!rc)
            *out_unknown |= cursor->unknown;
    }
    return rc;
}

/* Look at one cell; '?' when memory is short. */
static char look_at_cell(struct image_cursor *cursor, const struct strip *strip, size_t cell)
{
    struct image *img = cursor->img;
    uint64_t chunks = manifest_chunk_count(image_manifest(img));
    uint64_t first = cell * chunks / strip->cells, end = (cell + 1) * chunks / strip->cells;
    struct chunk_ref refs[SAMPLE];
    const struct chunk_ref *at[SAMPLE];
    enum cache_where where[SAMPLE];
    size_t n = 0;
    bool unknown = false;
    first += sample_offset(end - first, strip->looked / strip->cells);
    if (collect(cursor, first, GR_MIN(end, first + SAMPLE), refs, &n, &unknown))
        return '?';
    for (size_t i = 0; i < n; i++)
        at[i] = &refs[i];
    image_look(img, at, n, where);
    unsigned count[CACHE_NOWHERE + 1] = {0};
    for (size_t i = 0; i < n; i++)
        count[where[i]]++;
    return console_strip_cell((unsigned)n, count[CACHE_IN_MEMORY] + count[CACHE_ON_DISK], count[CACHE_IN_MEMORY],
                              count[CACHE_COMING], unknown);
}

/* ---- strips ---- */

/* Return the index of the first strip whose number is not below that one. */
static size_t strip_index(const struct console_strips *s, uint64_t number)
{
    size_t low = 0, high = s->strips.len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->strips.items[mid]->number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct strip *strip_find(const struct console_strips *s, uint64_t number)
{
    size_t i = strip_index(s, number);
    return i < s->strips.len && s->strips.items[i]->number == number ? s->strips.items[i] : NULL;
}

/* Find or make an export's strip; NULL: out of memory. */
static struct strip *strip_of(struct console_strips *s, const struct stack_export *e)
{
    uint64_t number = stack_export_number(e);
    struct strip *strip = strip_find(s, number);
    if (strip)
        return strip;
    strip = calloc(1, sizeof *strip);
    if (!strip)
        return NULL;
    uint64_t chunks = manifest_chunk_count(image_manifest(stack_export_image(e)));
    strip->number = number;
    strip->cells = (size_t)GR_MIN(chunks, (uint64_t)CONSOLE_STRIP_CELLS);
    memset(strip->text, '?', strip->cells);
    SCOPED_LOCK(&s->lock);
    size_t at = strip_index(s, number);
    if (vec_push(&s->strips, strip)) {
        free(strip);
        return NULL;
    }
    memmove(s->strips.items + at + 1, s->strips.items + at, (s->strips.len - 1 - at) * sizeof *s->strips.items);
    s->strips.items[at] = strip;
    return strip;
}

/* Drop the strips between two exports that follow each other in the table: theirs are gone. */
static void forget_between(struct console_strips *s, uint64_t after, uint64_t before)
{
    SCOPED_LOCK(&s->lock);
    size_t from = strip_index(s, after + 1), to = strip_index(s, before);
    if (from == to)
        return;
    for (size_t i = from; i < to; i++)
        free(s->strips.items[i]);
    memmove(s->strips.items + from, s->strips.items + to, (s->strips.len - to) * sizeof *s->strips.items);
    s->strips.len -= to - from;
}

/* CPU time of this thread. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Look at the next cells of an export's image, a ROUNDS-th of them, as far as the time goes. */
static void look_at(struct console_strips *s, const struct stack_export *e, uint64_t end_us)
{
    struct strip *strip = strip_of(s, e);
    struct image_cursor cursor;
    if (!strip || !strip->cells)
        return;
    image_cursor_init(&cursor, stack_export_image(e), NULL);
    for (size_t i = 0; i < (strip->cells + ROUNDS - 1) / ROUNDS && cpu_us() < end_us; i++) {
        size_t cell = (size_t)(strip->looked * STRIDE % strip->cells);
        char look = look_at_cell(&cursor, strip, cell);
        SCOPED_LOCK(&s->lock);
        strip->text[cell] = look;
        strip->looked++;
    }
    image_cursor_release(&cursor);
}

/* ---- the thread ---- */

/* Go on from the export after the last one to the end of the table. Returns false when the time is over, or there is no
 * export. */
static bool look_round(struct console_strips *s, uint64_t end_us)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    uint64_t before = 0;
    size_t n = 0;
    for (; n < CONSOLE_EXPORTS_MAX && (e = stack_next(s->stack, e)); n++) {
        uint64_t number = stack_export_number(e);
        forget_between(s, before, number);
        before = number;
        if (number <= s->last)
            continue;
        look_at(s, e, end_us);
        s->last = number;
        if (cpu_us() >= end_us)
            return false;
    }
    forget_between(s, before, UINT64_MAX);
    s->last = 0;
    return n;
}

/* Wait until somebody watches, and EVERY_MS have passed since `before_ms`. Returns false at the end. */
static bool wait_for_turn(struct console_strips *s, uint64_t before_ms)
{
    const struct timespec next = clock_at_ms(before_ms + EVERY_MS);
    SCOPED_LOCK(&s->lock);
    while (!s->stopping && clock_now_ms() < before_ms + EVERY_MS)
        pthread_cond_timedwait(&s->changed, &s->lock, &next);
    while (!s->stopping && (!s->watched_ms || clock_now_ms() - s->watched_ms > WATCHED_MS))
        pthread_cond_wait(&s->changed, &s->lock);
    return !s->stopping;
}

static void *look_again_and_again(void *arg)
{
    struct console_strips *s = arg;
    for (uint64_t before_ms = 0; wait_for_turn(s, before_ms);) {
        before_ms = clock_now_ms();
        uint64_t end_us = cpu_us() + CPU_US;
        for (unsigned round = 0; round < ROUNDS && look_round(s, end_us); round++)
            continue;
    }
    return NULL;
}

/* ---- life ---- */

int console_strips_new(struct stack *stack, struct console_strips **out)
{
    struct console_strips *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->stack = stack;
    pthread_mutex_init(&s->lock, NULL);
    thread_cond_init(&s->changed);
    *out = s;
    return 0;
}

int console_strips_start(struct console_strips *s)
{
    int rc = thread_start(&s->thread, look_again_and_again, s);
    s->running = !rc;
    return rc;
}

void console_strips_watch(struct console_strips *s)
{
    SCOPED_LOCK(&s->lock);
    s->watched_ms = clock_now_ms();
    pthread_cond_signal(&s->changed);
}

double console_strips_get(struct console_strips *s, uint64_t number, char out[CONSOLE_STRIP_MAX])
{
    *out = 0;
    {
        SCOPED_LOCK(&s->lock);
        const struct strip *strip = strip_find(s, number);
        if (strip)
            memcpy(out, strip->text, sizeof strip->text);
    }
    unsigned levels = 0, cells = 0;
    for (const char *at = out; *at; at++) {
        if (*at == '?' || *at == '-')
            continue;
        levels += (unsigned)(*at >= 'a' ? *at - 'a' : *at >= 'A' ? *at - 'A' : *at - '0');
        cells++;
    }
    return cells ? levels / 9.0 / cells : -1;
}

void console_strips_free(struct console_strips *s)
{
    if (!s)
        return;
    {
        SCOPED_LOCK(&s->lock);
        s->stopping = true;
        pthread_cond_signal(&s->changed);
    }
    if (s->running)
        pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->strips.len; i++)
        free(s->strips.items[i]);
    vec_release(&s->strips);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
