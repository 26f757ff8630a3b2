/* The document of /status. It is made on the control socket's thread, so it uses counters and constants, blocks on
 * nothing and walks nothing larger than the list of exports. docs/reference describes its members; `granary status` and
 * `granary top` read it. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "format/json_name.h"
#include "server/control_internal.h"

enum { KEEPER_SILENT_S = 90 };

/* Counters of the whole server. */
struct totals {
    uint64_t hits, misses;
    uint64_t fetched, warmed, read, holes; /* bytes */
};

static void take_total(void *arg, const struct counter_row *row)
{
    struct totals *t = arg;
    const struct {
        const char *name;
        uint64_t *to;
    } wanted[] = {
        {"granary_cache_hits_total", &t->hits},       {"granary_cache_misses_total", &t->misses},
        {"granary_fetch_bytes_total", &t->fetched},   {"granary_fetch_warm_bytes_total", &t->warmed},
        {"granary_image_read_bytes_total", &t->read}, {"granary_image_hole_bytes_total", &t->holes},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(wanted); i++)
        if (!strcmp(row->name, wanted[i].name))
            *wanted[i].to = row->value;
}

static double hit_ratio(const struct totals *t)
{
    return t->hits ? (double)t->hits / (double)(t->hits + t->misses) : 0;
}

double control_hit_ratio(struct stack *stack)
{
    struct totals t = {0};
    stack_counters(stack, take_total, &t);
    return hit_ratio(&t);
}

/* Return bytes fetched from stores for each byte read, leaving out warming and holes; 0 when nothing was read. */
static double amplification(const struct totals *t)
{
    uint64_t fetched = t->fetched - GR_MIN(t->fetched, t->warmed); /* read one after the other: warmed may be ahead */
    return t->read > t->holes ? (double)fetched / (double)(t->read - t->holes) : 0;
}

/* Return the hit ratio of one export's reads, by pieces of chunks; 0 before the first hit. */
static double hit_ratio_of(const struct cache_served *s)
{
    uint64_t hits = s->pieces[CACHE_FROM_MEMORY] + s->pieces[CACHE_FROM_DISK];
    return hits ? (double)hits / (double)(hits + cache_served_fetched(s)) : 0;
}

/* ---- rates ---- */

/* What rates are computed from, and their sums. */
struct rates {
    const struct history_sample *then;
    uint64_t now_us;
    double sums[HISTORY_SUMS]; /* over all exports */
};

/* Return the rates as an object, one member per sum. */
static json_t *rates_json(const double rates[HISTORY_SUMS])
{
    json_t *object = json_object();
    for (size_t i = 0; i < HISTORY_SUMS; i++)
        json_object_set_new(object, history_names[i], json_real(rates[i]));
    return object;
}

/* ---- parts ---- */

/* Describe one export: its image, clients, traffic since the start, and rates (NULL: none), which are also added to the
 * sums of all exports. */
static json_t *export_json(const struct stack_export *e, struct rates *r)
{
    struct image *img = stack_export_image(e);
    const char *name = stack_export_name(e);
    const struct cache_quota_use image = stack_export_quota_use(e);
    struct image_traffic t;
    uint64_t sums[HISTORY_SUMS];
    image_traffic(img, &t);
    history_sums(&t, sums);
    json_t *export = json_object();
    json_name_set(export, "name", name, strlen(name));
    json_object_set_new(export, "digest", control_json_digest(image_digest(img)));
    json_object_set_new(export, "content_root", control_json_digest(&image_manifest(img)->content_root));
    json_object_set_new(export, "clients", control_json_integer(stack_export_clients(e)));
    json_object_set_new(export, "own_keys", json_boolean(stack_export_keys(e)));
    json_object_set_new(export, "fence", json_string(stack_export_fenced(e) ? "warmed" : "none"));
    json_object_set_new(export, "quota", control_json_integer(stack_export_quota(e)));
    json_object_set_new(export, "image_quota", control_json_integer(image.size));
    json_object_set_new(export, "image_charged", control_json_integer(image.used));
    json_object_set_new(export, "unwarmed", json_boolean(stack_export_unwarmed(e)));
    json_object_set_new(export, "size", control_json_integer(image_manifest(img)->size));
    for (size_t i = 0; i < HISTORY_SUMS; i++)
        json_object_set_new(export, history_names[i], control_json_integer(sums[i]));
    json_object_set_new(export, "fence_refusals", control_json_integer(t.fence_refusals));
    json_object_set_new(export, "hole_bytes", control_json_integer(t.hole_bytes));
    json_object_set_new(export, "hit_ratio", json_real(hit_ratio_of(&t.served)));
    if (r) {
        double rates[HISTORY_SUMS];
        history_rates(r->then, stack_export_number(e), sums, r->now_us, rates);
        for (size_t i = 0; i < HISTORY_SUMS; i++)
            r->sums[i] += rates[i];
        json_object_set_new(export, "rates", rates_json(rates));
    }
    return export;
}

