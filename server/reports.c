/* Tables of what other processes report. They report again every half minute, so the tables are kept nowhere: after a
 * restart of the server they are whole again at the next reports. What was killed keeps its row, which grows old: that
 * is what an alert sees. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "server/server_internal.h"

struct row {
    char *name; /* owned */
    union report report;
    uint64_t at_ms;
};

struct reports {
    pthread_mutex_t lock; /* of all tables */
    struct table {
        struct row rows[REPORTS_MAX];
        size_t count;
    } tables[REPORT_KINDS];
};

int reports_new(struct reports **out)
{
    struct reports *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return 0;
}

void reports_free(struct reports *r)
{
    if (!r)
        return;
    for (struct table *t = r->tables; t < r->tables + REPORT_KINDS; t++)
        for (size_t i = 0; i < t->count; i++)
            free(t->rows[i].name);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Return the row of that name; NULL: there is none. */
static struct row *find(struct table *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->rows[i].name, name))
            return &t->rows[i];
    return NULL;
}

/* Return a row for another name: a new one, or that of the oldest report. */
static struct row *make_room(struct table *t)
{
    struct row *oldest = t->rows;
    if (t->count < REPORTS_MAX)
        return &t->rows[t->count++];
    for (size_t i = 1; i < t->count; i++)
        if (t->rows[i].at_ms < oldest->at_ms)
            oldest = &t->rows[i];
    free(oldest->name);
    return oldest;
}

int reports_put(struct reports *r, enum report_kind kind, const char *name, const union report *report, uint64_t now_ms)
{
    CLEANUP_FREE char *copy = strdup(name);
    if (!copy)
        return error_no_memory();
    SCOPED_LOCK(&r->lock);
    struct row *row = find(&r->tables[kind], name);
    if (!row) {
        row = make_room(&r->tables[kind]);
        row->name = steal_ptr(&copy);
    }
    row->report = *report;
    row->at_ms = now_ms;
    return 0;
}

void reports_remove(struct reports *r, enum report_kind kind, const char *name)
{
    struct table *t = &r->tables[kind];
    SCOPED_LOCK(&r->lock);
    struct row *row = find(t, name);
    if (!row)
        return;
    free(row->name);
    *row = t->rows[--t->count];
}

int reports_each(struct reports *r, enum report_kind kind, uint64_t now_ms, reports_visit *visit, void *arg)
{
    int rc = 0;
    if (!r)
        return 0;
    const struct table *t = &r->tables[kind];
    SCOPED_LOCK(&r->lock);
    for (const struct row *row = t->rows; !rc && row < t->rows + t->count; row++)
        rc = visit(arg, row->name, &row->report, now_ms > row->at_ms ? (now_ms - row->at_ms) / 1000 : 0);
    return rc;
}
