/* How one comes by the nbd module. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_REMEDY_H
#define GRANARY_ATTACH_DEVICE_NBD_REMEDY_H

enum { NBD_REMEDY_MAX = 256 };

/* A clause for the distribution that os_release (the text of /etc/os-release) names and the kernel `release`
 * (uname -r); returns out. */
const char *nbd_remedy(const char *os_release, const char *release, char out[NBD_REMEDY_MAX]);

#endif
