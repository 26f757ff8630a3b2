/* What tools need of cache directories, apart from serving. */
#ifndef GRANARY_CACHE_CACHE_TOOLS_H
#define GRANARY_CACHE_CACHE_TOOLS_H

#include "cache/cache_fsck.h"       /* checking a directory */
#include "cache/disk/cache_dir.h"   /* how much a directory may take */
#include "cache/disk/cache_lock.h"  /* owning a directory */
#include "cache/policy/evict_sim.h" /* what a policy would have kept */

#endif
