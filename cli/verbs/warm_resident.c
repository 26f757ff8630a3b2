/* granary warm TARGET --resident: the server writes the whole image to a file beside its cache
 * (server/control_resident.c); this process prints the lines of its answer. */
#include <errno.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "cli/verbs/warm_resident.h"

struct answer {
    struct progress progress;
    json_t *resident; /* the result; NULL: not yet */
};

static int take_line(void *arg, const char *line, size_t len)
{
    struct answer *a = arg;
    json_t *object;
    int rc = cancel_check(interrupt_flag());
    if (!rc)
        rc = control_object(line, len, &object);
    if (rc)
        return rc;
    json_t *progress = json_object_get(object, "progress");
    if (progress)
        progress_update(&a->progress, &(struct progress_state){.phase = "writing the whole image",
                                                               .bytes_done = control_number(progress, "bytes_done"),
                                                               .bytes_total = control_number(progress, "bytes_total")});
    if (json_object_get(object, "resident") && !a->resident)
        a->resident = json_incref(json_object_get(object, "resident"));
    json_decref(object);
    return 0;
}

static void print_resident(json_t *r)
{
    char size[TEXT_SIZE_MAX];
    printf("%s: the whole image, %s, is %s in ", server_status_text(r, "export"),
           text_format_size(control_number(r, "size"), size), control_number(r, "bytes") ? "now" : "already");
    print_text(server_status_text(r, "directory"));
    puts("; 'granary mount' mounts it without a server");
}

int warm_resident(const struct warm_resident *w)
{
    const char *const params[] = {"export", w->export, "digest", w->digest, NULL};
    struct answer a = {.resident = NULL};
    progress_init(&a.progress, "warm", w->quiet);
    a.progress.json = w->json;
    int rc = control_call(w->control, "POST", "/resident", params, take_line, &a);
    progress_end(&a.progress);
    if (rc == -ECONNRESET || (!rc && !a.resident))
        rc = error_set(-EIO, "the server on %s ended in the middle; nothing is left of what was written: run it again",
                       w->control);
    if (!rc && w->json)
        rc = print_json(json_incref(a.resident));
    else if (!rc)
        print_resident(a.resident);
    json_decref(a.resident);
    return rc;
}
