/* granary status [TARGET]
 *
 *   GET /status              exports, cache directories, stores, counters, rates
 *   GET /cache?known=1       how much of each image is cached, by the index nodes that are cached; not with --quick
 *   mounts' state files      where each image is mounted, and which process keeps its device
 *
 * None of these contacts a store, so the verb works when a store is down, which is when it is needed most. The exit
 * status is the server's health: 0 healthy, 1 degraded, 3 failing or not answering.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "format/json_name.h"

struct status_values {
    bool json, quick, verbose;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "quick", NULL, offsetof(struct status_values, quick), 0, 0,
     "only what the server knows at once, not how much of each image is cached"},
    {OPTION_FLAG, 'v', "verbose", NULL, offsetof(struct status_values, verbose), 0, 0,
     "show every counter that is not zero, too"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct status_values, json), 0, 0,
     "print one JSON object; without TARGET {\"servers\": [...]}"},
    {0},
};

/* ---- what is cached ---- */

/* A line of the answer about an image becomes the member "cached" of its export. */
static int cmd_status_take_line(void *arg, const char *line, size_t len)
{
    json_t *object;
    int rc = control_object(line, len, &object);
    json_t *image = json_object_get(object, "image");
    json_t *export = image ? server_status_export(arg, server_status_text(image, "export")) : NULL;
    if (export) {
        json_object_del(image, "export");
        json_object_del(image, "digest");
        json_object_del(image, "store_error");
        json_object_set(export, "cached", image);
    }
    json_decref(object);
    return rc;
}

/* ---- printing ---- */

/* Print each item of a list, below a heading (NULL: none) if there are any. */
static void print_each(json_t *of, const char *list, const char *heading, void (*print)(json_t *item))
{
    size_t i;
    json_t *item, *items = json_object_get(of, list);
    if (heading && json_array_size(items))
        puts(heading);
    json_array_foreach(items, i, item)
    {
        print(item);
    }
}

/* Print how much of an image is cached; the figures leave out chunks of which the index is not cached. */
static void print_cached(json_t *cached)
{
    char all[TEXT_SIZE_MAX], part[TEXT_SIZE_MAX];
    uint64_t bytes = control_number(cached, "bytes"), have = control_number(cached, "cached_bytes");
    uint64_t chunks = control_number(cached, "chunks"), unknown = control_number(cached, "unknown_chunks");
    printf("    cached %s of %s (%.1f %%), ", text_format_size(have, part), text_format_size(bytes, all),
           bytes ? 100 * (double)have / (double)bytes : 0);
    uint64_t metadata = control_number(cached, "metadata_chunks");
    uint64_t there = control_number(cached, "metadata_cached_chunks");
    if (metadata)
        printf("metadata %s%s, ",
               there == metadata ? "cached"
               : there           ? "cached in part"
                                 : "not cached",
               control_number(cached, "metadata_pinned_chunks") == metadata ? " and pinned" : "");
    if (!unknown)
        printf("index cached\n");
    else
        printf("as far as is known: the index of %llu of %llu chunks is not cached\n", (unsigned long long)unknown,
               (unsigned long long)(chunks + unknown));
}

/* Where bytes come from: the name in /status, and the word printed for it. */
static const struct {
    const char *name, *shown;
} sources[] = {{"memory", "memory"}, {"disk", "disk"},   {"peer", "other nodes"},
               {"l2", "proxies"},    {"store", "store"}, {"hole", "hole"}};

/* Print rates, with ", 12.0 MiB/s from disk" for each source that gave anything. */
static void print_rates(json_t *of)
{
    char size[TEXT_SIZE_MAX], key[32];
    printf("%.1f reads/s, %s/s", server_rate(of, "reads"),
           text_format_size((uint64_t)server_rate(of, "read_bytes"), size));
    for (size_t i = 0; i < GR_ARRAY_SIZE(sources); i++) {
        snprintf(key, sizeof key, "%s_bytes", sources[i].name);
        if (server_rate(of, key) >= 1)
            printf(", %s/s from %s", text_format_size((uint64_t)server_rate(of, key), size), sources[i].shown);
    }
    putchar('\n');
}

