/* Splits a pipe into lines of at most 511 bytes. While `holds` is set the last line is kept back, since a supervisor
 * that reports a failed start quotes it, and the log should not have it twice. */
#include "attach/server/child_output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/server/service_log.h"
#include "base/cleanup.h"

/* Log the line that was kept back. */
void child_output_release(struct child_output *o)
{
    if (o->held)
        service_log_line(o->last);
    o->held = false;
}

/* A line is complete: log the one kept back, then log or keep this one. Empty lines do not replace the last. */
static void end_line(struct child_output *o)
{
    o->line[o->line_len] = 0;
    child_output_release(o);
    o->held = o->line_len && o->holds;
    if (o->line_len)
        memcpy(o->last, o->line, o->line_len + 1);
    if (!o->held)
        service_log_line(o->line);
    o->line_len = 0;
}

void child_output_begin(struct child_output *o, int fd)
{
    o->fd = fd;
    *o->last = 0;
}

/* A line longer than the buffer is split; nothing is dropped. */
int child_output_take(struct child_output *o)
{
    char block[4096];
    ssize_t n = read(o->fd, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    for (ssize_t i = 0; i < n; i++) {
        if (block[i] == '\n' || o->line_len + 1 == sizeof o->line)
            end_line(o);
        if (block[i] != '\n')
            o->line[o->line_len++] = block[i];
    }
    return n > 0 ? 1 : -1;
}

/* Read what the program wrote before it died; a line without a newline counts as well. */
void child_output_end(struct child_output *o)
{
    while (o->fd >= 0 && child_output_take(o) > 0)
        ;
    if (o->line_len)
        end_line(o);
    if (o->fd >= 0)
        close(steal_fd(&o->fd));
}

/* The program's own prefix would be repeated by the supervisor that quotes the line. */
const char *child_output_sentence(const char *line)
{
    static const char prefix[] = "granary: error: ";
    const char *at = strstr(line, prefix);
    return at ? at + strlen(prefix) : line;
}

const char *child_output_last(const struct child_output *o)
{
    return *o->last ? child_output_sentence(o->last) : "none";
}
