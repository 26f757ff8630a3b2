/* How many requests the nbdkit process around the plugin works on at once. */
#ifndef GRANARY_PLUGIN_SERVER_THREADS_H
#define GRANARY_PLUGIN_SERVER_THREADS_H

#include <stddef.h>

enum { SERVER_THREADS_DEFAULT = 16, SERVER_THREADS_FEW = 32 }; /* nbdkit's default; fewer than FEW deserve a warning */

/* Return the value of -t or --threads in a command line as /proc/PID/cmdline holds it (arguments ended by NUL), or
 * nbdkit's default. */
unsigned server_threads_parse(const char *cmdline, size_t len);

/* The same for this process. */
unsigned server_threads(void);

#endif