/* Print an export's reads since the server's start, by source. */
static void print_traffic(json_t *export)
{
    char size[TEXT_SIZE_MAX], key[32];
    printf("    %llu reads, hit ratio %.1f %%", (unsigned long long)control_number(export, "reads"),
           100 * json_number_value(json_object_get(export, "hit_ratio")));
    for (size_t i = 0; i < GR_ARRAY_SIZE(sources); i++) {
        snprintf(key, sizeof key, "%s_bytes", sources[i].name);
        if (control_number(export, key))
            printf(", %s from %s", text_format_size(control_number(export, key), size), sources[i].shown);
    }
    putchar('\n');
    if (!strcmp(server_status_text(export, "fence"), "warmed"))
        printf("    cache-only mode: reads of what is not cached fail\n");
    if (control_number(export, "image_quota")) {
        printf("    quota of the image, all versions: %s",
               text_format_size(control_number(export, "image_quota"), size));
        printf(", %s used\n", text_format_size(control_number(export, "image_charged"), size));
    }
    if (control_number(export, "fence_refusals"))
        printf("    %llu reads refused in cache-only mode\n",
               (unsigned long long)control_number(export, "fence_refusals"));
}

static void print_mount(json_t *dir)
{
    printf("    mounted on ");
    print_text(json_string_value(dir));
    putchar('\n');
}

/* An nbd device without a reconnect daemon fails when its server ends, so the remedy is printed with it. */
static void print_device(json_t *device)
{
    const char *name = server_status_text(device, "device");
    uint64_t keeper = control_number(device, "keeper");
    if (!json_object_get(device, "keeper"))
        printf("    %s: ublk\n", name);
    else if (keeper)
        printf("    %s: reconnect daemon %llu\n", name, (unsigned long long)keeper);
    else
        printf("    %s: no reconnect daemon: run 'granary keep %s'\n", name, name);
}

/* One block: identity, mounts, devices, what is cached, reads since the start, rates. */
static void print_export(json_t *export)
{
    char size[TEXT_SIZE_MAX];
    const char *digest = json_string_value(json_object_get(export, "digest"));
    printf("  ");
    print_text(json_string_value(json_object_get(export, "name")));
    printf("  %s, %s\n", text_format_size(control_number(export, "size"), size), digest ? digest : "");
    print_each(export, "mounts", NULL, print_mount);
    print_each(export, "devices", NULL, print_device);
    if (json_object_get(export, "cached"))
        print_cached(json_object_get(export, "cached"));
    print_traffic(export);
    if (json_object_get(export, "rates")) {
        printf("    now ");
        print_rates(export);
    }
}

/* An export that is not served. */
static void print_waiting(json_t *export)
{
    printf("  ");
    print_text(json_string_value(json_object_get(export, "name")));
    printf("  waits for its keys; its reads wait\n");
    print_each(export, "mounts", NULL, print_mount);
}

/* A directory that follows a tag: what it shows, why not what the tag names, who follows. */
static void print_followed(json_t *followed)
{
    size_t versions = json_array_size(json_object_get(followed, "versions"));
    char n[TEXT_COUNT_MAX], times[TEXT_COUNT_MAX];
    printf("  ");
    print_text(server_status_text(followed, "dir"));
    printf("  ");
    print_text(server_status_text(followed, "image"));
    printf(", %s\n    %s, %s", server_status_text(followed, "digest"), text_format_count(versions, "version", n),
           text_format_count(control_number(followed, "switches"), "change", times));
    if (json_is_string(json_object_get(followed, "switched")))
        printf(", the last at %s", server_status_text(followed, "switched"));
    putchar('\n');
    if (json_object_get(followed, "reason"))
        printf("    stays as it is: %s\n", server_status_text(followed, "reason"));
    if (!json_is_integer(json_object_get(followed, "follower")))
        puts("    no process follows the tag: run the command that mounted it once more");
}

/* An export that follows a tag. */
static void print_following(json_t *following)
{
    char n[TEXT_COUNT_MAX], times[TEXT_COUNT_MAX];
    const char *digest = json_string_value(json_object_get(following, "digest"));
    printf("  export ");
    print_text(server_status_text(following, "name"));
    printf("  ");
    print_text(server_status_text(following, "image"));
    printf(", %s\n    %s, %s", digest ? digest : "no version yet",
           text_format_count(control_number(following, "versions"), "version", n),
           text_format_count(control_number(following, "switches"), "change", times));
    if (control_number(following, "behind_s"))
        printf(", behind its tag for %llu s", (unsigned long long)control_number(following, "behind_s"));
    putchar('\n');
    if (json_object_get(following, "reason"))
        printf("    stays as it is: %s\n", server_status_text(following, "reason"));
}

/* Directories come from their state files, which say more than the server's list has of them; exports from that list,
 * where they have an image. */
