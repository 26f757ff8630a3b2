/* granary mount --direct
 *
 *   the image's file beside the cache is complete -> mounted, without a server
 *   it is not                                     -> mounted by a server, as without --direct; `granary warm DIR
 *                                                    --resident` runs in the background, and the next mount is direct
 *
 * A mount that waited for the whole image would be the slowest way to begin an epoch, and JuiceFS, mountpoint-s3 and
 * the other ways of this command mount at once. A running mount does not change from the one to the other: its readers
 * have files open.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* Look for the file in one cache directory. */
static int find_in(const char *dir, const struct resident_id *id, char path[PATH_MAX], int *out_fd)
{
    int rc = resident_check_place(dir);
    if (!rc)
        rc = resident_open(dir, id, path, out_fd);
    if (rc == -EBADMSG || rc == -EPERM) {
        log_warning("%s", error_text());
        rc = -ENOENT;
    }
    return rc;
}

/* Look in the cache directories that the mount's server has, or would have. -ENOENT: the file is not complete there;
 * -ENOTSUP: files of none of them can be mounted. */
static int find_file(const struct mount_values *v, const struct manifest *m, char path[PATH_MAX], int *out_fd)
{
    const struct resident_id id = {.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
    char dir[PATH_MAX];
    int rc = -ENOENT;
    bool fit = false; /* some directory is */
    for (size_t i = 0; (rc == -ENOENT || rc == -ENOTSUP) && i < v->server.caches.count; i++) {
        struct cache_spec spec;
        const char *text = v->server.caches.items[i];
        rc = cache_spec_parse("--cache ", text, &spec);
        if (rc)
            return rc;
        snprintf(dir, sizeof dir, "%.*s", (int)GR_MIN(spec.dir_len, sizeof dir - 1), text);
        rc = find_in(dir, &id, path, out_fd);
        fit |= rc == -ENOENT;
    }
    if (rc == -ENOTSUP && fit)
        rc = -ENOENT;
    if (!v->server.caches.count && server_options_default_cache(dir))
        rc = find_in(dir, &id, path, out_fd);
    return rc;
}

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
    int rc = mount_choose_method(v, words);
    return rc ? rc : mount_make(v, image, words, dir, out);
}

/* Mount by a server, and begin with the file. */
static int mount_and_fill(struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                          const char *dir, struct mount_state *out)
{
    char size[TEXT_SIZE_MAX];
    int rc = mount_by_server(v, image, words, dir, out);
    if (rc)
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

/* Whether the image may be sound while its file, or the disk below it, is not. -ENOENT: a check has taken it out of use
 * since it was found. */
static bool is_files_fault(int rc)
{
    static const int codes[] = {-EIO, -EUCLEAN, -ENOENT, -EAGAIN, -EACCES, -ENOTDIR, -ENAMETOOLONG};
    for (size_t i = 0; i < GR_ARRAY_SIZE(codes); i++)
        if (rc == codes[i])
            return true;
    return false;
}

/* fd is open until the file is mounted: so long it is not removed. */
int mount_make_direct(struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                      const char *dir, struct mount_state *out)
{
    struct mount_resolved direct = *image;
    char path[PATH_MAX];
    CLEANUP_FD int fd = -1;
    int rc = check_possible(v, image->manifest);
    if (!rc) {
        rc = find_file(v, image->manifest, path, &fd);
        if (rc == -ENOENT)
            return mount_and_fill(v, image, words, dir, out);
        direct.file = path;
        if (!rc)
            rc = mount_make(v, &direct, words, dir, out);
        if (is_files_fault(rc)) {
            log_warning("%s; 'granary cache resident DIR --check' looks for damage; mounting by a server",
                        error_text());
            return mount_by_server(v, image, words, dir, out);
        }
        if (!rc || (rc != -ENOTSUP && rc != -ENODEV))
            return rc;
    }
    if (v->direct_must)
        return rc;
    log_info("%s: mounting by a server", error_text());
    return mount_by_server(v, image, words, dir, out);
}
