/* RISE    double, as long as that delivers a tenth more; then back to the last number that did
 * REST    keep it for a while, see what it delivers
 * UP      half as many again: kept when it delivers a twentieth more, and tried again at once
 * DOWN    a third fewer: kept when it delivers as much
 *
 * UP and DOWN take turns after a rest, so that the number follows a link that changes and does not creep on noise. A
 * phase is judged by the mean of its intervals; the first interval at a new number does not count.
 */
#include "imagebuild/content/jobs.h"

#include "base/compiler.h"

/* Intervals of a phase. */
static const unsigned needed[] = {[JOBS_RISE] = 2, [JOBS_REST] = 8, [JOBS_UP] = 3, [JOBS_DOWN] = 3};

void jobs_init(struct jobs *j)
{
    *j = (struct jobs){.limit = JOBS_FIRST, .former = JOBS_FIRST, .least = JOBS_LEAST};
}

void jobs_init_near(struct jobs *j, unsigned cpus)
{
    unsigned first = GR_MIN(GR_MAX(JOBS_NEAR_PER_CPU * cpus, (unsigned)JOBS_NEAR_LEAST), (unsigned)JOBS_FIRST);
    *j = (struct jobs){.limit = first, .former = first, .least = JOBS_NEAR_LEAST};
}

bool jobs_interval_over(const struct jobs *j, uint64_t ms, uint64_t requests)
{
    return ms >= JOBS_INTERVAL_MAX_MS || (ms >= JOBS_INTERVAL_MS && requests >= 2 * (uint64_t)j->limit);
}

static void set_limit(struct jobs *j, enum jobs_phase phase, unsigned limit)
{
    limit = GR_MIN(GR_MAX(limit, j->least), (unsigned)JOBS_MOST);
    j->skip = limit != j->limit;
    j->phase = phase;
    j->limit = limit;
    j->sum = j->n = 0;
}

/* An attempt from the present limit, which delivers `rate`. */
static void attempt(struct jobs *j, enum jobs_phase phase, double rate)
{
    unsigned n = j->limit;
    j->former = n;
    j->rate = rate;
    set_limit(j, phase, phase == JOBS_RISE ? 2 * n : phase == JOBS_UP ? n + n / 2 : n - n / 3);
    if (j->limit == n)
        set_limit(j, JOBS_REST, n);
}

static void judge(struct jobs *j, double rate)
{
    switch (j->phase) {
    case JOBS_RISE:
        if (rate > j->rate * 1.1)
            attempt(j, JOBS_RISE, rate);
        else
            set_limit(j, JOBS_REST, j->former);
        break;
    case JOBS_REST:
        attempt(j, j->down_next ? JOBS_DOWN : JOBS_UP, rate);
        j->down_next = !j->down_next;
        break;
    case JOBS_UP:
        if (rate > j->rate * 1.05)
            attempt(j, JOBS_UP, rate);
        else
            set_limit(j, JOBS_REST, j->former);
        break;
    case JOBS_DOWN:
        set_limit(j, JOBS_REST, rate > j->rate * 0.99 ? j->limit : j->former);
        break;
    }
}

void jobs_interval(struct jobs *j, uint64_t bytes, uint64_t requests, uint64_t ms, bool held_up)
{
    bool skip = j->skip;
    j->skip = false;
    if (held_up || skip || !ms)
        return;
    j->sum += ((double)bytes + (double)requests * JOBS_REQUEST_UNITS) / (double)ms;
    if (++j->n >= needed[j->phase])
        judge(j, j->sum / j->n);
}