static void print_followed_tags(json_t *status)
{
    size_t i;
    json_t *following;
    bool headed = json_array_size(json_object_get(status, "followed")) > 0;
    print_each(status, "followed", "followed tags", print_followed);
    json_array_foreach(json_object_get(status, "following"), i, following)
    {
        if (!json_object_get(following, "image"))
            continue;
        if (!headed)
            puts("followed tags");
        headed = true;
        print_following(following);
    }
}

static void print_directory(json_t *dir)
{
    char size[TEXT_SIZE_MAX];
    printf("  ");
    print_text(server_status_text(dir, "path"));
    printf("  %s, reading %s, writing %s%s\n", text_format_size(control_number(dir, "size"), size),
           server_status_text(dir, "reading"), server_status_text(dir, "writing"),
           json_is_true(json_object_get(dir, "deleted")) ? ", deleted" : "");
}

/* A store with its state and, if it is not answering, why and for how long. */
static void print_store(json_t *store)
{
    const char *state = server_status_text(store, "state");
    double failing_s = json_number_value(json_object_get(store, "failing_s"));
    printf("  %-20s ", server_status_text(store, "url"));
    if (!strcmp(state, "answering"))
        puts(state);
    else if (!strcmp(state, "refusing"))
        printf("refusing for %.0f s, last tried %.0f s ago: %s\n", failing_s,
               json_number_value(json_object_get(store, "refused_s")), server_status_text(store, "error"));
    else if (!control_number(store, "failures"))
        printf("%s: a read has been waiting for %.0f s\n", state,
               json_number_value(json_object_get(store, "read_waits_s")));
    else
        printf("%s for %.0f s, %llu requests wait: %s\n", strcmp(state, "silent") ? state : "not answering", failing_s,
               (unsigned long long)control_number(store, "waiting"), server_status_text(store, "error"));
}

static void print_proxy(json_t *proxy)
{
    char size[TEXT_SIZE_MAX];
    printf("  %-20s %s, %llu requests, %s, %llu failures, %llu wrong", server_status_text(proxy, "url"),
           server_status_text(proxy, "state"), (unsigned long long)control_number(proxy, "requests"),
           text_format_size(control_number(proxy, "bytes"), size),
           (unsigned long long)control_number(proxy, "failures"), (unsigned long long)control_number(proxy, "wrong"));
    if (control_number(proxy, "weight") > 1) /* an older server does not say it */
        printf(", weight %llu", (unsigned long long)control_number(proxy, "weight"));
    putchar('\n');
}

/* What the server answered other nodes, if it is one. */
static void print_peers(json_t *status)
{
    char size[TEXT_SIZE_MAX], fetched[TEXT_SIZE_MAX];
    uint64_t served = server_status_counter(status, "granary_peer_served_total");
    uint64_t refused = server_status_counter(status, "granary_peer_refused_total");
    if (served || refused)
        printf("answered other nodes: %llu requests, %s, %s of it fetched for them; refused: %llu\n",
               (unsigned long long)served,
               text_format_size(server_status_counter(status, "granary_peer_served_bytes_total"), size),
               text_format_size(server_status_counter(status, "granary_peer_fetched_bytes_total"), fetched),
               (unsigned long long)refused);
}

static void print_l2_list(json_t *list)
{
    printf("  %-20s %llu", server_status_text(list, "list"), (unsigned long long)control_number(list, "proxies"));
    if (json_object_get(list, "error"))
        printf(", not up to date for %.0f s: %s", json_number_value(json_object_get(list, "failing_s")),
               server_status_text(list, "error"));
    putchar('\n');
}

/* Print the counters that are not 0; those of bytes also as sizes. */
static void print_counters(json_t *status)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(status, "counters"), name, value)
    {
        uint64_t n = (uint64_t)json_integer_value(value);
        char size[TEXT_SIZE_MAX];
        if (!n)
            continue;
        if (strstr(name, "_bytes"))
            printf("  %-44s %llu (%s)\n", name, (unsigned long long)n, text_format_size(n, size));
        else
            printf("  %-44s %llu\n", name, (unsigned long long)n);
    }
}

