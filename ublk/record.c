/* One line: "granary-ublk 1 N ROOT new|kept|failing NAME". A file for each device, so that no two threads write the
 * same. */
#include "ublk/record.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "ublk/kernel.h"

#define SUFFIX ".device-"
#define VERSION "granary-ublk 1 "

enum { TAG_DIGITS = 16, FILE_MAX = RECORD_NAME_MAX + 256 };

static const char *const states[] = {[RECORD_NEW] = "new ", [RECORD_KEPT] = "kept ", [RECORD_FAILING] = "failing "};

static void record_path(const char *socket, uint64_t tag, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.*s" SUFFIX "%016" PRIx64, PATH_MAX - 32, socket, tag);
}

int record_write(const char *socket, const struct record *r)
{
    char path[PATH_MAX], root[DIGEST_HEX_SIZE];
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    if (strchr(r->name, '\n'))
        return error_set(-EINVAL, "an export whose name has a line break cannot have a ublk device");
    int rc = bytes_printf(&text, VERSION "%u %s %s%s\n", r->number, digest_hex(&r->content_root, root),
                          states[r->state], r->name);
    if (rc)
        return error_no_memory();
    record_path(socket, r->tag, path);
    return io_write_file_atomic(path, text.data, text.len, false);
}

static bool record_parse(const char *text, struct record *out)
{
    const size_t root_len = DIGEST_HEX_SIZE - 1;
    char *at;
    if (!text_begins_with(text, VERSION) || text[strlen(VERSION)] < '0' || text[strlen(VERSION)] > '9')
        return false;
    unsigned long number = strtoul(text + strlen(VERSION), &at, 10);
    const char *root = at + 1;
    if (number >= UBLK_NUMBERS || *at != ' ' || strnlen(root, root_len + 1) <= root_len || root[root_len] != ' ' ||
        digest_parse(root, root_len, &out->content_root))
        return false;
    const char *word = root + root_len + 1;
    size_t state = 0;
    while (state < GR_ARRAY_SIZE(states) && !text_begins_with(word, states[state]))
        state++;
    if (state == GR_ARRAY_SIZE(states))
        return false;
    const char *name = word + strlen(states[state]), *end = strchr(name, '\n');
    if (!end || end[1] || end - name > RECORD_NAME_MAX)
        return false;
    out->number = (unsigned)number;
    out->state = (enum record_state)state;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - name), name);
    return true;
}

int record_read(const char *socket, uint64_t tag, struct record *out)
{
    char path[PATH_MAX];
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    record_path(socket, tag, path);
    *out = (struct record){.tag = tag};
    int rc = io_read_file(path, &text);
    if (rc)
        return rc == -EMSGSIZE ? error_set(-EBADMSG, "%s is no record of a device", path) : rc;
    const char *line = bytes_string(&text);
    return line && record_parse(line, out) ? 0 : error_set(-EBADMSG, "%s is no record of a device", path);
}

void record_remove(const char *socket, uint64_t tag)
{
    char path[PATH_MAX];
    record_path(socket, tag, path);
    if (unlink(path) && errno != ENOENT)
        log_warning("cannot remove %s: %s", path, strerror(errno));
}

/* A file that a killed server had half written has more in its name. */
int record_list(const char *socket, record_tags *out)
{
    char dir[PATH_MAX], prefix[PATH_MAX];
    const char *slash = strrchr(socket, '/'), *name = slash ? slash + 1 : socket;
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - socket) + 1 : 1, slash ? socket : ".");
    snprintf(prefix, sizeof prefix, "%.*s" SUFFIX, NAME_MAX, name);
    DIR *d = opendir(dir);
    if (!d)
        return error_set(-errno, "cannot list %s: %s", dir, strerror(errno));
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d));) {
        const char *tag = e->d_name + GR_MIN(strlen(prefix), strlen(e->d_name));
        if (text_begins_with(e->d_name, prefix) && strlen(tag) == TAG_DIGITS &&
            strspn(tag, "0123456789abcdef") == TAG_DIGITS)
            rc = vec_push(out, (uint64_t)strtoull(tag, NULL, 16));
    }
    closedir(d);
    return rc;
}