/* Describe the exports that are not served, since they wait for their keys. */
static json_t *waiting_json(struct added_exports *added)
{
    char name[STACK_EXPORT_NAME_MAX + 1], image[IMAGE_REF_MAX];
    json_t *waiting = json_array();
    for (size_t i = 0; added_exports_waiting(added, i, name, image); i++) {
        json_t *export = json_object();
        json_name_set(export, "name", name, strlen(name));
        json_name_set(export, "image", image, strlen(image));
        json_array_append_new(waiting, export);
    }
    return waiting;
}

/* Describe each cache directory: how it is read and written now, and whether its files were deleted. */
static json_t *directories_json(struct stack *stack)
{
    struct cache_dir_report dirs[CACHE_DIRS_MAX];
    size_t n = stack_cache_dirs(stack, dirs);
    json_t *directories = json_array();
    for (const struct cache_dir_report *dir = dirs; dir < dirs + n; dir++) {
        json_t *object = json_object();
        json_name_set(object, "path", dir->path, strlen(dir->path));
        json_object_set_new(object, "size", control_json_integer(dir->size));
        json_object_set_new(object, "reading", json_string(dir->reading));
        json_object_set_new(object, "writing", json_string(dir->writing));
        json_object_set_new(object, "deleted", json_boolean(dir->deleted));
        json_array_append_new(directories, object);
    }
    return directories;
}

/* Describe each store. The members about failures are there only while it fails. */
static json_t *stores_json(struct stack *stack)
{
    struct store_health h;
    json_t *stores = json_array();
    char of[STACK_EXPORT_NAME_MAX + 1];
    const char *url;
    struct server_store_state state;
    for (size_t i = 0; (url = stack_store_health(stack, i, of, &h)); i++) {
        json_t *store = json_object();
        (void)server_health_of_store(&h, &state);
        json_name_set(store, "url", url, strlen(url));
        if (*of) /* the export whose keys these are */
            json_name_set(store, "export", of, strlen(of));
        json_object_set_new(store, "state", json_string(state.word));
        if (h.read_waits_ms >= SERVER_READ_SLOW_MS)
            json_object_set_new(store, "read_waits_s", json_real((double)h.read_waits_ms / 1000));
        if (h.failures || h.refusals) {
            json_object_set_new(store, "failing_s", json_real((double)state.for_ms / 1000));
            json_object_set_new(store, "failures", control_json_integer(h.failures));
            json_object_set_new(store, "refusals", control_json_integer(h.refusals));
            if (h.refusals)
                json_object_set_new(store, "refused_s", json_real((double)h.refused_ms / 1000));
            json_object_set_new(store, "waiting", control_json_integer(h.waiting));
            json_name_set(store, "error", state.error, strlen(state.error));
        }
        json_array_append_new(stores, store);
    }
    return stores;
}

