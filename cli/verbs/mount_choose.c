/* Which way a mount by a server takes: ublk, kernel nbd or FUSE. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/verbs/cmd_mount.h"

bool keep_times_given(const struct keep_times *t)
{
    return t->timeout_s != UINT64_MAX || t->dead_s != UINT64_MAX;
}

void mount_take_nbd_config(struct mount_values *v, const struct mount_values *file)
{
    if (v->ublk == SWITCH_YES || v->fuse == SWITCH_YES)
        return;
    if (!v->connections)
        v->connections = file->connections;
    if (v->times.timeout_s == UINT64_MAX)
        v->times.timeout_s = file->times.timeout_s;
    if (v->times.dead_s == UINT64_MAX)
        v->times.dead_s = file->times.dead_s;
}

/* Return an option that was given and needs kernel nbd; NULL: none. */
static const char *needs_nbd(const struct mount_values *v)
{
    return v->socket                     ? "--socket"
           : v->connections              ? "--connections"
           : keep_times_given(&v->times) ? "--nbd-timeout, --dead-timeout"
                                         : NULL;
}

bool mount_asks_for_front(const struct mount_values *v)
{
    const struct mount_values *file = v->file;
    enum option_switch ublk = v->ublk ? v->ublk : file->ublk, fuse = v->fuse ? v->fuse : file->fuse;
    return ublk == SWITCH_YES || fuse == SWITCH_YES || needs_nbd(v) || needs_nbd(file);
}

/* Return the method ("nbd", "ublk", "fuse") of the server that this mount is to share or join; NULL: none is there. */
static const char *method_there(const struct mount_values *v, const string_list *words)
{
    const struct mount_config config = {.server_options = (const char *const *)words->items,
                                        .server_option_count = words->len,
                                        .joins = v->joins,
                                        .starts_none = v->join == SWITCH_YES};
    return mount_server_method(&config);
}

bool mount_would_join(const struct mount_values *v)
{
    return v->joins && mount_server_method(&(struct mount_config){.joins = true, .starts_none = true});
}

/* Whether that server, if one is there, is for ublk. A mount that only joins may not start one. */
static bool suits_ublk(const struct mount_values *v, const string_list *words)
{
    const char *there = method_there(v, words);
    return there ? !strcmp(there, "ublk") : v->join != SWITCH_YES;
}

/* Mounts by ublk came first, and have the cache. A mount with an address, or that only joins, starts no server. */
static void warn_of_ublk(const struct mount_values *v, const string_list *words)
{
    const char *there = v->socket || v->join == SWITCH_YES ? NULL : method_there(v, words);
    if (there && !strcmp(there, "ublk"))
        log_warning(
            "the server with these options is for ublk, and this mount is not: it gets a server of its own, which "
            "cannot use the same cache; mount the others with --ublk=no (or 'ublk = no' in granary.conf), or "
            "give this one another --cache");
}

/* Take ublk where this machine has it. */
static void choose_ublk(struct mount_values *v, const string_list *words)
{
    int rc = device_ublk_probe();
    if (!rc && suits_ublk(v, words))
        v->ublk = SWITCH_YES;
    else if (rc == -ENODEV)
        log_debug("no ublk: %s", error_text());
    else if (rc)
        log_info("no ublk: %s", error_text());
}

/* Kernel nbd, or else FUSE, unless an option needs kernel nbd. */
static int choose_nbd_or_fuse(struct mount_values *v)
{
    struct error none;
    int rc = v->fuse == SWITCH_YES ? 0 : device_nbd_available();
    if (!rc)
        return 0;
    const char *wish = needs_nbd(v);
    error_take(&none, rc);
    if (wish)
        return error_set(rc, "%s; FUSE would do without, but %s needs kernel nbd", none.text, wish);
    if (access("/dev/fuse", F_OK))
        return error_set(rc, "%s, and no /dev/fuse to mount by FUSE instead (modprobe fuse)", none.text);
    log_info("%s: mounting by FUSE", none.text);
    v->fuse = SWITCH_YES;
    return 0;
}

int mount_choose_method(struct mount_values *v, const string_list *words)
{
    const struct mount_values *file = v->file;
    if (!v->ublk && v->fuse != SWITCH_YES && !needs_nbd(v)) {
        v->ublk = file->ublk;
        if (!v->fuse)
            v->fuse = file->fuse;
    }
    if (v->ublk == SWITCH_YES)
        return device_ublk_probe();
    if (!v->ublk && v->fuse != SWITCH_YES && !needs_nbd(v) && !needs_nbd(file))
        choose_ublk(v, words);
    if (v->ublk == SWITCH_YES)
        return 0;
    int rc = choose_nbd_or_fuse(v);
    if (rc)
        return rc;
    mount_take_nbd_config(v, file);
    warn_of_ublk(v, words);
    return 0;
}
