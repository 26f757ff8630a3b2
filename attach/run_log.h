/* What the programs under a mount say: a file each in the mount's directory. */
#ifndef GRANARY_ATTACH_RUN_LOG_H
#define GRANARY_ATTACH_RUN_LOG_H

#include "base/compiler.h"

/* Open one to be written to, made where it is missing. Returns the descriptor (close it) or -errno. */
GR_MUST_CHECK int run_log_open(const char *run_dir, const char *name);

/* A program said why it failed in its log: put its last line, after `what`, into the sentence of rc, and return rc. As
 * it was where it said nothing. */
GR_MUST_CHECK int run_log_explain(const char *run_dir, const char *name, const char *what, int rc);

#endif
