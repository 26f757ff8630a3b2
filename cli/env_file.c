/* Reads the format of systemd's EnvironmentFile=, without its continuation lines, so that one file serves a unit and a
 * mount in /etc/fstab. Messages never quote a line: it may contain a secret. */
#include "cli/env_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

enum { FILE_MAX = 1 << 20 };

/* Remove blanks at both ends, in place. */
static char *trim(char *text)
{
    size_t len = strlen(text);
    while (len && isspace((unsigned char)text[len - 1]))
        text[--len] = 0;
    return text + strspn(text, " \t");
}

/* Remove a pair of quotes around a value, in place. Escapes are not interpreted. */
static char *unquote(char *value)
{
    size_t len = strlen(value);
    if (len < 2 || (*value != '"' && *value != '\'') || value[len - 1] != *value)
        return value;
    value[len - 1] = 0;
    return value + 1;
}

/* Put one line into the environment. */
static int env_file_take_line(const char *path, unsigned number, char *line)
{
    line = trim(line);
    if (!*line || *line == '#' || *line == ';')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals || equals == line)
        return error_set(-EINVAL, "%s:%u: no NAME=VALUE", path, number);
    *equals = 0;
    if (setenv(trim(line), unquote(trim(equals + 1)), 1))
        return error_set(-errno, "%s:%u: %s", path, number, strerror(errno));
    return 0;
}

/* Line by line, so that an error can name the line without quoting it. */
int env_file_load(const char *path)
{
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc == -ENOENT)
        return error_set(rc, "%s: no such file", path);
    if (rc)
        return rc;
    if (!bytes_string(&text))
        return error_no_memory();
    char *rest = (char *)text.data, *line;
    for (unsigned number = 1; !rc && (line = strsep(&rest, "\n")); number++)
        rc = env_file_take_line(path, number, line);
    return rc;
}