/* Print the load of a front end; the nbdkit plugin reports none. */
static void print_front_end(json_t *status)
{
    char now[TEXT_SIZE_MAX], most[TEXT_SIZE_MAX];
    uint64_t connections = server_status_counter(status, "granary_front_connections_limit");
    if (!connections)
        return;
    printf("clients: %llu of at most %llu connections, %llu of %llu threads, replies %s of %s\n",
           (unsigned long long)server_status_counter(status, "granary_front_connections"),
           (unsigned long long)connections, (unsigned long long)server_status_counter(status, "granary_front_threads"),
           (unsigned long long)server_status_counter(status, "granary_front_threads_limit"),
           text_format_size(server_status_counter(status, "granary_front_reply_bytes"), now),
           text_format_size(server_status_counter(status, "granary_front_reply_bytes_limit"), most));
}

/* The health and its reason come first. */
static void print_status(json_t *status, bool verbose)
{
    char since[TEXT_TIME_MAX];
    const char *version = json_string_value(json_object_get(status, "version"));
    printf("granary %s, process %llu, %s, since %s\n", version ? version : "?",
           (unsigned long long)control_number(status, "pid"), server_status_text(status, "health"),
           text_format_time(time(NULL) - (int64_t)(control_number(status, "uptime_ms") / 1000), since));
    if (json_object_get(status, "health_reason"))
        printf("%s: %s\n", server_status_text(status, "health"), server_status_text(status, "health_reason"));
    if (json_object_get(status, "log"))
        printf("log: %s\n", server_status_text(status, "log"));
    if (!strcmp(server_status_text(status, "fence"), "warmed"))
        printf("cache-only mode: reads of what is not cached fail\n");
    puts("exports");
    print_each(status, "exports", NULL, print_export);
    print_each(status, "waiting_exports", NULL, print_waiting);
    print_followed_tags(status);
    print_each(status, "cache_directories", "cache directories", print_directory);
    print_each(status, "stores", "stores", print_store);
    print_each(status, "l2", "shared cache proxies", print_proxy);
    print_each(status, "l2_lists", "lists of shared cache proxies", print_l2_list);
    print_peers(status);
    print_front_end(status);
    if (json_object_get(status, "rates")) {
        printf("now ");
        print_rates(status);
    }
    printf("hits %llu, misses %llu, hit ratio %.1f %%\n",
           (unsigned long long)server_status_counter(status, "granary_cache_hits_total"),
           (unsigned long long)server_status_counter(status, "granary_cache_misses_total"),
           100 * json_number_value(json_object_get(status, "hit_ratio")));
    printf("amplification %.2f (bytes fetched, warming not counted, for each byte that was read)\n",
           json_number_value(json_object_get(status, "amplification")));
    if (verbose) {
        printf("counters that are not zero\n");
        print_counters(status);
    }
}

/* ---- health ---- */

enum { STATUS_DEGRADED = CLI_FAILED, STATUS_FAILING = CLI_DIFFERENT };

/* Fetch everything about a server; if only how much is cached is missing, the rest is shown. *out_exit: the exit status
 * for its health. */
static int cmd_status_look(const struct node_server *server, const char *target, const struct status_values *v,
                           json_t **out, int *out_exit)
{
    int rc = control_status(server->control, out);
    if (rc)
        return rc;
    const char *health = server_status_text(*out, "health"); /* earlier versions call healthy "well" */
    *out_exit = !strcmp(health, "healthy") || !strcmp(health, "well") ? CLI_DONE
                : !strcmp(health, "failing")                          ? STATUS_FAILING
                                                                      : STATUS_DEGRADED;
    const char *const params[] = {"known", "1", NULL};
    if (!v->quick && control_call(server->control, "GET", "/cache", params, cmd_status_take_line, *out))
        fprintf(stderr, "granary: status: how much is cached is not known: %s\n", error_text());
    node_servers_add_mounts(server->control, *out);
    if (target)
        node_servers_keep_mount(*out, target);
    return 0;
}

/* Show one server. One that cannot be shown is reported, without hiding the others; if it does not answer, it counts as
 * failing. into: collects the JSON of all servers; NULL: print at once. Returns the exit status. */
static int show_or_complain(const struct node_server *server, const char *target, const struct status_values *v,
                            json_t *into)
{
    json_t *status = NULL;
    int health = CLI_DONE, rc = cmd_status_look(server, target, v, &status, &health);
    if (rc) {
        if (server->dir)
            (void)error_prefix(rc, "%s", server->dir);
        fprintf(stderr, "granary: status: %s\n", error_text());
        if (into)
            json_array_append_new(into, json_pack("{s:o,s:s,s:o}", "control", json_lossy(server->control), "health",
                                                  "failing", "error", json_lossy(error_text())));
        return rc == -EPROTO ? CLI_FAILED : STATUS_FAILING; /* no control socket: that tells nothing of a server */
    }
    if (into) {
        json_array_append_new(into, status);
        return health;
    }
    if (v->json) {
        rc = print_json(status);
        return rc ? rc : health;
    }
    print_status(status, v->verbose);
    json_decref(status);
    return health;
}

