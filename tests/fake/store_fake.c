/* Objects stand in an array sorted by key under one mutex, which is never held while a sink, a
 * visitor or a hook runs. Listings go backwards, so that nobody comes to rely on an order the
 * contract does not promise.
 */
#include "fake/store_fake.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/vec.h"

struct object {
    char *key;
    uint8_t *data;
    size_t len;
    int64_t mtime;
    uint64_t version;
};

struct fault {
    struct store_fake_fault spec;
    unsigned seen, hits;
};

struct store_fake {
    struct store store; /* first: store_ops get a pointer to it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VEC(struct object) objects;
    VEC(struct fault) faults;
    uint64_t next_version, random;
    int dead;
    bool conditional, held;
    enum store_fake_md5 md5;
    enum store_fake_op held_op;
    unsigned waiting, inside, peak;
    size_t piece;
    int64_t now;
    store_fake_hook *hook;
    void *hook_arg;
    uint64_t calls[FAKE_OPS + 1], bytes_got, bytes_put;
};

/* What the faults have decided for one call. */
struct verdict {
    enum store_fake_kind kind;
    bool hit;
    int code;
    uint64_t bytes;
};

static const char *const op_names[] = {"get", "get_small", "put", "stat", "list", "remove", "probe"};

static struct store_fake *fake_of(struct store *s)
{
    return (struct store_fake *)s;
}

/* Index of key, or of where it would stand. */
static size_t find_locked(struct store_fake *f, const char *key, bool *found)
{
    size_t low = 0, high = f->objects.len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(f->objects.items[middle].key, key);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static struct object *object_locked(struct store_fake *f, const char *key)
{
    bool found;
    size_t i = find_locked(f, key, &found);
    return found ? &f->objects.items[i] : NULL;
}

static void *copy(const void *data, size_t len)
{
    void *p = malloc(len ? len : 1);
    assert(p);
    if (len)
        memcpy(p, data, len);
    return p;
}

static void put_locked(struct store_fake *f, const char *key, const void *data, size_t len)
{
    bool found;
    size_t i = find_locked(f, key, &found);
    if (!found) {
        if (vec_reserve(&f->objects, 1))
            abort();
        memmove(&f->objects.items[i + 1], &f->objects.items[i], (f->objects.len - i) * sizeof(struct object));
        f->objects.len++;
        f->objects.items[i] = (struct object){.key = strdup(key)};
    }
    struct object *o = &f->objects.items[i];
    free(o->data);
    o->data = copy(data, len);
    o->len = len;
    o->mtime = f->now ? f->now : time(NULL);
    o->version = ++f->next_version;
}

static bool remove_locked(struct store_fake *f, const char *key)
{
    bool found;
    size_t i = find_locked(f, key, &found);
    if (!found)
        return false;
    free(f->objects.items[i].key);
    free(f->objects.items[i].data);
    memmove(&f->objects.items[i], &f->objects.items[i + 1], (f->objects.len - i - 1) * sizeof(struct object));
    f->objects.len--;
    return true;
}

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

static int fail(struct store_fake *f, int code, enum store_fake_op op, const char *key)
{
    return code ? error_set(code, "%s: %s of %s: injected fault", f->store.url, op_names[op], key) : 0;
}

static bool is_held_locked(const struct store_fake *f, enum store_fake_op op)
{
    return f->held && (f->held_op == FAKE_ANY || f->held_op == op);
}

/* Every operation begins here: hook, counters, hold, faults. Returns the code to fail with at once. */
static int enter(struct store_fake *f, enum store_fake_op op, const char *key, struct verdict *v)
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
    return v->hit && v->kind == FAKE_FAIL ? fail(f, v->code, op, key) : 0;
}

/* ... and ends here: a lost answer becomes a failure. */
static int leave(struct store_fake *f, enum store_fake_op op, const char *key, const struct verdict *v, int rc)
{
    pthread_mutex_lock(&f->lock);
    f->inside--;
    pthread_mutex_unlock(&f->lock);
    return !rc && v->hit && v->kind == FAKE_LOSE ? fail(f, v->code, op, key) : rc;
}

static int absent(struct store_fake *f, const char *key)
{
    return error_set(-ENOENT, "%s: %s does not exist", f->store.url, key);
}

/* A copy of bytes [off, off+len) of an object (len UINT64_MAX: to its end). */
static int snapshot(struct store_fake *f, const char *key, uint64_t off, uint64_t *len, uint8_t **out,
                    uint64_t *version)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    if (!o)
        return absent(f, key);
    if (*len == UINT64_MAX)
        *len = o->len - off;
    if (off > o->len || *len > o->len - off)
        return error_set(-EBADMSG, "%s: %s ends before the range asked for", f->store.url, key);
    *out = copy(o->data + off, *len);
    if (version)
        *version = o->version;
    return 0;
}

