/* What tools do with cache directories, apart from serving out of them. */
#ifndef GRANARY_CACHE_CACHE_TOOLS_H
#define GRANARY_CACHE_CACHE_TOOLS_H

#include "cache/cache_fsck.h"       /* checking one */
#include "cache/disk/cache_dir.h"   /* how much one may take */
#include "cache/disk/cache_lock.h"  /* owning one */
#include "cache/policy/evict_sim.h" /* what a policy would have kept */

#endif
