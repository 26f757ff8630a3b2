/* nbdkit does not pass its -t on to plugins, so this reads the process's command line as getopt would: clusters of
 * short options ("-ft256"), values in the same or the next argument, "--" as the end. */
#include "plugin/plugin_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"

/* nbdkit's short options with a value, which may contain a 't' itself: "-Upath" is no -t. */
static const char with_value[] = "DegiIpPtuU";

/* Return the number, or the default for what nbdkit would refuse. */
static unsigned number(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return end == text || *end || n == 0 || n > 1u << 20 ? SERVER_THREADS_DEFAULT : (unsigned)n;
}

/* Take t from a cluster of short options: "-ft256", "-f", "-Upath". Its value is the rest of the argument, or else the
 * next argument. Returns true when the next argument is a value, of t or of another option. */
static bool take_cluster(const char *arg, const char *next, unsigned *out)
{
    const char *option = arg + 1 + strcspn(arg + 1, with_value);
    if (*option == 't')
        *out = number(option[1] ? option + 1 : next ? next : "");
    return *option && !option[1];
}

/* Return the argument after `arg`, or NULL. */
static const char *next_arg(const char *arg, const char *end)
{
    const char *next = arg + strlen(arg) + 1;
    return next < end ? next : NULL;
}

/* As with getopt, the last -t wins. A command line that does not end in NUL was cut off and proves nothing. */
unsigned server_threads_parse(const char *cmdline, size_t len)
{
    unsigned threads = SERVER_THREADS_DEFAULT;
    if (!len || cmdline[len - 1])
        return threads;
    const char *end = cmdline + len;
    for (const char *arg = next_arg(cmdline, end); arg; arg = next_arg(arg, end)) {
        const char *next = next_arg(arg, end);
        if (!strcmp(arg, "--"))
            break;
        if (!strncmp(arg, "--threads=", 10))
            threads = number(arg + 10);
        else if (!strcmp(arg, "--threads"))
            threads = number(next ? next : "");
        else if (arg[0] == '-' && arg[1] && arg[1] != '-' && take_cluster(arg, next, &threads) && next)
            arg = next;
    }
    return threads;
}

unsigned server_threads(void)
{
    CLEANUP_BYTES cmdline = BYTES_INIT(1 << 20);
    if (io_read_file("/proc/self/cmdline", &cmdline))
        return SERVER_THREADS_DEFAULT;
    return server_threads_parse((const char *)cmdline.data, cmdline.len);
}