/* ---- mounts without a server ---- */

/* Show a mount of a file. json: collects them; NULL: print. */
static void show_direct(const struct mount_state *s, json_t *json)
{
    char digest[PRINT_DIGEST_MAX];
    if (json) {
        json_array_append_new(json,
                              json_pack("{s:o,s:o,s:s,s:o}", "dir", json_lossy(s->dir), "image", json_lossy(s->image),
                                        "digest", print_digest(&s->digest, digest), "file", json_lossy(s->image_file)));
        return;
    }
    print_text(s->dir);
    printf("  ");
    print_text(s->image);
    printf(", %s\n    mounted without a server from ", print_digest(&s->digest, digest));
    print_text(s->image_file);
    putchar('\n');
}

/* The mounts of files that were shown. */
struct direct_shown {
    json_t *json; /* NULL: they are printed */
    bool any;
};

static int visit_direct(void *arg, const struct mount_state *s)
{
    struct direct_shown *d = arg;
    if (!mount_is_direct(s))
        return 0;
    show_direct(s, d->json);
    d->any = true;
    return 0;
}

/* Nothing can be out of order between a file and its readers that the kernel would not tell these. */
static int show_direct_target(const struct mount_state *s, const struct status_values *v)
{
    json_t *all = v->json ? json_array() : NULL;
    show_direct(s, all);
    return all ? print_json(json_pack("{s:s,s:o}", "health", "healthy", "direct", all)) : CLI_DONE;
}

/* Show every server of this machine. Returns the worst exit status. */
static int show_all(const struct node_servers *n, const struct status_values *v)
{
    int worst = CLI_DONE;
    json_t *all = v->json ? json_array() : NULL;
    for (size_t i = 0; i < n->found.len; i++) {
        if (i && !v->json)
            putchar('\n');
        int health = show_or_complain(&n->found.items[i], NULL, v, all);
        worst = GR_MAX(worst, health);
    }
    struct direct_shown direct = {.json = v->json ? json_array() : NULL};
    (void)!mount_each(visit_direct, &direct);
    int rc = all ? print_json(json_pack("{s:o,s:o}", "servers", all, "direct", direct.json)) : 0;
    if (rc)
        return rc;
    if (!n->found.len && !direct.any)
        return error_set(
            -ENOENT,
            "nothing listens on %s, and no mount is known to this user; give a control socket or a mount point",
            SERVE_CONTROL);
    return worst;
}

/* With a target one server is shown, without one every server of this machine. */
static int cmd_status_run(const struct invocation *inv)
{
    char control[PATH_MAX];
    if (inv->operand_count) {
        const char *target = inv->operands[0];
        struct mount_state state;
        if (!mount_find(target, &state) && mount_is_direct(&state) && mount_is_there(&state))
            return show_direct_target(&state, inv->values);
        int rc = control_target_find(target, control, sizeof control);
        return rc ? rc : show_or_complain(&(struct node_server){.control = control}, target, inv->values, NULL);
    }
    struct node_servers servers;
    int rc = node_servers_find(&servers);
    if (!rc)
        rc = node_servers_add_units(&servers);
    if (!rc)
        rc = show_all(&servers, inv->values);
    node_servers_release(&servers);
    return rc;
}

const struct verb verb_status = {
    .name = "status",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Show a server's exports, how much of each is cached, hits, misses, rates and health",
    .details = "TARGET is a mount point, and that mount alone is shown, or a server's control socket. Without it, all\n"
               "servers of this machine are shown: that of 'granary serve', those of the units granary-serve@NAME\n"
               "and those of mounts.\n"
               "The first line and the exit status say how well readers are served: healthy (0); degraded (1): a\n"
               "store fails now and then or keeps a read waiting for 5 s, a shared cache proxy is down or their list\n"
               "is not up to date, or a cache directory failed lately; failing (3): a store does not answer, does\n"
               "not accept the credentials, has refused three different objects in a row (eight if it refuses\n"
               "access), or keeps a read waiting for 30 s, an export waits for its own keys, or the server does not\n"
               "answer. Rates are those of the last ten seconds. What is cached is looked up in the part of the index\n"
               "that is cached: no store is asked.",
    .options = rows,
    .values_size = sizeof(struct status_values),
    .run = cmd_status_run,
};
