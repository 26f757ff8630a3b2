/* Has a server cache a filesystem's metadata before the first lookup. */
#ifndef GRANARY_ATTACH_MOUNT_METADATA_WARM_H
#define GRANARY_ATTACH_MOUNT_METADATA_WARM_H

#include "base/compiler.h"

/* Cache an export's metadata, through the server's control socket. -EIO, with the server's sentence: not all of it
 * could be cached; -ECANCELED: *cancel (may be NULL) was set; or as control_post. */
GR_MUST_CHECK int metadata_warm(const char *control, const char *export_name, const volatile int *cancel);

#endif
