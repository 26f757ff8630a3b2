/* Root's powers, but for those that are needed: a process that is taken over cannot do more. */
#ifndef GRANARY_ATTACH_PRIVILEGES_H
#define GRANARY_ATTACH_PRIVILEGES_H

#include <stddef.h>

#include "base/compiler.h"

/* Of this process's capabilities keep those (CAP_... of linux/capability.h) and lose the others for good, for every
 * program it starts, too. Those it does not have it does not get. Call it before there are threads. */
GR_MUST_CHECK int privileges_keep(const int *capabilities, size_t count);

#endif