static int hand_on(struct store_fake *f, const uint8_t *data, uint64_t len, store_sink *sink, void *arg)
{
    pthread_mutex_lock(&f->lock);
    size_t piece = f->piece ? f->piece : SIZE_MAX;
    pthread_mutex_unlock(&f->lock);
    int rc = 0;
    for (uint64_t at = 0; !rc && at < len;) {
        size_t n = GR_MIN((uint64_t)piece, len - at);
        pthread_mutex_lock(&f->lock);
        f->bytes_got += n;
        pthread_mutex_unlock(&f->lock);
        rc = sink(arg, data + at, n);
        at += n;
    }
    return rc;
}

static int get_inside(struct store_fake *f, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg,
                      const struct verdict *v)
{
    CLEANUP_FREE uint8_t *data = NULL;
    int rc = snapshot(f, key, off, &len, &data, NULL);
    if (rc)
        return rc;
    if (v->hit && v->kind == FAKE_FLIP && v->bytes < len)
        data[v->bytes] ^= 1;
    if (!v->hit || v->kind != FAKE_CUT)
        return hand_on(f, data, len, sink, arg);
    rc = hand_on(f, data, GR_MIN(len, v->bytes), sink, arg);
    return rc ? rc : fail(f, v->code, FAKE_GET, key);
}

static int fake_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    store_note_try(s, context);
    int rc = enter(f, FAKE_GET, key, &v);
    if (!rc)
        rc = get_inside(f, key, off, len, sink, arg, &v);
    return leave(f, FAKE_GET, key, &v, rc);
}

static int fake_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    CLEANUP_FREE uint8_t *data = NULL;
    uint64_t len = UINT64_MAX, number;
    int rc = enter(f, FAKE_GET_SMALL, key, &v);
    if (!rc)
        rc = snapshot(f, key, 0, &len, &data, &number);
    if (!rc && out->len + len > out->max)
        rc = error_set(-EMSGSIZE, "%s: %s is larger than %zu bytes", f->store.url, key, out->max);
    if (!rc && v.hit && v.kind == FAKE_FLIP && v.bytes < len)
        data[v.bytes] ^= 1;
    if (!rc)
        rc = hand_on(f, data, len, store_append, out);
    if (!rc && version)
        snprintf(version, STORE_VERSION_MAX, "v%llu", (unsigned long long)number);
    return leave(f, FAKE_GET_SMALL, key, &v, rc);
}

static int put_inside(struct store_fake *f, const struct store_put *put)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, put->key);
    if (f->conditional && put->mode != STORE_PUT_ALWAYS) {
        char version[STORE_VERSION_MAX] = "";
        if (o)
            snprintf(version, sizeof version, "v%llu", (unsigned long long)o->version);
        bool holds = put->mode == STORE_PUT_IF_ABSENT ? !o : o && !strcmp(version, put->version);
        if (!holds)
            return error_set(-EEXIST, "%s: %s: the put's condition does not hold", f->store.url, put->key);
    }
    put_locked(f, put->key, put->data, put->len);
    f->bytes_put += put->len;
    return 0;
}

static int fake_put(struct store *s, const struct store_put *put)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = enter(f, FAKE_PUT, put->key, &v);
    if (!rc)
        rc = put_inside(f, put);
    return leave(f, FAKE_PUT, put->key, &v, rc);
}

static int stat_inside(struct store_fake *f, const char *key, struct store_item *out)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    if (!o)
        return absent(f, key);
    *out = (struct store_item){.key = key, .size = o->len, .mtime = o->mtime};
    if (f->md5 != FAKE_MD5_NONE)
        md5_hex(f->md5 == FAKE_MD5_TRUE ? o->data : (const void *)"secret", f->md5 == FAKE_MD5_TRUE ? o->len : 6,
                out->md5);
    return 0;
}

static int fake_stat(struct store *s, const char *key, struct store_item *out)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = enter(f, FAKE_STAT, key, &v);
    if (!rc)
        rc = stat_inside(f, key, out);
    return leave(f, FAKE_STAT, key, &v, rc);
}

