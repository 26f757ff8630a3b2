/* What long-lived processes (granary serve, granary keep, granary mount --foreground) share: a log, signals, and the
 * service manager.
 *
 * The log has the lines of the process and those of the programs that it supervises, on standard error:
 *
 *   to the journal (systemd sets JOURNAL_STREAM)   "<4>text": the journal adds the time
 *   otherwise                                      "2026-11-20T23:01:02Z warning text"
 *
 * A process that `granary mount` starts writes to a file in the log directory, which stays after umount:
 * $LOGS_DIRECTORY; else for root /var/log/granary, for others $XDG_STATE_HOME/granary/log or
 * $HOME/.local/state/granary/log. The file is bounded: at SERVICE_LOG_MAX bytes it becomes FILE.1, replacing the
 * earlier one. It is removed SERVICE_LOG_KEPT_DAYS after its last line, once its run directory is gone and no process
 * has it open for writing, which a shared lock (flock) on the descriptor tells. A file below STATE_ROOT, which is in
 * memory, is truncated instead. */
#ifndef GRANARY_ATTACH_SERVER_SERVICE_H
#define GRANARY_ATTACH_SERVER_SERVICE_H

#include <limits.h>

#include "base/compiler.h"

enum { SERVICE_LOG_MAX = 16 << 20, SERVICE_LOG_KEPT_DAYS = 30 }; /* bytes of a file */

/* Have log_line of this process write in this form from now on. */
void service_log_begin(void);

/* Write a line of another program. Its level is found in the line ("error: ", "warning: ", "debug: "; otherwise info);
 * of "granary: LEVEL: text", the line of a front end, the level is not repeated. */
void service_log_line(const char *line);

/* Tell where the lines go: "journal", a file's path, or "standard error". Returns out. */
char *service_log_where(char out[PATH_MAX]);

/* Write the path of the log directory, which may not exist. -ENOENT: HOME is not set; -ENAMETOOLONG. */
GR_MUST_CHECK int service_log_directory(char out[PATH_MAX]);

/* Open a log for a process about to be started, for appending. The file is NAME-ID.log in the log directory
 * (run_dir/serve.log is serve-ID.log; ID is the last component of run_dir), and run_dir/name becomes a symbolic link to
 * it. The directory is made if it is missing. A first line marks the start. If the log directory cannot be used, a
 * warning says so and the file is made in run_dir. Returns the descriptor, for the caller to close, or -errno. */
GR_MUST_CHECK int service_log_open(const char *run_dir, const char *name);

/* Put the last line of that log, after `what`, into the sentence of rc; return rc. The sentence stays as it was when
 * the last line is no error: the program reported nothing, or was killed. */
GR_MUST_CHECK int service_log_explain(const char *run_dir, const char *name, const char *what, int rc);

/* Block SIGTERM, SIGINT and SIGCHLD; *out_fd, a signalfd that does not block, receives them. Close it. Call it from a
 * process with one thread. */
GR_MUST_CHECK int service_signals(int *out_fd);

/* Send for example "READY=1" to the service manager (NOTIFY_SOCKET); do nothing where that is not set. A failure is
 * logged as a warning. */
void notify(const char *state);

#endif
