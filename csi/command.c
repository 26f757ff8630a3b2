/* granary's output goes to a file in memory, so that it is not killed by a pipe that nobody reads once the driver is
 * gone. So do keys: they are in no file of the node, no argument and no environment. */
#include "csi/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"

enum {
    OUTPUT_MAX = 4096,     /* bytes of the output's end in which the last sentence is */
    STATUS_MAX = 64 << 20, /* bytes; as many as the server makes at most */
};

/* Set the sentence that granary printed last; return code. */
static int repeat_sentence(int code, int output, const char *verb)
{
    char text[OUTPUT_MAX + 1], prefix[32];
    struct stat st;
    size_t size = fstat(output, &st) ? 0 : (size_t)st.st_size;
    ssize_t n = io_pread_full(output, text, OUTPUT_MAX, size > OUTPUT_MAX ? size - OUTPUT_MAX : 0);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[GR_MAX(n, (ssize_t)0)] = 0;
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    snprintf(prefix, sizeof prefix, "granary: %s: ", verb);
    if (text_begins_with(line, prefix))
        line += strlen(prefix);
    return error_set(code, "%s", *line ? line : "granary ended without a sentence");
}

/* Append what granary printed. */
static int take_output(int output, struct bytes *out)
{
    struct stat st;
    uint8_t *room;
    if (fstat(output, &st))
        return error_set(-errno, "a file in memory: %s", strerror(errno));
    int rc = bytes_reserve(out, (size_t)st.st_size, &room);
    if (rc)
        return rc;
    ssize_t n = io_pread_full(output, room, (size_t)st.st_size, 0);
    out->len += (size_t)GR_MAX(n, (ssize_t)0);
    return n < 0 ? error_set((int)n, "a file in memory: %s", strerror((int)-n)) : 0;
}

int command_run(const char *const *argv, const struct bytes *keys, struct bytes *out)
{
    int status;
    pid_t pid;
    bool has_keys = keys && keys->len;
    CLEANUP_FD int output = memfd_create("granary", MFD_CLOEXEC);
    CLEANUP_FD int input = has_keys ? memfd_create("granary-keys", MFD_CLOEXEC) : -1;
    if (output < 0 || (has_keys && input < 0))
        return error_set(-errno, "cannot make a file in memory: %s", strerror(errno));
    struct process_spec spec = {
        .argv = argv, .input = has_keys ? input : 0, .output = output, .listen_fd = -1, .session = true};
    int rc = has_keys ? io_write_full(input, keys->data, keys->len) : 0;
    if (!rc)
        rc = process_spawn(&spec, &pid);
    if (rc)
        return rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set(-errno, "waitpid: %s", strerror(errno));
    rc = out ? take_output(output, out) : 0;
    if (rc)
        return rc;
    if (WIFSIGNALED(status))
        return error_set(-EIO, "granary %s was ended by signal %d", argv[1], WTERMSIG(status));
    if (!WEXITSTATUS(status))
        return 0;
    return repeat_sentence(WEXITSTATUS(status) == 2 ? -EINVAL : -EIO, output, argv[1]);
}

int command_status(const char *server, json_t **out)
{
    CLEANUP_BYTES text = BYTES_INIT(STATUS_MAX);
    int rc =
        command_run((const char *const[]){"granary", "status", "--json", "--quick", "--", server, NULL}, NULL, &text);
    const uint8_t *begin = text.len ? memchr(text.data, '{', text.len) : NULL; /* after warnings */
    *out = begin ? json_loadb((const char *)begin, text.len - (size_t)(begin - text.data), 0, NULL) : NULL;
    return rc;
}
