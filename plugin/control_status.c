/* The answer to /status. It is made on the control socket's thread: sums and constants, no walk over anything. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "format/json_name.h"
#include "plugin/control.h"
#include "plugin/control_json.h"

DEFINE_CLEANUP(json, json_t *, json_decref)

struct hit_counts {
    uint64_t hits, misses;
};

static void count_hits(void *arg, const struct counter_row *row)
{
    struct hit_counts *c = arg;
    if (!strcmp(row->name, "granary_cache_hits_total"))
        c->hits = row->value;
    else if (!strcmp(row->name, "granary_cache_misses_total"))
        c->misses = row->value;
}

double control_hit_ratio(struct stack *stack)
{
    struct hit_counts c = {0};
    stack_counters(stack, count_hits, &c);
    return c.hits ? (double)c.hits / (double)(c.hits + c.misses) : 0;
}

struct traffic {
    uint64_t fetched, read, holes;
};

static void count_traffic(void *arg, const struct counter_row *row)
{
    struct traffic *t = arg;
    if (!strcmp(row->name, "granary_fetch_bytes_total"))
        t->fetched = row->value;
    else if (!strcmp(row->name, "granary_image_read_bytes_total"))
        t->read = row->value;
    else if (!strcmp(row->name, "granary_image_hole_bytes_total"))
        t->holes = row->value;
}

/* Bytes asked of stores for each that was read and is none of a hole; 0: nothing was read. */
static double amplification(struct stack *stack)
{
    struct traffic t = {0};
    stack_counters(stack, count_traffic, &t);
    return t.read > t.holes ? (double)t.fetched / (double)(t.read - t.holes) : 0;
}

static double hit_ratio_of(const struct cache_served *s)
{
    uint64_t hits = s->pieces[CACHE_FROM_MEMORY] + s->pieces[CACHE_FROM_DISK];
    return hits ? (double)hits / (double)(hits + cache_served_fetched(s)) : 0;
}

static json_t *export_json(const struct stack_export *e)
{
    struct image *img = stack_export_image(e);
    const char *name = stack_export_name(e);
    struct image_traffic t;
    image_traffic(img, &t);
    json_t *export = json_object();
    json_name_set(export, "name", name, strlen(name));
    json_object_set_new(export, "digest", control_json_digest(image_digest(img)));
    json_object_set_new(export, "content_root", control_json_digest(&image_manifest(img)->content_root));
    json_object_set_new(export, "clients", control_json_integer(stack_export_clients(e)));
    json_object_set_new(export, "size", control_json_integer(image_manifest(img)->size));
    json_object_set_new(export, "reads", control_json_integer(t.reads));
    json_object_set_new(export, "read_bytes", control_json_integer(t.read_bytes));
    json_object_set_new(export, "memory_bytes", control_json_integer(t.served.bytes[CACHE_FROM_MEMORY]));
    json_object_set_new(export, "disk_bytes", control_json_integer(t.served.bytes[CACHE_FROM_DISK]));
    json_object_set_new(export, "tier_bytes", control_json_integer(t.served.bytes[CACHE_FROM_TIER]));
    json_object_set_new(export, "store_bytes", control_json_integer(t.served.bytes[CACHE_FROM_STORE]));
    json_object_set_new(export, "fence_refusals", control_json_integer(t.fence_refusals));
    json_object_set_new(export, "hole_bytes", control_json_integer(t.hole_bytes));
    json_object_set_new(export, "hit_ratio", json_real(hit_ratio_of(&t.served)));
    return export;
}

static json_t *exports_json(struct stack *stack)
{
    json_t *exports = json_array();
    for (struct stack_export *e = NULL; (e = stack_next(stack, e));)
        json_array_append_new(exports, export_json(e));
    return exports;
}

