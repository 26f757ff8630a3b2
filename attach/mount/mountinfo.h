/* What is mounted in this mount namespace, as the kernel lists it. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNTINFO_H
#define GRANARY_ATTACH_MOUNT_MOUNTINFO_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/compiler.h"

/* One mount: its number may be another's once it is gone, but hardly of the same filesystem. */
struct mountinfo {
    int id; /* -1: any */
    dev_t device;
};

/* The mount that a directory is in. */
GR_MUST_CHECK int mountinfo_of(const char *dir, struct mountinfo *out);

/* 1: something is mounted on the directory, *out its device; 0: nothing; -errno. Nobody's server is asked. */
GR_MUST_CHECK int mountinfo_at(const char *dir, dev_t *out);

/* 1: it is listed, 0: not, -errno. */
GR_MUST_CHECK int mountinfo_lists(const struct mountinfo *m);

#endif
