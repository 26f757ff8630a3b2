/* A copy is read only where safe_dir finds nobody else able to replace it, and written only by the owner of the cache
 * directory. One that cannot be used costs requests to the store and nothing else, so all but a lack of memory is a
 * warning. */
#include "repository/table_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"

static int table_path(const char *dir, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/exports", dir) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int read_copy(const char *dir, struct export_table *newest)
{
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    CLEANUP_EXPORT_TABLE t = {0};
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    int rc = safe_dir_open(dir, 0, &dir_fd);
    if (!rc)
        rc = safe_file_open(dir_fd, dir, "exports", O_RDONLY, &fd);
    if (!rc)
        rc = io_read_rest(fd, dir, &text);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    if (!rc && (rc = export_table_decode(text.data, text.len, &t)) && rc != -ENOMEM)
        rc = error_prefix(rc, "%s", dir);
    if (rc == -ENOMEM)
        return rc;
    if (rc) {
        log_warning("cache: %s; the table of exports there counts as absent", error_text());
    } else if (t.generation > newest->generation || !newest->entries.len) {
        struct export_table older = *newest;
        *newest = t;
        t = older;
    }
    return 0;
}

int table_files_read(const char *const *dirs, size_t n, struct export_table *newest)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++)
        rc = read_copy(dirs[i], newest);
    return rc;
}

bool table_files_present(const char *const *dirs, size_t n)
{
    char path[PATH_MAX];
    bool all = true;
    for (size_t i = 0; all && i < n; i++)
        all = !table_path(dirs[i], path) && !access(path, R_OK);
    return all;
}

void table_files_write(const char *const *dirs, size_t n, const struct bytes *text)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < n; i++)
        if (!table_path(dirs[i], path) && io_write_file_owned(path, text->data, text->len))
            log_warning("cache: %s; a start without the store will not find these images", error_text());
}
