/* Gives up root's capabilities except those that a process needs, so that an attacker who takes it over gains little.
 */
#ifndef GRANARY_ATTACH_PRIVILEGES_H
#define GRANARY_ATTACH_PRIVILEGES_H

#include <stddef.h>

#include "base/compiler.h"

/* Keep only these capabilities (CAP_... of linux/capability.h), irrevocably, for this process and every program it
 * starts. It gains none that it did not have. Call it before threads exist. */
GR_MUST_CHECK int privileges_keep(const int *capabilities, size_t count);

#endif
