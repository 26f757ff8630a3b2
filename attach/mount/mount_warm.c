/* A mount has its server cache the metadata: one request, whose last sums tell whether everything is cached. */
#include "attach/mount/mount_internal.h"

#include <errno.h>

#include "attach/control_client.h"
#include "base/bytes.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/log.h"

/* What the answer's lines have reported so far. */
struct warm_answer {
    const volatile int *cancel;
    bool done; /* the final sums have arrived */
};

/* Take the sums: an error unless every chunk is cached. */
static int take_sums(struct warm_answer *a, const json_t *sums)
{
    const char *why = json_string_value(json_object_get(sums, "error"));
    uint64_t chunks = control_number(sums, "chunks"), missing = chunks - control_number(sums, "cached_chunks");
    a->done = true;
    return missing ? error_set(-EIO, "%llu of %llu chunks are not cached: %s", (unsigned long long)missing,
                               (unsigned long long)chunks, why && *why ? why : "the cache is too small")
                   : 0;
}

/* Take one line; only the sums matter. Progress lines come twice a second, so *cancel is noticed soon. */
static int warm_take_line(void *arg, const char *line, size_t len)
{
    struct warm_answer *a = arg;
    json_t *sums = NULL;
    int rc = cancel_check(a->cancel);
    if (!rc)
        rc = control_warm_sums(line, len, &sums);
    if (sums)
        rc = take_sums(a, sums);
    json_decref(sums);
    return rc;
}

/* A failure is only a warning, since the mount works without: missing chunks are fetched. A server that has no slot for
 * the request is tried again (control_turn). */
int mount_server_warm(const struct mount_config *c, const struct mount_state *s)
{
    struct warm_answer a = {.cancel = c->cancel};
    const char *const params[] = {"what", "metadata", "export", c->export_name, NULL};
    const struct bytes nothing = BYTES_INIT(0);
    struct control_turn turn = {.cancel = c->cancel};
    int rc;
    if (!*s->control || c->cold || (!c->socket && c->keeps_nothing))
        return 0;
    do
        rc = control_post(s->control, "/warm", params, &nothing, warm_take_line, &a);
    while (control_turn(rc, &turn));
    if (cancel_check(c->cancel)) /* it also ends the wait for an answer */
        return -ECANCELED;
    if (!rc && !a.done)
        rc = error_set(-EIO, "the answer of the server on %s ended early", s->control);
    if (rc)
        log_warning("the filesystem's metadata is not kept in the cache: %s", error_text());
    return 0;
}
