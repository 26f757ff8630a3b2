/* granary mount, with --direct or without --direct=no
 *
 *   the image's file beside the cache is complete -> mounted, without a server
 *   it is not                                     -> mounted by a server; `granary warm DIR --resident` runs in the
 *                                                    background, and the next mount is direct
 *
 * Without --direct (direct_auto), this command mounts a complete file, since somebody has had it written, and has none
 * written. It does not look for one where anything asks for a front or a server (mount_may_be_direct). As this mount
 * did not ask for the file, a server serves the mount whatever is wrong with the file.
 *
 * A mount that waited for the whole image would be the slowest way to begin an epoch, and JuiceFS, mountpoint-s3 and
 * the other ways of this command mount at once. A running mount does not change from the one to the other: its readers
 * have files open.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cache/resident.h"
#include "cli/verbs/cmd_mount.h"

#define LOG "resident.log"

/* Whether direct mounts are possible at all here: a sentence, before anything is mounted. */
static int check_possible(const struct mount_values *v, const struct manifest *m)
{
    struct utsname kernel;
    if (m->fs != MANIFEST_EROFS)
        return error_set(-EINVAL, "--direct is for erofs, and this image is ext4: leave it out");
    if (device_kernel_older(6, 12, &kernel))
        return error_set(-ENOTSUP, "--direct needs Linux 6.12, and this is %s: leave it out", kernel.release);
    if (server_options_no_cache(&v->server))
        return error_set(-EINVAL, "--direct needs a cache on disk, which has the whole image beside it; give --cache "
                                  "DIR:SIZE");
    return 0;
}

/* Look for the file in one cache directory. quiet: do not warn of a cache of another user, whose files are not mounted.
 */
static int find_in(const char *dir, bool quiet, const struct resident_id *id, char path[PATH_MAX], int *out_fd)
{
    int rc = resident_check_place(dir);
    if (!rc)
        rc = resident_open(dir, id, path, out_fd);
    if (rc == -EBADMSG || rc == -EPERM) {
        log_line(quiet && rc == -EPERM ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "%s", error_text());
        rc = -ENOENT;
    }
    return rc;
}

/* Look in the cache directories that the mount's server has, or would have. -ENOENT: the file is not complete there;
 * -ENOTSUP: files of none of them can be mounted. */
static int find_file(const struct mount_values *v, const struct manifest *m, char path[PATH_MAX], int *out_fd)
{
    const struct resident_id id = {.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
    CLEANUP_STRING_LIST dirs = {0};
    bool fit = false; /* some directory is */
    int rc = server_options_cache_dirs(&v->server, &dirs);
    if (rc)
        return rc;
    rc = -ENOENT;
    for (size_t i = 0; (rc == -ENOENT || rc == -ENOTSUP) && i < dirs.len; i++) {
        rc = find_in(dirs.items[i], v->direct_auto, &id, path, out_fd);
        fit |= rc == -ENOENT;
    }
    return rc == -ENOTSUP && fit ? -ENOENT : rc;
}

/* ---- without --direct ---- */

/* A server whose readers are elsewhere, too, or that is watched, would be missed. So would one that a user started for
 * mounts to join, whatever its own options are. */
static bool server_is_wanted(const struct mount_values *v)
{
    const struct server_values *s = &v->server;
    return s->metrics || s->console || s->peer_listen || s->slow_read || mount_would_join(v);
}

bool mount_may_be_direct(const struct mount_values *v)
{
    struct utsname kernel;
    return !mount_asks_for_front(v) && !server_is_wanted(v) && !server_options_no_cache(&v->server) &&
           !device_kernel_older(6, 12, &kernel);
}

bool mount_has_residents(const struct mount_values *v)
{
    char place[PATH_MAX];
    CLEANUP_STRING_LIST dirs = {0};
    bool found = false;
    if (server_options_cache_dirs(&v->server, &dirs))
        return false;
    for (size_t i = 0; !found && i < dirs.len; i++)
        found = snprintf(place, sizeof place, "%s/" RESIDENT_DIR, dirs.items[i]) < (int)sizeof place &&
                !access(place, F_OK);
    return found;
}

/* ---- mounting ---- */

/* Have a process of its own ask the mount's server to write the file. It ends with that server. */
static int start_filling(const struct mount_state *s)
{
    char program[PATH_MAX];
    pid_t pid;
    CLEANUP_FD int log = service_log_open(s->run_dir, LOG);
    int rc = log < 0 ? log : process_own_program(program);
    const char *const argv[] = {program, "warm", s->dir, "--resident", "--quiet", NULL};
    const struct process_spec spec = {.argv = argv, .output = log, .listen_fd = -1, .session = true};
    return rc ? rc : process_spawn(&spec, &pid);
}

static int mount_by_server(struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                           const char *dir, struct mount_state *out)
{
    int rc = v->front_chosen ? 0 : mount_choose_method(v, words);
    return rc ? rc : mount_make(v, image, words, dir, out);
}

/* Mount by a server, and begin with the file if that was asked for. */
static int mount_and_fill(struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                          const char *dir, struct mount_state *out)
{
    char size[TEXT_SIZE_MAX];
    int rc = mount_by_server(v, image, words, dir, out);
    if (rc || v->direct_auto)
        return rc;
    if (!*out->control || start_filling(out)) {
        log_warning("%s is mounted, but its file is not written: %s", out->dir,
                    *out->control ? error_text() : "its server has no control socket");
        return 0;
    }
    log_info("%s: the whole image, %s, is being written beside the cache; a mount after that is direct", out->dir,
             text_format_size(image->manifest->size, size));
    return 0;
}

static bool is_one_of(int rc, const int *codes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rc == codes[i])
            return true;
    return false;
}

