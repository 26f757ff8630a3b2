/* Where to get the nbd module. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_REMEDY_H
#define GRANARY_ATTACH_DEVICE_NBD_REMEDY_H

enum { NBD_REMEDY_MAX = 256 };

/* Write a clause that fits the distribution of os_release (the text of /etc/os-release) and the kernel `release` (uname
 * -r); return out. */
const char *nbd_remedy(const char *os_release, const char *release, char out[NBD_REMEDY_MAX]);

#endif
