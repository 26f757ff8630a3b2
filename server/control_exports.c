/* Adding an export fetches a manifest from a store, and removing one writes a file, so both are jobs. They have job
 * slots separate from warming's: a mount must not wait until a warming that takes hours is done. Of these slots each
 * store has a few: a mount must not wait for another store either, which may be silent. */
#include "server/control_internal.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/image_ref.h"
#include "stack_options.h"

/* A checked request. */
struct control_exports {
    struct added_exports *added;
    char *name, *image;   /* owned; image NULL: remove */
    char *store;          /* owned; the image's, or "" */
    struct s3_keys *keys; /* NULL: none of its own */
    enum added_for purpose;
    bool fenced, unwarmed;
    uint64_t quota;
};
DEFINE_CLEANUP(control_exports, struct control_exports *, control_exports_free)

void control_exports_free(void *arg)
{
    struct control_exports *c = arg;
    free(c->name);
    free(c->image);
    free(c->store);
    s3_keys_unref(c->keys);
    free(c);
}

/* The reference is parsed but not resolved. The strings are copied: libmicrohttpd's live only while the request is
 * answered. */
int control_exports_prepare(struct added_exports *added, const struct control_exports_request *r, bool put,
                            struct control_exports **out)
{
    struct image_ref ref;
    uint64_t quota = 0;
    if (!added)
        return error_set(-EINVAL, "this server's exports do not change");
    if (!*r->name || strlen(r->name) > CONTROL_EXPORT_MAX)
        return error_set(-EINVAL, "the name of an export has 1 to %d bytes", CONTROL_EXPORT_MAX);
    if (put && !r->image)
        return error_set(-EINVAL, "image= is missing; give a reference, e.g. image=s3://bucket/prefix/faces");
    if (!put && r->image)
        return error_set(-EINVAL, "image= is for PUT only");
    if (r->fence && (!put || (strcmp(r->fence, "warmed") != 0 && strcmp(r->fence, "none") != 0)))
        return error_set(-EINVAL, "fence= is none or warmed, and for PUT only");
    if (r->warm && (!put || (strcmp(r->warm, "metadata") != 0 && strcmp(r->warm, "none") != 0)))
        return error_set(-EINVAL, "warm= is none or metadata, and for PUT only");
    if (r->quota && !put)
        return error_set(-EINVAL, "quota= is for PUT only");
    int rc = control_flag("mount", r->mount);
    if (!rc && put)
        rc = image_ref_parse(r->image, &ref);
    if (!rc && r->quota)
        rc = stack_options_parse_quota("quota=", r->quota, r->quota, &quota);
    if (rc)
        return rc;
    CLEANUP(cleanup_control_exports) struct control_exports *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->added = added;
    c->purpose = r->mount ? ADDED_FOR_MOUNTS : ADDED_FOR_USER;
    c->fenced = r->fence && !strcmp(r->fence, "warmed");
    c->unwarmed = r->warm && !strcmp(r->warm, "none");
    c->quota = quota;
    c->name = strdup(r->name);
    c->image = put ? strdup(r->image) : NULL;
    c->store = strdup(put ? ref.store : "");
    if (!c->name || !c->store || (put && !c->image))
        return error_no_memory();
    rc = put && r->keys && r->keys->len ? s3_keys_parse(r->keys->data, r->keys->len, &c->keys) : 0;
    if (rc)
        return rc;
    *out = steal_ptr(&c);
    return 0;
}

const char *control_exports_store(const struct control_exports *c)
{
    return c->store;
}

/* Add the export, and describe it; or remove it, and report whether it was removed. */
int control_exports_run(struct control_job *job, void *arg)
{
    const struct control_exports *c = arg;
    if (!c->image) {
        bool removed;
        int rc = added_exports_remove(c->added, c->name, c->purpose, &removed);
        return rc ? rc : control_job_send(job, "removed", json_pack("{s:b}", "removed", removed));
    }
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    const struct stack_image image = {.ref = c->image,
                                      .export_name = c->name,
                                      .keys = c->keys,
                                      .fenced = c->fenced,
                                      .unwarmed = c->unwarmed,
                                      .quota = c->quota};
    int rc = added_exports_put(c->added, &image, c->purpose, control_job_cancel(job), &e);
    if (rc)
        return rc;
    const struct manifest *m = image_manifest(stack_export_image(e));
    json_t *export = control_json_export(e);
    json_object_set_new(export, "content_root", control_json_digest(&m->content_root));
    json_object_set_new(export, "size", control_json_integer(m->size));
    return control_job_send(job, "export", export);
}
