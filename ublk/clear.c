/* What is left of a server that no other follows: one that mounts started and that was killed with its last mount. */
#include <errno.h>

#include "base/error.h"
#include "ublk/devices.h"
#include "ublk/record.h"

/* A device with another tag is another server's; a damaged record tells of none. */
static int clear_one(struct ublk_control *c, const char *socket, uint64_t tag)
{
    struct record r;
    int rc = record_read(socket, tag, &r);
    const bool none = rc == -EBADMSG || rc == -ENOENT; /* no record, or none that names a device */
    if (!rc)
        rc = ublk_remove(c, r.number, tag);
    if (!rc || none)
        record_remove(socket, tag);
    return none ? 0 : rc;
}

int devices_clear(struct ublk_control *c, const char *socket)
{
    record_tags tags = {0};
    struct error first = {0};
    int rc = record_list(socket, &tags);
    error_take(&first, rc);
    for (size_t i = 0; i < tags.len; i++) {
        int failed = clear_one(c, socket, tags.items[i]);
        if (failed && !rc)
            error_take(&first, failed);
        rc = rc ? rc : failed;
    }
    vec_release(&tags);
    return rc ? error_restore(&first) : 0;
}