/* Describe the shared cache proxies. */
static json_t *l2_json(const struct store_l2_reports *reports)
{
    json_t *proxies = json_array();
    for (size_t i = 0; i < reports->len; i++) {
        const struct store_l2_report *t = &reports->items[i];
        json_array_append_new(proxies, json_pack("{s:o, s:I, s:s, s:I, s:I, s:I, s:I}", "url", json_lossy(t->url),
                                                 "weight", (json_int_t)t->weight, "state",
                                                 t->leaving   ? "leaving"
                                                 : t->self    ? "self"
                                                 : t->untried ? "untried"
                                                 : t->down    ? "down"
                                                              : "up",
                                                 "requests", (json_int_t)t->requests, "bytes", (json_int_t)t->bytes,
                                                 "failures", (json_int_t)t->failures, "wrong", (json_int_t)t->wrong));
    }
    return proxies;
}

/* Describe the lists that they come from, of those that can change. */
static json_t *l2_lists_json(const struct store_l2_reports *reports)
{
    json_t *lists = json_array();
    for (size_t i = 0; i < reports->list_count; i++) {
        const struct store_l2_list *l = &reports->lists[i];
        json_t *list = json_pack("{s:o, s:I}", "list", json_lossy(l->list), "proxies", (json_int_t)l->len);
        if (l->failing_ms) {
            json_object_set_new(list, "failing_s", json_real((double)l->failing_ms / 1000));
            json_name_set(list, "error", l->failure, strlen(l->failure));
        }
        json_array_append_new(lists, list);
    }
    return lists;
}

static void add_l2(json_t *root, struct stack *stack)
{
    CLEANUP(store_l2_reports_release) struct store_l2_reports reports;
    stack_l2(stack, &reports);
    json_object_set_new(root, "l2", l2_json(&reports));
    json_object_set_new(root, "l2_lists", l2_lists_json(&reports));
}

/* Describe a reconnect daemon. One that says nothing for as long as three reports take is missing. */
static int add_keeper(void *arg, const char *device, const union report *report, uint64_t age_s)
{
    const struct kept_report *k = &report->kept;
    json_t *keeper = json_object();
    const struct control_sum sums[] = {{"pid", k->pid}, {"reconnects", k->reconnects}, {"report_age_s", age_s}};
    json_object_set_new(keeper, "device", json_lossy(device));
    json_object_set_new(keeper, "state", json_string(age_s < KEEPER_SILENT_S ? "keeping" : "missing"));
    control_json_add(keeper, sums, GR_ARRAY_SIZE(sums));
    if (*k->error) {
        json_object_set_new(keeper, "failed_s", control_json_integer(k->failed_s + age_s));
        json_object_set_new(keeper, "error", json_lossy(k->error));
    }
    return json_array_append_new(arg, keeper) ? -ENOMEM : 0;
}

/* Describe a directory or an export that follows a tag. */
static int add_following(void *arg, const char *name, const union report *report, uint64_t age_s)
{
    const struct followed_report *f = &report->followed;
    json_t *following = json_object();
    const struct control_sum sums[] = {{"versions", f->versions},
                                       {"switches", f->switches},
                                       {"behind_s", f->behind_s ? f->behind_s + age_s : 0},
                                       {"report_age_s", age_s}};
    json_object_set_new(following, "name", json_lossy(name));
    control_json_add(following, sums, GR_ARRAY_SIZE(sums));
    if (*f->image) {
        json_object_set_new(following, "image", json_lossy(f->image));
        json_object_set_new(following, "digest",
                            digest_is_zero(&f->shown) ? json_null() : control_json_digest(&f->shown));
    }
    if (*f->reason)
        json_object_set_new(following, "reason", json_lossy(f->reason));
    return json_array_append_new(arg, following) ? -ENOMEM : 0;
}

/* Describe what others report, by a function that appends to an array. */
static json_t *reports_json(struct reports *reports, enum report_kind kind, reports_visit *add)
{
    json_t *rows = json_array();
    if (reports_each(reports, kind, clock_now_ms(), add, rows)) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}

/* The counters' object, and the totals that are computed from the same rows. */
struct counting {
    json_t *counters;
    struct totals totals;
};

static void take_counter(void *arg, const struct counter_row *row)
{
    struct counting *c = arg;
    json_object_set_new(c->counters, row->name, control_json_integer(row->value));
    take_total(&c->totals, row);
}

