/* From the words of a command line to open stores and images. --timeout limits a whole request with its retries. A
 * single attempt and a connect are limited further, so that there is time for another attempt.
 *
 * Credentials come from the environment, which a file of settings may complete (--env-file). It has the format of
 * systemd's EnvironmentFile=, without its continuation lines, so that one file serves a unit and a mount in /etc/fstab.
 * Messages never quote a line: it may contain a secret.
 */
#include "cli/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/attach.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "repository/repository.h"

enum { REQUEST_MOST_S = 30, CONNECT_MOST_S = 10 };

/* 0 seconds mean the store's own default. */
void open_store_options(const struct open_access *access, struct store_options *out)
{
    uint64_t most_s = access->timeout_s ? access->timeout_s : UINT64_MAX;
    out->endpoint = access->endpoint;
    out->timeout_ms = access->timeout_s * 1000;
    out->request_s = (unsigned)GR_MIN(most_s, (uint64_t)REQUEST_MOST_S);
    out->cancel = interrupt_flag();
    out->connect_ms = (unsigned)GR_MIN(most_s, (uint64_t)CONNECT_MOST_S) * 1000;
}

/* Open the store, and check that it is one of Granary's. */
static int open_checked(const struct image_ref *ref, const struct open_access *access, struct store **out)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct store_options options = {0};
    open_store_options(access, &options);
    int rc = store_open(ref->store, &options, &store);
    if (!rc)
        rc = repository_check(store, false);
    if (rc)
        return rc;
    *out = steal_ptr(&store);
    return 0;
}

/* By the URL alone, before any request. */
int open_check_writable(const struct image_ref *ref)
{
    if (strncmp(ref->store, "http://", 7) != 0 && strncmp(ref->store, "https://", 8) != 0)
        return 0;
    return options_wrong(
        "%s: a store behind plain HTTP can only be read; write to what the web server serves, by file://, "
        "s3:// or hdfs://",
        ref->store);
}

/* There is no store where one is looked for: is there one where `parse` finds it in the text? If not, the thread's
 * sentence stays. */
static bool is_store_instead(int (*parse)(const char *text, struct image_ref *out), const char *text,
                             const struct open_access *access, struct image_ref *out)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct error known;
    error_take(&known, -ENOENT);
    if (!parse(text, out) && !open_checked(out, access, &store))
        return true;
    (void)error_restore(&known);
    return false;
}

int open_image_store(const char *text, const struct open_access *access, struct image_ref *ref, struct store **out)
{
    struct image_ref as_store;
    if (image_ref_parse(text, ref))
        return CLI_USAGE;
    int rc = open_checked(ref, access, out);
    if (rc != -ENOENT || !is_store_instead(image_ref_parse_store, text, access, &as_store))
        return rc;
    return error_set(rc, "%s is a store, and an image is needed; 'granary images %s' lists those that it has",
                     as_store.store, as_store.store);
}

int open_store(const char *text, const struct open_access *access, struct image_ref *ref, struct store **out)
{
    struct image_ref as_image;
    if (image_ref_parse_store(text, ref))
        return CLI_USAGE;
    int rc = open_checked(ref, access, out);
    if (rc != -ENOENT || !is_store_instead(image_ref_parse, text, access, &as_image))
        return rc;
    return error_set(rc, "%s is not a Granary store, but %s is one; give the store alone, without an image", ref->store,
                     as_image.store);
}

/* The tag is resolved once; from then on only the digest counts, whatever happens to the tag. */
int open_image(const char *text, const struct open_access *access, struct open_image *out)
{
    *out = (struct open_image){0};
    int rc = open_image_store(text, access, &out->ref, &out->store);
    if (!rc)
        rc = repository_resolve(out->store, &out->ref, &out->digest, &out->tag);
    if (!rc)
        rc = repository_tag_beside(out->store, &out->ref, &out->tag);
    if (!rc)
        rc = repository_manifest(out->store, &out->digest, &out->manifest);
    return rc;
}

/* A directory where nothing of ours is mounted is taken as an image, too: /store/faces may be both. */
int open_image_or_mount(const char *text, const struct open_access *access, struct open_image *out)
{
    struct stat st;
    struct mount_state state;
    char pinned[IMAGE_REF_MAX];
    *out = (struct open_image){0};
    bool directory = !stat(text, &st) && S_ISDIR(st.st_mode);
    int rc = directory ? mount_find(text, &state) : -ENOENT;
    if (rc == -ENOENT) {
        rc = open_image(text, access, out);
        return rc && directory ? error_prefix(rc, "nothing is mounted on %s, nor is it an image", text) : rc;
    }
    if (rc)
        return rc;
    return mount_pinned(&state, pinned) ? CLI_USAGE : open_image(pinned, access, out);
}

int open_new_ref(const char *text, struct image_ref *out)
{
    if (image_ref_parse(text, out))
        return CLI_USAGE;
    if (out->by_digest)
        return options_wrong("%s: an image is built under a tag, not a digest; write STORE/NAME[:TAG]", text);
    return open_check_writable(out) ? CLI_USAGE : 0;
}

int open_same_store_ref(const char *text, const struct image_ref *made, struct image_ref *out)
{
    int rc = image_ref_parse(text, out);
    if (rc || !strcmp(out->store, made->store))
        return rc;
    return error_set(-EINVAL, "%s is of another store than %s/%s; granary copy brings it there", text, made->store,
                     made->name);
}

int open_check_trust(const struct open_image *image, const struct trust *trust)
{
    struct image_ref ref = image->ref;
    ref.digest = image->digest;
    int rc = trust_check_tag(trust, &ref, &image->tag.digest);
    return rc ? rc : trust_check(trust, &ref, image->tag.signature);
}

void open_image_release(struct open_image *image)
{
    store_close(image->store);
    image->store = NULL;
}

/* ---- the environment ---- */

enum { ENV_FILE_MAX = 1 << 20 };

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
    line = text_trim(line);
    if (!*line || *line == '#' || *line == ';')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals || equals == line)
        return error_set(-EINVAL, "%s:%u: no NAME=VALUE", path, number);
    *equals = 0;
    if (setenv(text_trim(line), unquote(text_trim(equals + 1)), 1))
        return error_set(-errno, "%s:%u: %s", path, number, strerror(errno));
    return 0;
}

/* Line by line, so that an error can name the line without quoting it. */
int env_file_load(const char *path)
{
    CLEANUP_BYTES text = BYTES_INIT(ENV_FILE_MAX);
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

/* ---- keys ---- */

/* Read into room that is made at once: a buffer that grows leaves copies behind. */
int keys_file_load(const char *path, struct bytes *out, struct s3_keys **out_keys)
{
    uint8_t *room;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
    int rc = bytes_reserve(out, out->max, &room);
    if (rc)
        return error_no_memory();
    ssize_t n = io_read_full(fd, room, out->max);
    if (n < 0)
        return error_set((int)n, "cannot read %s: %s", path, strerror((int)-n));
    out->len += (size_t)n;
    if (out->len == out->max)
        return error_set(-EINVAL, "%s is too large to be a file of keys", path);
    rc = s3_keys_parse(out->data, out->len, out_keys);
    return rc ? error_prefix(rc, "%s", path) : 0;
}