/* Whether the image may be sound while its file, or the disk below it, is not. -ENOENT: a check has taken it out of use
 * since it was found. */
static bool is_files_fault(int rc)
{
    static const int codes[] = {-EIO, -EUCLEAN, -ENOENT, -EAGAIN, -EACCES, -ENOTDIR, -ENAMETOOLONG};
    return is_one_of(rc, codes, GR_ARRAY_SIZE(codes));
}

/* Whether the mount ends with that error. With direct_auto nobody asked for the file, so only an error that would end a
 * mount by a server, too, is final: an interruption, or one of the mount point. */
static bool is_final(const struct mount_values *v, int rc)
{
    static const int any_mounts[] = {-EINTR, -ECANCELED, -EBUSY, -ENOTEMPTY, CLI_USAGE};
    static const int impossible[] = {-ENOTSUP, -ENODEV, -EINVAL};
    if (is_files_fault(rc))
        return false;
    if (v->direct_auto)
        return is_one_of(rc, any_mounts, GR_ARRAY_SIZE(any_mounts));
    return v->direct_must || !is_one_of(rc, impossible, GR_ARRAY_SIZE(impossible));
}

/* Say why a server serves the mount. Without a file (found) and without --direct, that is what everybody expects. */
static void say_why(const struct mount_values *v, int rc, bool found)
{
    if (is_files_fault(rc))
        log_warning("%s; 'granary cache resident DIR --check' looks for damage; mounting by a server", error_text());
    else
        log_line(found            ? LOG_LEVEL_WARNING
                 : v->direct_auto ? LOG_LEVEL_DEBUG
                                  : LOG_LEVEL_INFO,
                 "%s: mounting by a server", error_text());
}

/* fd is open until the file is mounted: so long it is not removed. */
int mount_make_direct(struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                      const char *dir, struct mount_state *out)
{
    struct mount_resolved direct = *image;
    char path[PATH_MAX];
    CLEANUP_FD int fd = -1;
    int rc = check_possible(v, image->manifest);
    if (!rc)
        rc = find_file(v, image->manifest, path, &fd);
    if (rc == -ENOENT)
        return mount_and_fill(v, image, words, dir, out);
    direct.file = path;
    bool found = !rc;
    if (found)
        rc = mount_make(v, &direct, words, dir, out);
    if (!rc || is_final(v, rc))
        return rc;
    say_why(v, rc, found);
    return mount_by_server(v, image, words, dir, out);
}