/* Add the histogram of whole reads since the start: granary_read_seconds, as bounds and counts. */
static void add_latency_json(void *arg, const struct histogram_row *row)
{
    if (strcmp(row->name, "granary_read_seconds"))
        return;
    json_t *latency = json_object(), *bounds = json_array(), *counts = json_array();
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++)
        json_array_append_new(bounds, control_json_integer(histogram_bounds_us[i]));
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        json_array_append_new(counts, control_json_integer(row->counts[i]));
    json_object_set_new(latency, "bounds_us", bounds);
    json_object_set_new(latency, "counts", counts);
    json_object_set_new(arg, "read_latency", latency);
}

/* Add the exports, with rates if there is a sample. */
static void add_exports(json_t *root, const struct status_view *view)
{
    struct rates rates = {.then = view->then, .now_us = clock_now_us()};
    json_t *exports = json_array();
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    for (size_t n = 0; n < view->exports_max && (e = stack_next(view->stack, e)); n++) {
        json_t *export = export_json(e, view->then ? &rates : NULL);
        if (view->more)
            view->more(view->arg, e, export);
        json_array_append_new(exports, export);
    }
    json_object_set_new(root, "exports", exports);
    if (view->then) {
        json_object_set_new(root, "rates", rates_json(rates.sums));
        json_object_set_new(root, "rates_over_s", json_real((double)(rates.now_us - view->then->at_us) / 1e6));
    }
}

/* A member whose JSON could not be allocated is left out; see control_job.c. */
json_t *status_json(const struct status_view *view)
{
    json_t *root = json_object();
    struct counting c = {.counters = json_object()};
    char why[SERVER_HEALTH_WHY_MAX];
    stack_counters(view->stack, take_counter, &c);
    json_object_set_new(root, "version", json_string(GRANARY_VERSION));
    json_object_set_new(root, "pid", json_integer(getpid()));
    json_object_set_new(root, "uptime_ms", control_json_integer(stack_age_ms(view->stack)));
    json_object_set_new(root, "fence", json_string(cache_is_fenced(stack_cache(view->stack)) ? "warmed" : "none"));
    json_object_set_new(root, "counters", c.counters);
    stack_histograms(view->stack, add_latency_json, root);
    add_exports(root, view);
    json_object_set_new(root, "waiting_exports", waiting_json(view->added));
    json_object_set_new(root, "cache_directories", directories_json(view->stack));
    json_object_set_new(root, "stores", stores_json(view->stack));
    add_l2(root, view->stack);
    json_object_set_new(root, "keepers", reports_json(view->reports, REPORT_KEPT, add_keeper));
    json_object_set_new(root, "following", reports_json(view->reports, REPORT_FOLLOWED, add_following));
    enum server_health health = server_health(view->stack, view->added, why);
    json_object_set_new(root, "health", json_string(server_health_word(health)));
    if (health)
        json_name_set(root, "health_reason", why, strlen(why));
    if (getenv("GRANARY_LOG")) /* the supervisor's */
        json_name_set(root, "log", getenv("GRANARY_LOG"), strlen(getenv("GRANARY_LOG")));
    json_object_set_new(root, "hit_ratio", json_real(hit_ratio(&c.totals)));
    json_object_set_new(root, "amplification", json_real(amplification(&c.totals)));
    return root;
}

int control_status(struct stack *stack, struct added_exports *added, struct reports *reports, struct history *history,
                   struct bytes *out)
{
    struct history_sample then CLEANUP(history_sample_release) = {0};
    const struct status_view view = {
        .stack = stack, .added = added, .reports = reports, .then = history ? &then : NULL, .exports_max = SIZE_MAX};
    int rc = history ? history_oldest(history, &then) : 0;
    if (rc)
        return rc;
    CLEANUP_JSON json_t *root = status_json(&view);
    CLEANUP_FREE char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!text)
        return error_no_memory();
    return bytes_printf(out, "%s\n", text);
}
