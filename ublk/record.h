/* What is on disk of a device: the file SOCKET.device-TAG beside the server's socket, which the next server reads. The
 * tag is in the name, so that no removal of a device meets the record of a later one with its number. */
#ifndef GRANARY_UBLK_RECORD_H
#define GRANARY_UBLK_RECORD_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"
#include "base/vec.h"

enum { RECORD_NAME_MAX = 4096 };

/* What the next server does with a device. */
enum record_state {
    RECORD_NEW,    /* removes it: the client has not recorded it */
    RECORD_KEPT,   /* recovers it */
    RECORD_FAILING /* recovers it, to answer EIO */
};

/* A device's record. */
struct record {
    unsigned number; /* of /dev/ublkcN */
    uint64_t tag;    /* tells the device from a later one of that number; random */
    struct digest content_root;
    enum record_state state;
    char name[RECORD_NAME_MAX + 1]; /* of the export; no newline */
};

/* Write the record; a reader sees the old or the new one. 0 or -errno with a sentence. */
GR_MUST_CHECK int record_write(const char *socket, const struct record *r);
/* Read the record of a tag. -ENOENT; -EBADMSG: damaged. */
GR_MUST_CHECK int record_read(const char *socket, uint64_t tag, struct record *out);
/* Remove it; a missing one is no failure. What cannot be removed is logged. */
void record_remove(const char *socket, uint64_t tag);

typedef VEC(uint64_t) record_tags;
/* Append the tags of all records beside the socket; the caller releases them. */
GR_MUST_CHECK int record_list(const char *socket, record_tags *out);

#endif
