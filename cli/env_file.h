/* Environment settings from a file, as service managers have them: credentials, the S3 server. */
#ifndef GRANARY_CLI_ENV_FILE_H
#define GRANARY_CLI_ENV_FILE_H

#include "base/compiler.h"

/* Put NAME=VALUE lines into the environment, replacing what is there. Blank lines and lines that begin with # or ; are
 * skipped, and quotes around a value are removed. -EINVAL names the file and the line, and never quotes it. */
GR_MUST_CHECK int env_file_load(const char *path);

#endif
