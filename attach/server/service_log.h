/* The log of a process that lives long (granary serve, granary keep): its own lines, and those of the programs that it
 * supervises, on standard error.
 *
 *   to the journal (systemd says so by JOURNAL_STREAM)   "<4>text": the journal has the time
 *   else                                                 "2026-11-20T23:01:02Z warning text"
 *
 * What `granary mount` starts writes to a file of its own in the log directory, which stays after umount and is
 * bounded: at SERVICE_LOG_MAX bytes it becomes FILE.1, in place of the one before. A month after
 * its last line it is removed, when its run directory is no more and no process has it open to write: a shared lock
 * (flock) of the descriptor says so. Below STATE_ROOT, which lies in memory, it is cut to nothing instead.
 */
#ifndef GRANARY_ATTACH_SERVER_SERVICE_LOG_H
#define GRANARY_ATTACH_SERVER_SERVICE_LOG_H

#include <limits.h>

#include "base/compiler.h"
#include "base/log.h"

enum { SERVICE_LOG_MAX = 16 << 20, SERVICE_LOG_KEPT_DAYS = 30 };

/* From now on log_line of this process writes so. */
void service_log_begin(void);

/* A line that another program has written: its level is read from it ("error: ", "warning: "; else info). */
void service_log_line(const char *line);

/* Where the lines go: "journal", a file's path, or "standard error". Returns out. */
char *service_log_where(char out[PATH_MAX]);

/* $LOGS_DIRECTORY; else for root /var/log/granary, for others $XDG_STATE_HOME/granary/log or
 * $HOME/.local/state/granary/log. -ENOENT with a sentence: there is no home. */
GR_MUST_CHECK int service_log_directory(char out[PATH_MAX]);

/* Open the log file for a process to be started, to append: NAME (run_dir/serve.log is serve-ID.log, ID the last
 * component of run_dir) in the log directory, made where it is missing; and make run_dir/name a symbolic link to it. A
 * line there marks the beginning: what stands before it is of earlier processes. Where the log directory cannot be used
 * a warning says so, and the file is in run_dir. Returns the descriptor (close it) or -errno. */
GR_MUST_CHECK int service_log_open(const char *run_dir, const char *name);

/* A program said why it failed in that log: put its last line, after `what`, into the sentence of rc, and return rc. As
 * it was where that line is no error's: it said nothing, or was killed. */
GR_MUST_CHECK int service_log_explain(const char *run_dir, const char *name, const char *what, int rc);

#endif
