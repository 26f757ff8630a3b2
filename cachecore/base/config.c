/* One pass cuts the text into strings: sections, keys and values point into it. A section is named `server`, `mount`,
 * or by a bucket's address, so that a mistyped one is an error and not settings without effect. */
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/text.h"

#define STANDARD_PATH "/etc/granary.conf"

enum { CONFIG_MAX = 1 << 20 };

/* What a section may say about a bucket. */
static const char *const bucket_keys[] = {"endpoint", "profile"};

const char *config_path(void)
{
    const char *path = getenv("GRANARY_CONFIG");
    if (!path || !*path)
        return STANDARD_PATH;
    return strcmp(path, "none") ? path : NULL;
}

static int wrong_line(const struct config *c, unsigned line, const char *what)
{
    return error_set(-EINVAL, "%s:%u: %s", c->path, line, what);
}

int config_check_once(const struct config *c, const struct config_entry *e)
{
    for (size_t i = 0; i < c->entries.len; i++) {
        const struct config_entry *o = &c->entries.items[i];
        if (o->line < e->line && !strcmp(o->section, e->section) && !strcmp(o->key, e->key))
            return config_wrong(c, e, "line %u sets '%s' already", o->line, e->key);
    }
    return 0;
}

int config_wrong(const struct config *c, const struct config_entry *e, const char *fmt, ...)
{
    char what[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return wrong_line(c, e->line, what);
}

/* Return the bucket that a section is about, "" for every bucket; NULL: it is about none. */
static const char *bucket_of(const char *section)
{
    return text_begins_with(section, "s3://") ? section + 5 : NULL;
}

/* "[NAME]" */
static int take_section(const struct config *c, unsigned line, char *text, const char **out)
{
    size_t len = strlen(text);
    if (text[len - 1] != ']')
        return wrong_line(c, line, "a section's name ends with ']'");
    text[len - 1] = 0;
    *out = text_trim(text + 1);
    const char *bucket = bucket_of(*out);
    if (bucket && strchr(bucket, '/'))
        return error_set(-EINVAL, "%s:%u: [%s]: settings hold for a whole bucket; write [s3://%.*s]", c->path, line,
                         *out, (int)strcspn(bucket, "/"), bucket);
    if (bucket || !strcmp(*out, "server") || !strcmp(*out, "mount"))
        return 0;
    return error_set(-EINVAL, "%s:%u: there is no section [%s]; there are [server], [mount], [s3://BUCKET] and [s3://]",
                     c->path, line, *out);
}

/* Cut off a comment: '#' after white space. */
static void cut_comment(char *value)
{
    for (char *p = value; *p; p++)
        if (*p == '#' && (p[-1] == ' ' || p[-1] == '\t' || p == value)) {
            *p = 0;
            return;
        }
}

/* Check a setting of a bucket. */
static int check_bucket_entry(const struct config *c, const struct config_entry *e)
{
    size_t i = 0;
    while (i < GR_ARRAY_SIZE(bucket_keys) && strcmp(e->key, bucket_keys[i]) != 0)
        i++;
    if (i == GR_ARRAY_SIZE(bucket_keys))
        return config_wrong(c, e, "'%s' is not a bucket setting; there are endpoint and profile", e->key);
    if (!strcmp(e->key, "endpoint") && !text_begins_with(e->value, "http://") &&
        !text_begins_with(e->value, "https://"))
        return config_wrong(c, e, "endpoint must look like https://HOST or http://HOST:PORT");
    return config_check_once(c, e);
}

/* "KEY = VALUE" */
static int take_entry(struct config *c, unsigned line, const char *section, char *text)
{
    char *equals = strchr(text, '=');
    if (!equals)
        return wrong_line(c, line, "a line is a comment (#), a [section], or KEY = VALUE");
    if (!section)
        return wrong_line(c, line, "a [section] comes before the first KEY = VALUE");
    *equals = 0;
    cut_comment(equals + 1);
    const struct config_entry e = {
        .section = section, .key = text_trim(text), .value = text_trim(equals + 1), .line = line};
    if (!*e.key || !*e.value)
        return wrong_line(c, line, "a key and its value may not be empty");
    int rc = bucket_of(section) ? check_bucket_entry(c, &e) : 0;
    return rc ? rc : vec_push(&c->entries, e);
}

static int take_text(struct config *c)
{
    const char *section = NULL;
    char *rest = (char *)c->text.data, *text;
    int rc = 0;
    for (unsigned line = 1; !rc && (text = strsep(&rest, "\n")); line++) {
        text = text_trim(text);
        if (*text == '[')
            rc = take_section(c, line, text, &section);
        else if (*text && *text != '#')
            rc = take_entry(c, line, section, text);
    }
    return rc;
}

/* Read the text of a file that only root and the user can have written. */
static int read_text(struct config *c)
{
    struct stat st;
    CLEANUP_FD int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st))
        return error_set(-errno, "cannot read %s: %s", c->path, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) /* /dev/null is an empty file */
        return error_set(-EINVAL, "%s is not a regular file", c->path);
    if (S_ISREG(st.st_mode) && ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022))
        return error_set(-EPERM, "%s is refused: other users can write it; run chown root and chmod go-w on it",
                         c->path);
    int rc = io_read_rest(fd, c->path, &c->text);
    if (rc)
        return rc;
    const char *text = (const char *)c->text.data;
    if (c->text.len && (memchr(text, 0, c->text.len) || !text_is_utf8(text, c->text.len)))
        return error_set(-EINVAL, "%s is not UTF-8 text", c->path);
    return bytes_append(&c->text, "", 1);
}

int config_read(const char *path, bool must_exist, struct config *out)
{
    *out = (struct config){.text = BYTES_INIT(CONFIG_MAX + 1), .path = strdup(path)};
    if (!out->path)
        return error_no_memory();
    int rc = read_text(out);
    if (rc == -ENOENT && !must_exist)
        return 0;
    return rc ? rc : take_text(out);
}

void config_release(struct config *c)
{
    free(c->path);
    bytes_release(&c->text);
    vec_release(&c->entries);
    *c = (struct config){0};
}

/* The process's own file: read once, by whichever part of the program needs it first, and constant from then on. */
static struct {
    pthread_once_t once;
    struct config config;
    struct error error;
} shared = {.once = PTHREAD_ONCE_INIT};

static void read_once(void)
{
    const char *path = config_path(), *given = getenv("GRANARY_CONFIG");
    if (path)
        error_take(&shared.error, config_read(path, given && *given, &shared.config));
}

int config_get(const struct config **out)
{
    pthread_once(&shared.once, read_once);
    *out = &shared.config;
    return shared.error.code ? error_restore(&shared.error) : 0;
}

const struct config_entry *config_for_bucket(const struct config *c, const char *bucket, const char *key)
{
    const struct config_entry *found = NULL;
    for (size_t i = 0; i < c->entries.len; i++) {
        const struct config_entry *e = &c->entries.items[i];
        const char *name = bucket_of(e->section);
        if (!name || strcmp(e->key, key) != 0)
            continue;
        if (!strcmp(name, bucket))
            return e;
        if (!*name && !found)
            found = e;
    }
    return found;
}
