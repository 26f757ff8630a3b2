/* One request to the control socket; the answer's last sums tell whether everything is cached. */
#include "attach/mount/metadata_warm.h"

#include <errno.h>
#include <stdbool.h>

#include "attach/control_client.h"
#include "base/error.h"

/* What the answer's lines have reported so far. */
struct answer {
    const volatile int *cancel;
    bool done; /* the final sums have arrived */
};

/* Take the sums: an error unless every chunk is cached. */
static int take_sums(struct answer *a, const json_t *sums)
{
    const char *why = json_string_value(json_object_get(sums, "error"));
    uint64_t chunks = control_number(sums, "chunks"), missing = chunks - control_number(sums, "cached_chunks");
    a->done = true;
    return missing ? error_set(-EIO, "%llu of %llu chunks are not cached: %s", (unsigned long long)missing,
                               (unsigned long long)chunks, why && *why ? why : "the cache is too small")
                   : 0;
}

/* Take one line; only the sums matter. Progress lines come twice a second, so *cancel is noticed soon. */
static int metadata_warm_take_line(void *arg, const char *line, size_t len)
{
    struct answer *a = arg;
    json_t *object;
    if (a->cancel && *a->cancel)
        return error_set(-ECANCELED, "interrupted");
    int rc = control_object(line, len, &object);
    const json_t *sums = json_object_get(object, "warm");
    if (sums)
        rc = take_sums(a, sums);
    json_decref(object);
    return rc;
}

/* A server that has no slot for the request is tried again (control_turn). */
int metadata_warm(const char *control, const char *export_name, const volatile int *cancel)
{
    struct answer a = {.cancel = cancel};
    const char *const params[] = {"what", "metadata", "export", export_name, NULL};
    const struct bytes nothing = BYTES_INIT(0);
    struct control_turn turn = {.cancel = cancel};
    int rc;
    do
        rc = control_post(control, "/warm", params, &nothing, metadata_warm_take_line, &a);
    while (control_turn(rc, &turn));
    if (cancel && *cancel) /* it also ends the wait for an answer */
        return error_set(-ECANCELED, "interrupted");
    return rc || a.done ? rc : error_set(-EIO, "the answer of the server on %s ended early", control);
}
