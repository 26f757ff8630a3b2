/* granary umount DIR: takes down what granary mount made (attach/mount/mount.h). */
#include <errno.h>
#include <stddef.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/verbs/verbs.h"

struct umount_values {
    bool force, json;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "force", NULL, offsetof(struct umount_values, force), 0, 0,
     "fail what still reads there with EIO: for mounts whose server is gone"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct umount_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Whether a directory is `current` in a followed one: its mount is the follower's, which would show it again. */
static bool is_shown(const char *dir)
{
    struct mount_state s;
    return mount_find(dir, &s) == -ENOENT && !follow_find_mount(dir, &s);
}

/* Whether a directory is the version that a followed one shows; set the sentence. */
static bool is_version_shown(const char *dir)
{
    struct mount_state s;
    struct follow_state f;
    if (mount_find(dir, &s) || !follow_shows_mount(s.dir, &f))
        return false;
    (void)error_set(-EBUSY, "%s is the version that %s/current shows; umount %s", dir, f.dir, f.dir);
    return true;
}

/* Nothing mounted is success, so that scripts can repeat it. */
static int cmd_umount_run(const struct invocation *inv)
{
    const struct umount_values *v = inv->values;
    const char *dir = inv->operands[0];
    bool removed;
    int rc = need_root("umount");
    if (rc)
        return rc;
    rc = follow_remove(dir, v->force, -1);
    removed = !rc;
    if (rc == -ENOENT && is_shown(dir))
        return error_set(-EBUSY, "%s shows a version of a tag that is followed; umount the directory that it is in",
                         dir);
    if (rc == -ENOENT && is_version_shown(dir))
        return -EBUSY;
    if (rc == -ENOENT) /* not followed */
        rc = mount_remove(dir, v->force, &removed);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack("{s:o,s:b}", "dir", json_lossy(dir), "unmounted", (int)removed));
    if (!removed)
        log_info("%s is not mounted", dir);
    return 0;
}

const struct verb verb_umount = {
    .name = "umount",
    .operands = "DIR",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Undo 'granary mount': the mount, its device, its server",
    .details = "Where nothing is mounted any more, what is left of it is cleaned up, and the exit code is 0.",
    .options = rows,
    .values_size = sizeof(struct umount_values),
    .run = cmd_umount_run,
};
