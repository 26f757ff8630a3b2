/* Settings of the environment in a file, as service managers have them: credentials, the S3 server. */
#ifndef GRANARY_CLI_ENV_FILE_H
#define GRANARY_CLI_ENV_FILE_H

#include "base/compiler.h"

/* Put NAME=VALUE lines into the environment, over what is there; blank ones and those that begin with # or ; are
 * passed over, and quotes around a value are taken off. -EINVAL with file and line, never with what stands there. */
GR_MUST_CHECK int env_file_load(const char *path);

#endif
