/* The directory of a server that mounts share: its sockets, its log, and a record of its process and command line. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_DIR_H
#define GRANARY_ATTACH_SERVER_SERVER_DIR_H

#include "attach/process.h"

/* Return the server's process; pid 0 when none is alive. */
struct process server_dir_alive(const char *dir);

/* Create the directory, empty; an existing one is replaced. */
GR_MUST_CHECK int server_dir_make(const char *dir);

/* Start argv (ends with NULL) as the server of a directory that exists. The process is recorded before the program
 * begins. *out: the process. */
GR_MUST_CHECK int server_dir_start(const char *dir, const char *const *argv, struct process *out);

/* Start a server that died with the same command line, but by the program that is running now. Its files stay. -ENOENT:
 * no server was started there; -EBADMSG: the record is damaged. */
GR_MUST_CHECK int server_dir_start_again(const char *dir, struct process *out);

/* Put the server's last error into the sentence of rc; return rc. */
int server_dir_explain(const char *dir, int rc);

/* Remove the directory, after the process has ended. */
void server_dir_remove(const char *dir);

#endif
