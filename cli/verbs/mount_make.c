/* From an image that was resolved to a mount, and what is printed of it: for granary mount, and for each version that
 * --follow mounts. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/cmd_mount.h"

/* ---- what was made ---- */

/* Return the server's cache directories, [{path, size}]; NULL: the server does not answer. */
static json_t *caches_of(const struct mount_state *s)
{
    json_t *status = NULL, *dir, *out;
    size_t i;
    if (!*s->control || control_status(s->control, &status))
        return NULL;
    out = json_array();
    json_array_foreach(json_object_get(status, "cache_directories"), i, dir)
    {
        json_array_append_new(
            out, json_pack("{s:O,s:O}", "path", json_object_get(dir, "path"), "size", json_object_get(dir, "size")));
    }
    json_decref(status);
    return out;
}

/* A mount without a disk cache works, but fetches again what leaves memory; users should know. */
static void print_caches(json_t *caches)
{
    size_t i;
    json_t *dir;
    if (!json_array_size(caches))
        printf("cache: none on disk: what leaves memory is fetched again; --cache DIR:SIZE keeps it\n");
    json_array_foreach(caches, i, dir)
    {
        char size[TEXT_SIZE_MAX];
        fputs(i ? ", " : "cache: ", stdout);
        print_text(server_status_text(dir, "path"));
        printf(", %s%s", text_format_size(control_number(dir, "size"), size),
               i + 1 == json_array_size(caches) ? "\n" : "");
    }
}

/* Print what was made as one object. */
static int print_mounted_json(const struct mount_state *s, const struct follow_state *followed)
{
    char current[PATH_MAX], version[PATH_MAX];
    json_t *caches = caches_of(s);
    json_t *made = json_pack("{s:o,s:o,s:o,s:o,s:s,s:s,s:o,s:o,s:I,s:o}", "dir",
                             json_lossy(followed ? followed->dir : s->dir), "image", json_lossy(s->image), "digest",
                             print_json_digest(&s->digest), "content_root", print_json_digest(&s->content_root),
                             "method", s->method, "device", mount_is_direct(s) ? s->image_file : s->device, "socket",
                             json_lossy(s->socket), "control", json_lossy(s->control), "server_pid",
                             (json_int_t)s->server.pid, "caches", caches ? caches : json_null());
    if (made && followed) {
        snprintf(current, sizeof current, "%.*s/current", PATH_MAX - 16, followed->dir);
        json_object_set_new(made, "current", json_lossy(current));
        json_object_set_new(made, "version", json_lossy(follow_version_link(followed, &s->digest, version)));
    }
    return print_json(made);
}

int mount_print(const struct mount_values *v, const struct mount_state *s, const struct follow_state *followed)
{
    char version[PATH_MAX];
    if (v->json)
        return print_mounted_json(s, followed);
    const char *method = !strcmp(s->method, "nbd") ? "kernel nbd" : !strcmp(s->method, "ublk") ? "ublk" : "FUSE";
    if (mount_is_direct(s)) {
        printf("%s is mounted on %s (from %s, without a server)\n", s->image, s->dir, s->image_file);
        return 0;
    }
    if (followed)
        printf("%s is followed on %s/current; this version is %s (%s, %s)\n", s->image, followed->dir,
               follow_version_link(followed, &s->digest, version), method, s->device);
    else
        printf("%s is mounted on %s (%s, %s)\n", s->image, s->dir, method, s->device);
    json_t *caches = caches_of(s);
    if (caches)
        print_caches(caches);
    json_decref(caches);
    return 0;
}

/* ---- making it ---- */

void keep_times_apply(const struct keep_times *t, unsigned *timeout_s, unsigned *dead_s)
{
    if (t->timeout_s != UINT64_MAX)
        *timeout_s = (unsigned)t->timeout_s;
    if (t->dead_s != UINT64_MAX)
        *dead_s = (unsigned)t->dead_s;
}

/* The server gets the image by digest: it, and each restart of it, serves exactly this image. */
int mount_make(const struct mount_values *v, const struct mount_resolved *image, const string_list *words,
               const char *dir, struct mount_state *out)
{
    const struct manifest *m = image->manifest;
    struct mount_config config = {.dir = dir,
                                  .image = image->pin->given,
                                  .pinned = image->pin->text,
                                  .resolved = image->table,
                                  .keys = image->keys,
                                  .export_name = image->pin->ref.name,
                                  .fs = manifest_fs_name(m->fs),
                                  .digest = image->pin->ref.digest,
                                  .content_root = m->content_root,
                                  .size = m->size,
                                  .metadata_offset = m->metadata_offset,
                                  .metadata_len = m->metadata_len,
                                  .front_len = m->front_len,
                                  .socket = v->socket,
                                  .server_options = (const char *const *)words->items,
                                  .server_option_count = words->len,
                                  .joins = v->joins,
                                  .starts_none = v->join == SWITCH_YES,
                                  .fenced = v->fenced,
                                  .quota = v->quota,
                                  .unwarmed = v->cold && v->join == SWITCH_YES,
                                  .cold = v->cold,
                                  .keeps_nothing =
                                      server_options_no_cache(&v->server) && !v->server.memory && !v->fenced,
                                  .passing = v->follow,
                                  .noexec = v->noexec == SWITCH_YES,
                                  .fuse = v->fuse == SWITCH_YES,
                                  .ublk = v->ublk == SWITCH_YES,
                                  .image_file = image->file,
                                  .connections = (unsigned)v->connections,
                                  .timeout_s = DEVICE_NBD_TIMEOUT_S,
                                  .dead_s = DEVICE_NBD_DEAD_S,
                                  .cancel = interrupt_watch()};
    keep_times_apply(&v->times, &config.timeout_s, &config.dead_s);
    return mount_image(&config, out);
}