static int list_inside(struct store_fake *f, const char *prefix, store_visit *visit, void *arg)
{
    VEC(struct store_item) items = {0};
    size_t prefix_len = strlen(prefix);
    pthread_mutex_lock(&f->lock);
    for (size_t i = f->objects.len; i-- > 0;) {
        struct object *o = &f->objects.items[i];
        if (strncmp(o->key, prefix, prefix_len) != 0)
            continue;
        struct store_item item = {.key = strdup(o->key), .size = o->len, .mtime = o->mtime};
        if (vec_push(&items, item))
            abort();
    }
    pthread_mutex_unlock(&f->lock);
    int rc = 0;
    for (size_t i = 0; i < items.len && !rc; i++)
        rc = visit(arg, &items.items[i]);
    for (size_t i = 0; i < items.len; i++)
        free((char *)items.items[i].key);
    vec_release(&items);
    return rc;
}

static int fake_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = enter(f, FAKE_LIST, prefix, &v);
    if (!rc)
        rc = list_inside(f, prefix, visit, arg);
    return leave(f, FAKE_LIST, prefix, &v, rc);
}

static int fake_remove(struct store *s, const char *key)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = enter(f, FAKE_REMOVE, key, &v);
    if (!rc)
        store_fake_remove(f, key);
    return leave(f, FAKE_REMOVE, key, &v, rc);
}

static int fake_probe(struct store *s, bool *out)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = enter(f, FAKE_PROBE, "", &v);
    if (!rc) {
        SCOPED_LOCK(&f->lock);
        *out = f->conditional;
    }
    return leave(f, FAKE_PROBE, "", &v, rc);
}

static void fake_close(struct store *s)
{
}

static const struct store_ops fake_ops = {
    .get = fake_get,
    .get_small = fake_get_small,
    .put = fake_put,
    .stat = fake_stat,
    .list = fake_list,
    .remove = fake_remove,
    .probe_conditional = fake_probe,
    .close = fake_close,
};

struct store_fake *store_fake_new(void)
{
    struct store_fake *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->store = (struct store){.ops = &fake_ops, .url = "fake://store"};
    f->random = 1;
    f->conditional = true;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    return f;
}

struct store *store_fake_store(struct store_fake *f)
{
    return &f->store;
}

void store_fake_free(struct store_fake *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->objects.len; i++) {
        free(f->objects.items[i].key);
        free(f->objects.items[i].data);
    }
    free(f->store.id);
    vec_release(&f->objects);
    vec_release(&f->faults);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
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

void store_fake_set_md5(struct store_fake *f, enum store_fake_md5 how)
{
    SCOPED_LOCK(&f->lock);
    f->md5 = how;
}

void store_fake_set_conditional(struct store_fake *f, bool honoured)
{
    SCOPED_LOCK(&f->lock);
    f->conditional = honoured;
}

void store_fake_set_piece(struct store_fake *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->piece = bytes;
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

void store_fake_set_now(struct store_fake *f, int64_t now)
{
    SCOPED_LOCK(&f->lock);
    f->now = now;
}

void store_fake_put(struct store_fake *f, const char *key, const void *data, size_t len)
{
    SCOPED_LOCK(&f->lock);
    put_locked(f, key, data, len);
}

bool store_fake_has(struct store_fake *f, const char *key)
{
    SCOPED_LOCK(&f->lock);
    return object_locked(f, key) != NULL;
}

bool store_fake_get(struct store_fake *f, const char *key, struct bytes *out)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    return o && !bytes_append(out, o->data, o->len);
}

bool store_fake_remove(struct store_fake *f, const char *key)
{
    SCOPED_LOCK(&f->lock);
    return remove_locked(f, key);
}

bool store_fake_flip(struct store_fake *f, const char *key, size_t offset)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    if (!o || offset >= o->len)
        return false;
    o->data[offset] ^= 1;
    return true;
}

bool store_fake_truncate(struct store_fake *f, const char *key, size_t len)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    if (!o || len > o->len)
        return false;
    o->len = len;
    return true;
}

bool store_fake_set_mtime(struct store_fake *f, const char *key, int64_t mtime)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = object_locked(f, key);
    if (o)
        o->mtime = mtime;
    return o;
}

size_t store_fake_count(struct store_fake *f, const char *prefix)
{
    SCOPED_LOCK(&f->lock);
    size_t n = 0;
    for (size_t i = 0; i < f->objects.len; i++)
        n += !strncmp(f->objects.items[i].key, prefix, strlen(prefix));
    return n;
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
