/* A hill climb over the number of concurrent reads:
 *
 *   RISE    double while that delivers a tenth more; then back to the last number that did
 *   REST    keep the number for a while and measure it
 *   UP      half as many again: kept if it delivers a twentieth more, and tried again at once
 *   DOWN    a third fewer: kept if it delivers as much
 *
 *   RISE -> REST -> UP -> REST -> DOWN -> REST -> UP ...
 *
 * UP and DOWN take turns after each REST, so the number follows a link that changes, and noise does not make it
 * creep. A phase is judged by the mean of its intervals. The first interval at a new number does not count.
 */
#include "imagebuild/content/content_internal.h"

#include "base/compiler.h"

/* How many intervals a phase is judged by. */
static const unsigned needed[] = {
    [READ_CONCURRENCY_RISE] = 2, [READ_CONCURRENCY_REST] = 8, [READ_CONCURRENCY_UP] = 3, [READ_CONCURRENCY_DOWN] = 3};

void read_concurrency_init(struct read_concurrency *j)
{
    *j = (struct read_concurrency){
        .limit = READ_CONCURRENCY_FIRST, .former = READ_CONCURRENCY_FIRST, .least = READ_CONCURRENCY_LEAST};
}

void read_concurrency_init_near(struct read_concurrency *j, unsigned cpus)
{
    unsigned first = GR_MIN(GR_MAX(READ_CONCURRENCY_NEAR_PER_CPU * cpus, (unsigned)READ_CONCURRENCY_NEAR_LEAST),
                            (unsigned)READ_CONCURRENCY_FIRST);
    *j = (struct read_concurrency){.limit = first, .former = first, .least = READ_CONCURRENCY_NEAR_LEAST};
}

bool read_concurrency_interval_over(const struct read_concurrency *j, uint64_t ms, uint64_t requests)
{
    return ms >= READ_CONCURRENCY_INTERVAL_MAX_MS ||
           (ms >= READ_CONCURRENCY_INTERVAL_MS && requests >= 2 * (uint64_t)j->limit);
}

/* Begin a phase with a limit, within the bounds. */
static void set_limit(struct read_concurrency *j, enum read_concurrency_phase phase, unsigned limit)
{
    limit = GR_MIN(GR_MAX(limit, j->least), (unsigned)READ_CONCURRENCY_MOST);
    j->skip = limit != j->limit;
    j->phase = phase;
    j->limit = limit;
    j->sum = j->n = 0;
}

/* Try another number; the current one delivers `rate`. At a bound there is nothing to try, so rest. */
static void attempt(struct read_concurrency *j, enum read_concurrency_phase phase, double rate)
{
    unsigned n = j->limit;
    j->former = n;
    j->rate = rate;
    set_limit(j, phase, phase == READ_CONCURRENCY_RISE ? 2 * n : phase == READ_CONCURRENCY_UP ? n + n / 2 : n - n / 3);
    if (j->limit == n)
        set_limit(j, READ_CONCURRENCY_REST, n);
}

/* End a phase whose intervals delivered `rate` on average. */
static void read_concurrency_judge(struct read_concurrency *j, double rate)
{
    switch (j->phase) {
    case READ_CONCURRENCY_RISE:
        if (rate > j->rate * 1.1)
            attempt(j, READ_CONCURRENCY_RISE, rate);
        else
            set_limit(j, READ_CONCURRENCY_REST, j->former);
        break;
    case READ_CONCURRENCY_REST:
        attempt(j, j->down_next ? READ_CONCURRENCY_DOWN : READ_CONCURRENCY_UP, rate);
        j->down_next = !j->down_next;
        break;
    case READ_CONCURRENCY_UP:
        if (rate > j->rate * 1.05)
            attempt(j, READ_CONCURRENCY_UP, rate);
        else
            set_limit(j, READ_CONCURRENCY_REST, j->former);
        break;
    case READ_CONCURRENCY_DOWN:
        set_limit(j, READ_CONCURRENCY_REST, rate > j->rate * 0.99 ? j->limit : j->former);
        break;
    }
}

void read_concurrency_interval(struct read_concurrency *j, uint64_t bytes, uint64_t requests, uint64_t ms, bool held_up)
{
    bool skip = j->skip;
    j->skip = false;
    if (held_up || skip || !ms)
        return;
    j->sum += ((double)bytes + (double)requests * READ_CONCURRENCY_REQUEST_UNITS) / (double)ms;
    if (++j->n >= needed[j->phase])
        read_concurrency_judge(j, j->sum / j->n);
}
