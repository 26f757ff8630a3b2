/* The transitions of health.h's table. */
#include "cache/disk/health.h"

#include "base/compiler.h"

/* Go down, and double the interval of probes if it was down before without becoming normal. */
static void go_down(struct health *h, uint64_t now_ms)
{
    h->state = HEALTH_DOWN;
    h->faults = 0;
    h->probe_wait_ms =
        h->probe_wait_ms ? GR_MIN(h->probe_wait_ms * 2, (uint32_t)HEALTH_PROBE_MAX_MS) : HEALTH_PROBE_MIN_MS;
    h->probe_ms = now_ms + h->probe_wait_ms;
}

static void go_suspect(struct health *h, uint64_t now_ms)
{
    h->state = HEALTH_SUSPECT;
    h->fault_ms = now_ms;
    h->probe_ms = now_ms + HEALTH_PROBE_MIN_MS;
}

/* A timeout or a bad probe brings a direction down at once, faults only in a row. */
static void note_bad(struct health *h, enum health_event event, uint64_t now_ms)
{
    h->fault_ms = now_ms;
    h->faults += event == HEALTH_FAULT;
    if (event == HEALTH_TIMEOUT || event == HEALTH_PROBE_BAD || h->faults >= HEALTH_FAULTS_MAX)
        go_down(h, now_ms);
    else if (h->state == HEALTH_NORMAL)
        go_suspect(h, now_ms);
}

/* A success ends a row of faults, and a suspect period that has lasted long enough. */
static void note_good(struct health *h, uint64_t now_ms)
{
    h->faults = 0;
    if (h->state == HEALTH_SUSPECT && now_ms >= h->fault_ms + HEALTH_NORMAL_AFTER_MS)
        *h = (struct health){0};
}

bool health_note(struct health *h, enum health_event event, uint64_t now_ms)
{
    enum health_state before = h->state;
    if (before == HEALTH_DOWN) { /* only probes count: results of older operations say nothing new */
        if (event == HEALTH_PROBE_GOOD)
            go_suspect(h, now_ms);
        else if (event == HEALTH_PROBE_BAD)
            go_down(h, now_ms);
    } else if (event == HEALTH_GOOD || event == HEALTH_PROBE_GOOD) {
        note_good(h, now_ms);
        h->probe_ms = event == HEALTH_PROBE_GOOD ? now_ms + HEALTH_PROBE_MIN_MS : h->probe_ms;
    } else {
        note_bad(h, event, now_ms);
    }
    return h->state != before;
}

bool health_wants_probe(const struct health *h, uint64_t now_ms)
{
    return h->state != HEALTH_NORMAL && now_ms >= h->probe_ms;
}

const char *health_name(enum health_state state)
{
    static const char *const names[] = {"normal", "suspect", "down"};
    return names[state];
}
