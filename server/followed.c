/* A table of what followers report, for the metrics. A follower reports again every half minute, so the table is kept
 * nowhere: after a restart of the server it is whole again at the next reports. A directory whose follower was killed
 * keeps its row, which grows old: that is what an alert sees. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "server/server_internal.h"

struct followed {
    pthread_mutex_t lock; /* of the rows */
    struct row {
        char *dir; /* owned */
        struct followed_report report;
        uint64_t at_ms;
    } rows[FOLLOWED_MAX];
    size_t count;
};

int followed_new(struct followed **out)
{
    struct followed *f = calloc(1, sizeof *f);
    if (!f)
        return error_no_memory();
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return 0;
}

void followed_free(struct followed *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++)
        free(f->rows[i].dir);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* Return the row of a directory; NULL: it has none. */
static struct row *find(struct followed *f, const char *dir)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->rows[i].dir, dir))
            return &f->rows[i];
    return NULL;
}

/* Return a row for another directory: a new one, or that of the oldest report. */
static struct row *make_room(struct followed *f)
{
    struct row *oldest = f->rows;
    if (f->count < FOLLOWED_MAX)
        return &f->rows[f->count++];
    for (size_t i = 1; i < f->count; i++)
        if (f->rows[i].at_ms < oldest->at_ms)
            oldest = &f->rows[i];
    free(oldest->dir);
    return oldest;
}

int followed_put(struct followed *f, const char *dir, const struct followed_report *report, uint64_t now_ms)
{
    CLEANUP_FREE char *copy = strdup(dir);
    if (!copy)
        return error_no_memory();
    SCOPED_LOCK(&f->lock);
    struct row *row = find(f, dir);
    if (!row) {
        row = make_room(f);
        row->dir = steal_ptr(&copy);
    }
    row->report = *report;
    row->at_ms = now_ms;
    return 0;
}

void followed_remove(struct followed *f, const char *dir)
{
    SCOPED_LOCK(&f->lock);
    struct row *row = find(f, dir);
    if (!row)
        return;
    free(row->dir);
    *row = f->rows[--f->count];
}

/* A directory that was behind is so until a report says otherwise. */
int followed_each(struct followed *f, uint64_t now_ms, followed_visit *visit, void *arg)
{
    int rc = 0;
    if (!f)
        return 0;
    SCOPED_LOCK(&f->lock);
    for (size_t i = 0; !rc && i < f->count; i++) {
        struct followed_report now = f->rows[i].report;
        uint64_t age_s = now_ms > f->rows[i].at_ms ? (now_ms - f->rows[i].at_ms) / 1000 : 0;
        if (now.behind_s)
            now.behind_s += age_s;
        rc = visit(arg, f->rows[i].dir, &now, age_s);
    }
    return rc;
}
