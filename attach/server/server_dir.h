/* The directory of a server that mounts share: its sockets, its log, which process it is and how it was started. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_DIR_H
#define GRANARY_ATTACH_SERVER_SERVER_DIR_H

#include "attach/process.h"

/* The process; pid 0: none is alive. */
struct process server_dir_alive(const char *dir);

/* Make the directory anew, empty. */
GR_MUST_CHECK int server_dir_make(const char *dir);

/* In a directory that was made, start argv (NULL ends), which is noted there before it begins. *out: who it is. */
GR_MUST_CHECK int server_dir_start(const char *dir, const char *const *argv, struct process *out);

/* Start the one that has died as it was started then, by the program that is running now; what it left in the directory
 * stays. -ENOENT: none was; -EBADMSG: what is noted of it is damaged. */
GR_MUST_CHECK int server_dir_start_again(const char *dir, struct process *out);

/* Put its last words into the sentence of rc; rc. */
int server_dir_explain(const char *dir, int rc);

/* Remove it, after the process. */
void server_dir_remove(const char *dir);

#endif
