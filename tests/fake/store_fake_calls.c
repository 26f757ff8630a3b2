/* What happens to a call besides its work: the hook, counters, the hold, faults. */
#include "fake/store_fake_internal.h"

#include <string.h>
#include <time.h>

#include "base/error.h"

static const char *const op_names[] = {"get", "get_small", "put", "stat", "list", "remove", "probe"};

static unsigned draw_locked(struct store_fake *f)
{
    /* xorshift64 */
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (unsigned)(f->random >> 11) % 1000;
}

static bool fault_hits_locked(struct store_fake *f, struct fault *fault, enum store_fake_op op, const char *key)
{
    const struct store_fake_fault *spec = &fault->spec;
    if (spec->op != FAKE_ANY && spec->op != op)
        return false;
    if (spec->key_prefix && strncmp(key, spec->key_prefix, strlen(spec->key_prefix)) != 0)
        return false;
    if (fault->seen++ < spec->skip || (spec->count && fault->hits >= spec->count))
        return false;
    if (spec->permille && draw_locked(f) >= spec->permille)
        return false;
    fault->hits++;
    return true;
}

/* The first fault that hits decides; delays add up. */
static struct verdict judge_locked(struct store_fake *f, enum store_fake_op op, const char *key, uint64_t *delay_ms)
{
    struct verdict v = {.hit = false};
    if (f->dead)
        return (struct verdict){.hit = true, .kind = FAKE_FAIL, .code = f->dead};
    for (size_t i = 0; i < f->faults.len && !v.hit; i++) {
        struct fault *fault = &f->faults.items[i];
        if (!fault_hits_locked(f, fault, op, key))
            continue;
        if (fault->spec.kind == FAKE_DELAY)
            *delay_ms += fault->spec.bytes;
        else
            v = (struct verdict){
                .hit = true, .kind = fault->spec.kind, .code = fault->spec.code, .bytes = fault->spec.bytes};
    }
    return v;
}

int fake_fail(struct store_fake *f, int code, enum store_fake_op op, const char *key)
{
    return code ? error_set(code, "%s: %s of %s: injected fault", f->store.url, op_names[op], key) : 0;
}

static bool is_held_locked(const struct store_fake *f, enum store_fake_op op)
{
    return f->held && (f->held_op == FAKE_ANY || f->held_op == op);
}

int fake_enter(struct store_fake *f, enum store_fake_op op, const char *key, struct verdict *v)
{
    pthread_mutex_lock(&f->lock);
    store_fake_hook *hook = f->hook;
    void *arg = f->hook_arg;
    pthread_mutex_unlock(&f->lock);
    if (hook)
        hook(arg, f, op, key);

    uint64_t delay_ms = 0;
    pthread_mutex_lock(&f->lock);
    f->calls[op]++;
    f->calls[FAKE_ANY]++;
    f->inside++;
    f->peak = GR_MAX(f->peak, f->inside);
    f->waiting++;
    if (is_held_locked(f, op))
        pthread_cond_broadcast(&f->changed); /* once: held calls would keep waking each other */
    while (is_held_locked(f, op))
        pthread_cond_wait(&f->changed, &f->lock);
    f->waiting--;
    *v = judge_locked(f, op, key, &delay_ms);
    pthread_mutex_unlock(&f->lock);
    if (delay_ms)
        nanosleep(&(struct timespec){.tv_sec = (time_t)(delay_ms / 1000), .tv_nsec = (long)(delay_ms % 1000) * 1000000},
                  NULL);
    return v->hit && v->kind == FAKE_FAIL ? fake_fail(f, v->code, op, key) : 0;
}

int fake_leave(struct store_fake *f, enum store_fake_op op, const char *key, const struct verdict *v, int rc)
{
    pthread_mutex_lock(&f->lock);
    f->inside--;
    pthread_mutex_unlock(&f->lock);
    return !rc && v->hit && v->kind == FAKE_LOSE ? fake_fail(f, v->code, op, key) : rc;
}

void store_fake_add_fault(struct store_fake *f, const struct store_fake_fault *fault)
{
    SCOPED_LOCK(&f->lock);
    struct fault fresh = {.spec = *fault};
    if (vec_push(&f->faults, fresh))
        abort();
}

void store_fake_clear_faults(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    f->faults.len = 0;
}

void store_fake_seed(struct store_fake *f, uint64_t seed)
{
    SCOPED_LOCK(&f->lock);
    f->random = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

void store_fake_set_dead(struct store_fake *f, int code)
{
    SCOPED_LOCK(&f->lock);
    f->dead = code;
}

void store_fake_hold(struct store_fake *f, enum store_fake_op op)
{
    SCOPED_LOCK(&f->lock);
    f->held = true;
    f->held_op = op;
}

void store_fake_wait_held(struct store_fake *f, unsigned n)
{
    SCOPED_LOCK(&f->lock);
    while (f->waiting < n)
        pthread_cond_wait(&f->changed, &f->lock);
}

void store_fake_release(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    f->held = false;
    pthread_cond_broadcast(&f->changed);
}

void store_fake_set_hook(struct store_fake *f, store_fake_hook *hook, void *arg)
{
    SCOPED_LOCK(&f->lock);
    f->hook = hook;
    f->hook_arg = arg;
}

uint64_t store_fake_calls(struct store_fake *f, enum store_fake_op op)
{
    SCOPED_LOCK(&f->lock);
    return f->calls[op];
}

uint64_t store_fake_bytes_got(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    return f->bytes_got;
}

uint64_t store_fake_bytes_put(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    return f->bytes_put;
}

unsigned store_fake_peak(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    return f->peak;
}

void store_fake_reset_counters(struct store_fake *f)
{
    SCOPED_LOCK(&f->lock);
    memset(f->calls, 0, sizeof f->calls);
    f->bytes_got = f->bytes_put = 0;
    f->peak = f->inside;
}