static json_t *directory_json(const struct cache_dir_report *dir)
{
    json_t *object = json_object();
    json_name_set(object, "path", dir->path, strlen(dir->path));
    json_object_set_new(object, "size", control_json_integer(dir->size));
    json_object_set_new(object, "reading", json_string(dir->reading));
    json_object_set_new(object, "writing", json_string(dir->writing));
    json_object_set_new(object, "deleted", json_boolean(dir->deleted));
    return object;
}

/* *out_well: no directory has anything against it. */
static json_t *directories_json(struct stack *stack, bool *out_well)
{
    struct cache_dir_report dirs[CACHE_DIRS_MAX];
    size_t n = stack_cache_dirs(stack, dirs);
    json_t *directories = json_array();
    *out_well = true;
    for (size_t i = 0; i < n; i++) {
        *out_well &= !dirs[i].deleted && !strcmp(dirs[i].reading, "normal") && !strcmp(dirs[i].writing, "normal");
        json_array_append_new(directories, directory_json(&dirs[i]));
    }
    return directories;
}

static json_t *store_json(const char *url, const struct store_health *h)
{
    json_t *store = json_object();
    json_name_set(store, "url", url, strlen(url));
    json_object_set_new(store, "state", json_string(h->silent ? "silent" : h->failures ? "failing" : "answering"));
    if (!h->failures)
        return store;
    json_object_set_new(store, "failing_s", json_real((double)h->failing_ms / 1000));
    json_object_set_new(store, "failures", control_json_integer(h->failures));
    json_object_set_new(store, "waiting", control_json_integer(h->waiting));
    json_name_set(store, "error", h->last, strlen(h->last));
    return store;
}

/* *well becomes false when one answers nobody. */
static json_t *stores_json(struct stack *stack, bool *well)
{
    struct store_health health;
    json_t *stores = json_array();
    const char *url;
    for (size_t i = 0; (url = stack_store_health(stack, i, &health)); i++) {
        *well &= !health.silent;
        json_array_append_new(stores, store_json(url, &health));
    }
    return stores;
}

/* *well becomes false when one is passed over: reads cost more then. */
static json_t *tiers_json(struct stack *stack, bool *well)
{
    struct store_tier_report reports[STORE_TIERS_MAX];
    size_t n = stack_tiers(stack, reports);
    json_t *tiers = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct store_tier_report *t = &reports[i];
        *well &= !t->down;
        json_array_append_new(tiers, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "url", t->url, "state",
                                               t->down ? "down" : "up", "requests", (json_int_t)t->requests, "bytes",
                                               (json_int_t)t->bytes, "failures", (json_int_t)t->failures, "wrong",
                                               (json_int_t)t->wrong));
    }
    return tiers;
}

static void add_counter_json(void *arg, const struct counter_row *row)
{
    json_object_set_new(arg, row->name, control_json_integer(row->value));
}

int control_status(struct stack *stack, struct bytes *out)
{
    CLEANUP(cleanup_json) json_t *root = json_object();
    json_t *counters = json_object();
    bool well;
    stack_counters(stack, add_counter_json, counters);
    json_object_set_new(root, "version", json_string(GRANARY_VERSION));
    json_object_set_new(root, "pid", json_integer(getpid()));
    json_object_set_new(root, "uptime_ms", control_json_integer(stack_age_ms(stack)));
    json_object_set_new(root, "fence", json_string(cache_is_fenced(stack_cache(stack)) ? "warmed" : "none"));
    json_object_set_new(root, "exports", exports_json(stack));
    json_object_set_new(root, "cache_directories", directories_json(stack, &well));
    json_object_set_new(root, "stores", stores_json(stack, &well));
    json_object_set_new(root, "shared_tiers", tiers_json(stack, &well));
    json_object_set_new(root, "health", json_string(well ? "well" : "degraded"));
    json_object_set_new(root, "counters", counters);
    json_object_set_new(root, "hit_ratio", json_real(control_hit_ratio(stack)));
    json_object_set_new(root, "amplification", json_real(amplification(stack)));
    CLEANUP_FREE char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!text)
        return error_set(-ENOMEM, "control: out of memory");
    return bytes_printf(out, "%s\n", text);
}
