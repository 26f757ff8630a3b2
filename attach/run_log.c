#include "attach/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

enum { PATH_SIZE = 128, TAIL_MAX = 4 << 20 };

int run_log_open(const char *run_dir, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd < 0 ? error_set(-errno, "cannot create %s: %s", path, strerror(errno)) : fd;
}

int run_log_explain(const char *run_dir, const char *name, const char *what, int rc)
{
    static const char *const prefixes[] = {"granary: serve: ", "granary: keep: "};
    char path[PATH_SIZE];
    struct error known;
    CLEANUP_BYTES text = BYTES_INIT(TAIL_MAX);
    error_take(&known, rc);
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    if (io_read_file(path, &text))
        return error_restore(&known);
    while (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    size_t from = text.len;
    while (from && text.data[from - 1] != '\n')
        from--;
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes); i++)
        if (text.len - from > strlen(prefixes[i]) && !memcmp(text.data + from, prefixes[i], strlen(prefixes[i])))
            from += strlen(prefixes[i]);
    if (from == text.len)
        return error_restore(&known);
    return error_set(rc, "%s: %.*s", what, (int)(text.len - from), (char *)text.data + from);
}
