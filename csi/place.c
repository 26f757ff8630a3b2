/* Kubelet's directories belong to root, but a pod's volumes lie there too: a component that a pod could turn into a
 * link must not lead a mount elsewhere. So a path is compared as text first, its parent opened by openat2 without
 * following links, and the last component used only relative to that descriptor.
 *
 * Mounts are recognized by their device: it is one of those in the states that `granary mount` keeps. */
#include "csi/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"
#include "base/openat2.h"

enum { PROC_PATH = 32 + NAME_MAX }; /* bytes of /proc/self/fd/DIR/NAME */

/* Is every component of a relative path a name, and for a target are they those of a CSI volume of a pod
 * (POD/volumes/kubernetes.io~csi/VOLUME/mount)? */
static bool is_well_formed(enum place_kind kind, const char *below)
{
    static const char *const wanted[] = {NULL, "volumes", "kubernetes.io~csi"};
    size_t count = 0;
    for (const char *p = below;; p++) {
        size_t len = strcspn(p, "/");
        if (!len || len > NAME_MAX || (len == 1 && *p == '.') || (len == 2 && !memcmp(p, "..", 2)))
            return false;
        if (kind == PLACE_TARGET && count && count < GR_ARRAY_SIZE(wanted) &&
            (len != strlen(wanted[count]) || memcmp(p, wanted[count], len) != 0))
            return false;
        count++;
        p += len;
        if (!*p)
            return kind == PLACE_STAGING || count > GR_ARRAY_SIZE(wanted);
    }
}

int place_open(const char *kubelet_dir, enum place_kind kind, const char *path, struct place *out)
{
    char root[PATH_MAX];
    *out = (struct place){.path = path, .parent = -1};
    int len = snprintf(root, sizeof root, "%s/%s", kubelet_dir,
                       kind == PLACE_STAGING ? "plugins/kubernetes.io/csi/" DRIVER_NAME : "pods");
    if (strncmp(path, root, (size_t)len) != 0 || path[len] != '/' || !is_well_formed(kind, path + len + 1))
        return error_set(-EINVAL, "%s is not a %s below %s", path,
                         kind == PLACE_STAGING ? "staging directory" : "pod's CSI volume", root);
    const char *below = path + len + 1, *slash = strrchr(below, '/');
    out->name = slash ? slash + 1 : below;
    CLEANUP_FD int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0)
        return error_set(-errno, "%s: %s", root, strerror(errno));
    out->parent = openat2_beneath(root_fd, true, below, slash ? (size_t)(slash - below) : 0, O_PATH | O_DIRECTORY);
    if (out->parent == -ELOOP || out->parent == -ENOTDIR)
        return error_set(-EINVAL, "%s goes through a symbolic link or a file", path);
    return out->parent < 0 ? error_set(out->parent, "%s: %s", path, strerror(-out->parent)) : 0;
}

int place_open_dir(const struct place *p, int *out_fd)
{
    *out_fd = openat2_beneath(p->parent, true, p->name, strlen(p->name), O_PATH | O_DIRECTORY);
    if (*out_fd == -ELOOP || *out_fd == -ENOTDIR)
        return error_set(-EINVAL, "%s is not a directory", p->path);
    return *out_fd < 0 ? error_set(*out_fd, "%s: %s", p->path, strerror(-*out_fd)) : 0;
}

int place_mounted(const struct place *p, dev_t *out)
{
    struct statx st;
    if (statx(p->parent, p->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
        return error_set(-errno, "%s: %s", p->path, strerror(errno));
    *out = makedev(st.stx_dev_major, st.stx_dev_minor);
    return !!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* ---- whose mount it is ---- */

struct device_search {
    dev_t device;
    struct mount_state *out;
};

static int visit_device(void *arg, const struct mount_state *s)
{
    const struct device_search *search = arg;
    struct stat st;
    if (!*s->device || stat(s->device, &st) || !S_ISBLK(st.st_mode) || st.st_rdev != search->device)
        return 0;
    *search->out = *s;
    return 1;
}

bool place_is_ours(dev_t device, struct mount_state *out)
{
    return state_each(visit_device, &(struct device_search){device, out}) > 0;
}

struct follow_search {
    const char *path; /* resolved, or NULL */
    dev_t device;
    struct follow_state *out;
};

static int visit_followed(void *arg, const struct follow_state *f)
{
    const struct follow_search *search = arg;
    if (!f->device || f->device != search->device || (search->path && strcmp(f->dir, search->path) != 0))
        return 0;
    *search->out = *f;
    return 1;
}

/* The kernel uses numbers of a tmpfs again, so a state whose directory others have unmounted may have this one. */
bool place_follows(const char *path, dev_t device, struct follow_state *out)
{
    CLEANUP_FREE char *resolved = path ? realpath(path, NULL) : NULL;
    return (resolved || !path) && follow_each(visit_followed, &(struct follow_search){resolved, device, out}) > 0;
}

int place_shown(const struct place *p, struct place *out)
{
    *out = (struct place){.path = p->path, .parent = -1, .name = "current"};
    return place_open_dir(p, &out->parent);
}

/* ---- mounts ---- */

/* A bind mount takes over ro, nodev and nosuid from the mount it is made of. */
int place_bind(const struct place *from, const struct place *to)
{
    char source[PROC_PATH], target[PROC_PATH];
    CLEANUP_FD int from_fd = -1;
    CLEANUP_FD int to_fd = -1;
    int rc = place_open_dir(from, &from_fd);
    if (!rc)
        rc = place_open_dir(to, &to_fd);
    if (rc)
        return rc;
    snprintf(source, sizeof source, "/proc/self/fd/%d", from_fd);
    snprintf(target, sizeof target, "/proc/self/fd/%d", to_fd);
    return mount(source, target, NULL, MS_BIND, NULL)
               ? error_set(-errno, "cannot mount %s on %s: %s", from->path, to->path, strerror(errno))
               : 0;
}

int place_unmount(const struct place *p)
{
    char path[PROC_PATH];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", p->parent, p->name);
    return umount2(path, UMOUNT_NOFOLLOW) ? error_set(-errno, "cannot unmount %s: %s", p->path, strerror(errno)) : 0;
}
