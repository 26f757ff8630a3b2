/* In the memory: a SHA-256 of the rest, which detects that the process before was killed while it wrote; then for each
 * export three strings, each after its length (32 bits, little-endian): name, keys (s3_keys_format), proof. Buffers get
 * their whole size at once, since one that grows leaves copies of secrets behind. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/io.h"
#include "base/le.h"
#include "server/server_internal.h"

enum { STRINGS = 3, LENGTH_SIZE = 4 };

size_t kept_keys_size(const struct stack_export *e)
{
    return STRINGS * LENGTH_SIZE + strlen(stack_export_name(e)) + S3_KEYS_TEXT_MAX + stack_export_proof(e)->len;
}

/* Append a string and its length. */
static int add_string(struct bytes *kept, const void *data, size_t len)
{
    uint8_t *length;
    int rc = bytes_extend(kept, LENGTH_SIZE, &length);
    if (rc)
        return rc;
    le32_put(length, (uint32_t)len);
    return bytes_append(kept, data, len);
}

int kept_keys_add(struct bytes *kept, const struct stack_export *e)
{
    struct bytes keys CLEANUP(bytes_wipe) = BYTES_INIT(S3_KEYS_TEXT_MAX);
    const struct bytes *proof = stack_export_proof(e);
    int rc = s3_keys_format(stack_export_keys(e), &keys);
    if (!rc)
        rc = add_string(kept, stack_export_name(e), strlen(stack_export_name(e)));
    if (!rc)
        rc = add_string(kept, keys.data, keys.len);
    return rc ? rc : add_string(kept, proof->data, proof->len);
}

int kept_keys_write(int fd, const struct bytes *kept)
{
    struct digest sum = digest_of(kept->data, kept->len);
    int rc = io_pwrite_full(fd, &sum, sizeof sum, 0);
    if (!rc)
        rc = io_pwrite_full(fd, kept->data, kept->len, sizeof sum);
    if (!rc && ftruncate(fd, (off_t)(sizeof sum + kept->len)))
        rc = -errno;
    return rc ? error_set(rc, "keys cannot be kept for a restart: %s", strerror(-rc)) : 0;
}

int kept_keys_read(int fd, struct bytes *out)
{
    struct stat st;
    struct digest sum, found;
    uint8_t *room;
    if (fstat(fd, &st))
        return error_set(-errno, "the keys of the process before cannot be read: %s", strerror(errno));
    if (st.st_size < (off_t)sizeof sum)
        return 0;
    size_t len = (size_t)st.st_size - sizeof sum;
    int rc = bytes_reserve(out, len, &room);
    if (rc)
        return rc;
    bool whole = io_pread_full(fd, &sum, sizeof sum, 0) == sizeof sum &&
                 io_pread_full(fd, room, len, sizeof sum) == (ssize_t)len;
    found = digest_of(room, whole ? len : 0);
    if (!whole || !digest_equal(&sum, &found))
        return error_set(-EBADMSG, "the process before was killed while it wrote its keys");
    out->len += len;
    return 0;
}

/* Take the next string off *at; false at the end. */
static bool next_string(const uint8_t **at, const uint8_t *end, struct bytes *out)
{
    if (end - *at < LENGTH_SIZE || (size_t)(end - *at - LENGTH_SIZE) < le32_get(*at))
        return false;
    *out = (struct bytes){.data = (uint8_t *)*at + LENGTH_SIZE, .len = le32_get(*at), .max = le32_get(*at)};
    *at += LENGTH_SIZE + out->len;
    return true;
}

int kept_keys_find(const struct bytes *kept, const char *name, struct s3_keys **out, struct bytes *out_proof)
{
    const uint8_t *at = kept->data, *end = at + kept->len;
    struct bytes strings[STRINGS];
    while (kept->len && next_string(&at, end, &strings[0]) && next_string(&at, end, &strings[1]) &&
           next_string(&at, end, &strings[2])) {
        if (strings[0].len != strlen(name) || memcmp(strings[0].data, name, strings[0].len) != 0)
            continue;
        *out_proof = strings[2];
        return s3_keys_parse(strings[1].data, strings[1].len, out);
    }
    return error_set(-ENOENT, "they went with the server that had them");
}
