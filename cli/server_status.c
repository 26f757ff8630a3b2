/* The status is fetched as a whole and parsed. Members that an older server does not have read as 0 or "?", so that a
 * new client can show an old server. */
#include "cli/server_status.h"

#include <errno.h>
#include <string.h>

#include "attach/attach.h"
#include "base/error.h"

enum { STATUS_MAX = 64 << 20 }; /* bytes; as many as the server makes at most */

/* An answer that is no object comes from something other than a server of ours. */
int server_status_get(const char *control, json_t **out)
{
    CLEANUP_BYTES text = BYTES_INIT(STATUS_MAX);
    int rc = control_get(control, "/status", &text);
    if (rc)
        return rc;
    json_t *status = json_loadb((const char *)text.data, text.len, 0, NULL);
    if (!json_is_object(status)) {
        json_decref(status);
        return error_set(-EIO, "the server on the control socket %s answers with something else than its status",
                         control);
    }
    *out = status;
    return 0;
}

uint64_t server_status_counter(json_t *status, const char *name)
{
    return control_number(json_object_get(status, "counters"), name);
}

/* Linear: the list is printed as well, so it is short enough. */
json_t *server_status_export(json_t *status, const char *name)
{
    size_t i;
    json_t *export;
    json_array_foreach(json_object_get(status, "exports"), i, export)
    {
        if (!strcmp(server_status_text(export, "name"), name))
            return export;
    }
    return NULL;
}

const char *server_status_text(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "?";
}
