/* granary cache resident [DIR...]: lists the whole images beside the slots of cache directories, checks them, pins and
 * removes them. It works on files alone, beside a running server or without one (cache/resident.h). */
#include <errno.h>
#include <linux/ioprio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"
#include "cache/resident.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"

struct resident_values {
    bool check, all, json, quiet;
    const char *evict, *pin, *unpin;
};

#define AT(field) offsetof(struct resident_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "check", NULL, AT(check), "read every byte and compare it with the image; slowly, behind others"},
    {OPTION_TEXT, 0, "evict", "ROOT", AT(evict), "remove the image whose content root begins so, if nobody uses it"},
    {OPTION_FLAG, 0, "evict-all", NULL, AT(all), "remove every one that nobody uses and that is not pinned"},
    {OPTION_TEXT, 0, "pin", "ROOT", AT(pin), "keep it when others need its room"},
    {OPTION_TEXT, 0, "unpin", "ROOT", AT(unpin), "undo --pin"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

typedef VEC(struct resident_entry) entries;

/* One directory's files, copied: removing changes the directory that resident_each walks. */
static int collect(void *arg, const struct resident_entry *e)
{
    entries *all = arg;
    return vec_push(all, *e) ? error_no_memory() : 0;
}

/* Where a file is mounted, as far as this machine's states tell: not in containers. By its inode: a bad file has
 * another name than when it was mounted, and its old name may be a good file's. */
struct places {
    const char *dir; /* of all files, with a slash at the end */
    uint64_t inode;
    json_t *dirs;
};

static int add_place(void *arg, const struct mount_state *s)
{
    const struct places *p = arg;
    if (mount_is_direct(s) && s->image_inode == p->inode && !strncmp(s->image_file, p->dir, strlen(p->dir)))
        json_array_append_new(p->dirs, json_lossy(s->dir));
    return 0;
}

static json_t *places_of(const char *dir, const struct resident_entry *e)
{
    char files[PATH_MAX];
    struct places p = {files, e->inode, json_array()};
    CLEANUP_FREE char *absolute = realpath(dir, NULL);
    snprintf(files, sizeof files, "%.*s/" RESIDENT_DIR "/", PATH_MAX / 2, absolute ? absolute : dir);
    if (mount_each(add_place, &p))
        log_debug("where %s%s is mounted is not known: %s", files, e->name, error_text());
    return p.dirs;
}

/* End a sentence on standard error with the mounts of a bad file. */
static void name_mounts(const char *dir, const struct resident_entry *e)
{
    json_t *places = places_of(dir, e), *place;
    size_t i;
    json_array_foreach(places, i, place)
    {
        const char *at = json_string_value(place);
        fputs(i ? ", " : ": mounted on ", stderr);
        print_name(stderr, at ? at : "", at ? strlen(at) : 0, print_escapes(stderr));
    }
    fputc('\n', stderr);
    json_decref(places);
}

static const char *const states[] = {"complete", "filling", "bad"};

/* Print a file, or add it to the JSON. verdict: of a check; NULL: none. */
static void show(const char *dir, const struct resident_entry *e, const char *verdict, json_t *into)
{
    char size[TEXT_SIZE_MAX], hex[DIGEST_HEX_SIZE];
    json_t *places = places_of(dir, e), *place;
    size_t i;
    digest_hex(&e->id.content_root, hex);
    if (into) {
        json_t *object = json_pack("{s:o,s:s,s:s,s:I,s:I,s:b,s:b,s:o,s:o}", "directory", json_lossy(dir),
                                   "content_root", hex, "state", states[e->state], "size", (json_int_t)e->id.size,
                                   "bytes", (json_int_t)e->bytes, "in_use", e->in_use, "pinned", e->pinned, "used",
                                   print_json_time(e->used_s), "mounts", json_incref(places));
        if (verdict)
            json_object_set_new(object, "check", json_lossy(verdict));
        json_array_append_new(into, object);
    } else {
        printf("%s %9s  %s%s%s%s%s", hex, text_format_size(e->bytes, size), states[e->state],
               e->in_use ? ", in use" : "", e->pinned ? ", pinned" : "", verdict ? ", " : "", verdict ? verdict : "");
        json_array_foreach(places, i, place)
        {
            printf("%s", i ? ", " : ", mounted on ");
            print_text(json_string_value(place));
        }
        putchar('\n');
    }
    json_decref(places);
}

static void draw(void *arg, uint64_t done, uint64_t total)
{
    progress_update(arg, &(struct progress_state){.phase = "checking", .bytes_done = done, .bytes_total = total});
}

/* Check one file. A bad one is reported on standard error at once, and ends nothing. */
static int check_one(const char *dir, const struct resident_entry *e, const struct resident_values *v,
                     const char **out_verdict, unsigned *bad)
{
    struct progress progress;
    progress_init(&progress, "cache resident", v->quiet);
    const struct resident_check check = {.progress = draw, .arg = &progress, .cancel = interrupt_watch()};
    int rc = resident_check(dir, e, &check);
    progress_end(&progress);
    *out_verdict = rc ? "NOT sound" : "sound";
    if (rc != -EBADMSG)
        return rc;
    fprintf(stderr, "granary: cache resident: %s", error_text());
    name_mounts(dir, e);
    ++*bad;
    return 0;
}

/* A file that an earlier check found bad, and whose readers still read wrong bytes. */
static void report_mounted(const char *dir, const struct resident_entry *e, unsigned *bad)
{
    fprintf(stderr,
            "granary: cache resident: %s/" RESIDENT_DIR "/%s was found bad, and is in use still: umount it and mount "
            "it again",
            dir, e->name);
    name_mounts(dir, e);
    ++*bad;
}

/* Return the beginning of a content root that --evict, --pin or --unpin gave; NULL: none of them was given. */
static const char *root_of(const struct resident_values *v)
{
    return v->evict ? v->evict : v->pin ? v->pin : v->unpin;
}

static bool sets_pin(const struct resident_values *v)
{
    return v->pin || v->unpin;
}

/* Change one file if it is meant: remove, pin or unpin it. With --evict-all, what is in use or pinned stays without an
 * error. */
static int change_one(const char *dir, const struct resident_entry *e, const struct resident_values *v,
                      uint64_t *changed)
{
    const char *root = root_of(v);
    if (root && strncmp(e->name, root, strlen(root)) != 0)
        return 0;
    if (sets_pin(v) && e->state != RESIDENT_COMPLETE)
        return 0;
    int rc = sets_pin(v) ? resident_pin(dir, e->name, v->pin) : resident_evict(dir, e->name);
    if (rc == -EBUSY && v->all) {
        log_info("%s", error_text());
        return 0;
    }
    *changed += !rc;
    return rc == -ENOENT ? 0 : rc;
}

/* List, check or change in one directory. A file that another process removes meanwhile is passed over. */
static int work_in(const char *dir, const struct resident_values *v, json_t *into, unsigned *bad, uint64_t *changed)
{
    entries all = {0};
    int rc = resident_each(dir, collect, &all);
    for (size_t i = 0; !rc && i < all.len; i++) {
        const struct resident_entry *e = &all.items[i];
        const char *verdict = NULL;
        if (root_of(v) || v->all) {
            rc = change_one(dir, e, v, changed);
            continue;
        }
        if (v->check && e->state == RESIDENT_COMPLETE)
            rc = check_one(dir, e, v, &verdict, bad);
        else if (v->check && e->state == RESIDENT_BAD && e->in_use)
            report_mounted(dir, e, bad);
        if (!rc)
            show(dir, e, verdict, into);
        rc = rc == -ENOENT ? 0 : rc;
    }
    vec_release(&all);
    return rc;
}

/* A check gives way to other readers, as far as the disk's scheduler knows priorities. */
static void stand_back(void)
{
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
    (void)setpriority(PRIO_PROCESS, 0, 19);
}

/* Work in all directories, also after one has failed. Returns the first error, with its sentence; the others are logged
 * here. */
static int work_in_all(const string_list *dirs, const struct resident_values *v, json_t *into, unsigned *bad,
                       uint64_t *changed)
{
    struct error first = {0};
    for (size_t i = 0; i < dirs->len && first.code != -ECANCELED; i++) {
        int rc = work_in(dirs->items[i], v, into, bad, changed);
        if (rc && !first.code)
            error_take(&first, rc);
        else if (rc)
            log_warning("%s", error_text());
    }
    return first.code ? error_restore(&first) : 0;
}

/* ---- which directories ---- */

/* Add the cache directory of a mounted file: DIR/resident/NAME. */
static int add_mounted(void *arg, const struct mount_state *s)
{
    string_list *dirs = arg;
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", s->image_file);
    for (unsigned up = 0; up < 2; up++) {
        char *slash = strrchr(dir, '/');
        if (!slash || slash == dir)
            return 0; /* also of a mount that has a server */
        *slash = 0;
    }
    for (size_t i = 0; i < dirs->len; i++) {
        CLEANUP_FREE char *known = realpath(dirs->items[i], NULL);
        if (known && !strcmp(known, dir))
            return 0;
    }
    return string_list_add(dirs, "%s", dir);
}

/* Take the directories that are given, else those of this node: of its configuration file, and those that mounts
 * without a server read now, whatever options these were made with. */
static int take_dirs(const struct invocation *inv, string_list *out)
{
    struct server_values server = {0};
    int rc = 0;
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = string_list_add(out, "%s", inv->operands[i]);
    if (rc || inv->operand_count)
        return rc;
    rc = server_options_take_config(&server);
    if (!rc)
        rc = server_options_cache_dirs(&server, out);
    if (!rc)
        rc = mount_each(add_mounted, out);
    options_release_lists(server_option_rows, &server);
    return rc;
}

static int cmd_cache_resident_run(const struct invocation *inv)
{
    const struct resident_values *v = inv->values;
    const char *root = root_of(v);
    unsigned bad = 0;
    uint64_t changed = 0;
    CLEANUP_STRING_LIST dirs = {0};
    if (v->check + v->all + (v->evict != NULL) + (v->pin != NULL) + (v->unpin != NULL) > 1)
        return options_wrong("give one of --check, --evict, --evict-all, --pin and --unpin");
    if (root && (strlen(root) < 8 || strspn(root, "0123456789abcdef") != strlen(root)))
        return options_wrong("--evict, --pin and --unpin take the first digits of a content root, eight at least");
    int rc = take_dirs(inv, &dirs);
    if (rc)
        return rc;
    json_t *into = v->json ? json_array() : NULL;
    if (v->check)
        stand_back();
    rc = work_in_all(&dirs, v, into, &bad, &changed);
    if (!rc && v->json)
        rc = print_json(json_pack("{s:O,s:I,s:b}", "images", into, sets_pin(v) ? "changed" : "evicted",
                                  (json_int_t)changed, "ok", !bad));
    json_decref(into);
    if (!rc && root && !changed)
        rc = error_set(-ENOENT, "no image's content root begins with %s; 'granary cache resident%s%s' lists them", root,
                       inv->operand_count ? " " : "", inv->operand_count ? inv->operands[0] : "");
    return !rc && bad ? error_set(-EBADMSG, "%u image%s bad", bad, bad == 1 ? " was" : "s were") : rc;
}

const struct verb verb_cache_resident = {
    .name = "cache resident",
    .operands = "[DIR...]",
    .max_operands = 16,
    .summary = "List, check, pin or remove the whole images beside a cache",
    .details = "DIR is a cache directory (default: those of the configuration file, else /var/cache/granary, and\n"
               "those that mounts without a server read).\n"
               "'granary mount' mounts these without a server. An image that is mounted, in any container, is not\n"
               "removed. One that --check finds bad is never mounted again; a mount of it that is there is named,\n"
               "and should be mounted again. Exit code 1 when any was bad.",
    .options = rows,
    .values_size = sizeof(struct resident_values),
    .run = cmd_cache_resident_run,
};
