#include "imagebuild/source/page_budget.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/error.h"

void page_budget_init(struct page_budget *r)
{
    *r = (struct page_budget){.smalls = 0};
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
}

void page_budget_release(struct page_budget *r)
{
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
}

static bool is_full_locked(const struct page_budget *r, bool all)
{
    if (all)
        return r->all || r->smalls;
    return r->all || r->waiting_all || r->smalls == PAGE_BUDGET_SMALLS;
}

int page_budget_enter(struct page_budget *r, bool all)
{
    SCOPED_LOCK(&r->mutex);
    r->waiting_all += all;
    while (!r->closed && is_full_locked(r, all))
        pthread_cond_wait(&r->changed, &r->mutex);
    r->waiting_all -= all;
    if (r->closed)
        return error_set(-ECANCELED, "source: the listing was stopped");
    if (all)
        r->all = true;
    else
        r->smalls++;
    return 0;
}

void page_budget_leave(struct page_budget *r, bool all)
{
    SCOPED_LOCK(&r->mutex);
    if (all)
        r->all = false;
    else
        r->smalls--;
    pthread_cond_broadcast(&r->changed);
}

void page_budget_close(struct page_budget *r)
{
    SCOPED_LOCK(&r->mutex);
    r->closed = true;
    pthread_cond_broadcast(&r->changed);
}
