/* The filesystem's metadata in a server's cache, before anybody looks for a file. */
#ifndef GRANARY_ATTACH_MOUNT_METADATA_WARM_H
#define GRANARY_ATTACH_MOUNT_METADATA_WARM_H

#include "base/compiler.h"

/* Have the server of that control socket cache an export's metadata. -EIO, with the server's sentence: it cannot, or
 * not all of it; -ECANCELED: *cancel (may be NULL) was set. */
GR_MUST_CHECK int metadata_warm(const char *control, const char *export_name, const volatile int *cancel);

#endif
