/* The reconnect daemon of a device holds a POSIX lock on the whole state file. F_GETLK then tells which process keeps
 * the device, and nothing must be cleaned up after a daemon that was killed. The file may be replaced (keep_state_save
 * writes a new one) while a daemon waits for the lock, so after locking it checks that the file is still the one at the
 * path. */
#include "attach/keeper/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/state.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum { FILE_MAX = 64 << 10, PATH_SIZE = 64, CLAIM_TRIES = 16 }; /* bytes */

#define TEXT(field) JSON_TEXT(struct keep_state, field)
static const struct json_text_field texts[] = {TEXT(device), TEXT(mark), TEXT(address), TEXT(export_name)};

/* Return the path of a device's state file. */
static const char *keep_state_path(const char *device, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/%.20s.json", STATE_ROOT, device + strlen("/dev/"));
    return out;
}

/* Written under the node's lock, so that a sweep never sees half a file of a live process. */
int keep_state_save(const struct keep_state *s)
{
    char path[PATH_SIZE], content_root[DIGEST_HEX_SIZE];
    CLEANUP_JSON
    json_t *root = json_pack("{s:i,s:I,s:s,s:b,s:i,s:i}", "version", 1, "size", (json_int_t)s->size, "content_root",
                             digest_hex(&s->content_root, content_root), "tagged", s->tagged, "timeout",
                             (int)s->timeout_s, "dead_timeout", (int)s->dead_s);
    json_text_put(root, texts, GR_ARRAY_SIZE(texts), s);
    CLEANUP_FREE char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text)
        return error_no_memory();
    CLEANUP_FD int lock = -1;
    int rc = node_lock(&lock); /* which makes the directory */
    return rc ? rc : io_write_file_atomic(keep_state_path(s->device, path), text, strlen(text), false);
}

/* Fill in the state from JSON; false when a member is missing or out of range. */
static bool decode(const json_t *root, struct keep_state *out)
{
    json_int_t size;
    const char *content_root;
    int version, tagged, timeout, dead;
    if (json_unpack((json_t *)root, "{s:i,s:I,s:s,s:b,s:i,s:i}", "version", &version, "size", &size, "content_root",
                    &content_root, "tagged", &tagged, "timeout", &timeout, "dead_timeout", &dead) ||
        version != 1 || size < 0 || timeout < 1 || dead < 0 ||
        digest_parse(content_root, strlen(content_root), &out->content_root))
        return false;
    out->size = (uint64_t)size;
    out->tagged = tagged;
    out->timeout_s = (unsigned)timeout;
    out->dead_s = (unsigned)dead;
    return json_text_get(root, texts, GR_ARRAY_SIZE(texts), out);
}

/* The mark decides whether the file is of this attachment or of an earlier one of the same device. */
int keep_state_load(const char *device, struct keep_state *out)
{
    char path[PATH_SIZE], mark[DEVICE_MARK_MAX];
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    *out = (struct keep_state){.device = ""};
    int rc = io_read_file(keep_state_path(device, path), &text);
    if (rc)
        return rc;
    CLEANUP_JSON json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    if (!root || !decode(root, out) || strcmp(out->device, device))
        return error_set(-EBADMSG, "%s is damaged; remove it, and give the server by --socket", path);
    device_nbd_mark(device, mark);
    return strcmp(mark, out->mark) ? error_set(-ENOENT, "%s is of an earlier attachment", path) : 0;
}

void keep_state_remove(const char *device)
{
    char path[PATH_SIZE];
    (void)unlink(keep_state_path(device, path)); /* what was never made is absent */
}

/* ---- leftovers ---- */

/* Whether a file in STATE_ROOT is a leftover. All states are written under the node's lock, which the caller has, so a
 * half-written file is a killed process's. */
static bool is_left(const char *name)
{
    static const char suffix[] = ".json";
    char device[DEVICE_NAME_MAX];
    struct keep_state s;
    int number;
    const char *end = strstr(name, suffix);
    snprintf(device, sizeof device, "/dev/%.*s", end ? (int)GR_MIN(end - name, (ptrdiff_t)20) : 0, name);
    if (device_nbd_number(device, &number))
        return false;
    return end[sizeof suffix - 1] || (keep_state_load(device, &s) == -ENOENT && !keep_holder(device));
}

void keep_states_sweep_locked(void)
{
    DIR *root = opendir(STATE_ROOT);
    for (struct dirent *e; root && (e = readdir(root));)
        if (is_left(e->d_name) && unlinkat(dirfd(root), e->d_name, 0) && errno != ENOENT)
            log_warning("cannot remove %s/%s: %s", STATE_ROOT, e->d_name, strerror(errno));
    if (root)
        closedir(root);
}

/* ---- the lock ---- */

/* All of the file, to be locked or asked for. */
static const struct flock whole_file = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

/* Begin again if the file was replaced meanwhile; bounded, for the case that two processes keep replacing it. */
int keep_claim(const char *device, int *out_fd)
{
    char path[PATH_SIZE];
    keep_state_path(device, path);
    for (int i = 0; i < CLAIM_TRIES; i++) {
        struct flock lock = whole_file;
        CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
        if (fcntl(fd, F_SETLK, &lock)) {
            int code = errno;
            if (code != EAGAIN && code != EACCES)
                return error_set(-code, "cannot lock %s: %s", path, strerror(code));
            (void)fcntl(fd, F_GETLK, &lock);
            return error_set(-EBUSY, "process %d keeps %s already", lock.l_type == F_UNLCK ? 0 : (int)lock.l_pid,
                             device);
        }
        if (state_is_at(path, fd)) {
            *out_fd = steal_fd(&fd);
            return 0;
        }
    }
    return error_set(-EBUSY, "the state of %s is replaced again and again by other processes; try again", device);
}

/* The file is removed only if it is still the one that was locked: a new attachment may have replaced it. */
void keep_release(const char *device, int claim_fd)
{
    char path[PATH_SIZE];
    if (state_is_at(keep_state_path(device, path), claim_fd))
        keep_state_remove(device);
}

/* F_GETLK names the process that holds the lock; 0 if none does. */
pid_t keep_holder(const char *device)
{
    char path[PATH_SIZE];
    struct flock lock = whole_file;
    CLEANUP_FD int fd = open(keep_state_path(device, path), O_RDWR | O_CLOEXEC);
    return fd < 0 || fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}
