/* The last step of a build. The manifest comes first, then the unique tag, then the requested tag: each object refers
 * only to objects that are already in the store. From the unique tag on, the image exists, and gc keeps its objects.
 * While the build stood still its lease may have lapsed, and gc may have removed any of them: so they are looked up
 * before the manifest is put, and again if the lease lapsed meanwhile. */
#include "imagebuild/build_internal.h"

#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "store/gc_marks.h"
#include "store/repository.h"

/* Publish both tags, or neither as far as the store allows: if the second put fails, the first tag is removed again. A
 * checkpoint is no image, so the tags never name one as parent. */
static int publish_tags(struct build *b)
{
    struct build_result *r = b->result;
    int64_t now = (int64_t)time(NULL);
    const char *source = b->source->url;
    struct tag unique = {.digest = r->image,
                         .content_root = r->content_root,
                         .created = now,
                         .source = digest_of(source, strlen(source))};
    if (b->parent && !b->resumed)
        unique.parent = parent_of_tag(b->parent, &r->image);
    struct tag asked = unique;
    /* The unique tag's name has time and digest, so two builds that choose the same name have the same image. It comes
     * first: if the build is killed in between, the image still has a tag. */
    tag_build_name(now, &r->image, r->unique_tag);
    int rc = repository_publish(b->store, b->ref->name, r->unique_tag, &unique, b->options.strict_tags);
    if (rc)
        return rc;
    rc = repository_publish(b->store, b->ref->name, b->ref->tag, &asked, b->options.strict_tags);
    if (!rc)
        return 0;
    struct error first;
    error_take(&first, rc);
    if (repository_remove_tag(b->store, b->ref->name, r->unique_tag))
        log_warning("build: tag %s:%s was published, but %s was not: %s", b->ref->name, r->unique_tag, b->ref->tag,
                    first.text);
    return error_restore(&first);
}

/* Take gc's mark off a manifest that was there before. upload_check_present has done so for the other objects. */
static int unmark_manifest(struct build *b)
{
    const struct gc_step step = {.step = build_same_step, .arg = b};
    CLEANUP_DIGEST_MAP name = {0};
    int rc = digest_map_add(&name, &b->result->image, 0);
    return rc < 0 ? rc : gc_unmark(b->store, &name, &step);
}

/* Put the manifest when all that it refers to is in the store. *out_found: what was there before. */
static int put_manifest(struct build *b, const struct bytes *document, enum repository_found *out_found)
{
    int rc = upload_check_present(b->upload, lease_lapses(b->lease) > 0);
    if (!rc)
        rc = build_parent_hold(b);
    if (!rc)
        rc = build_step(b, "publishing");
    if (!rc)
        rc = repository_put_object(b->store, OBJECT_MANIFEST, document->data, document->len, NULL, &b->result->image,
                                   out_found);
    /* an unchanged source gives an image that was there before */
    if (!rc && *out_found == REPOSITORY_WHOLE)
        rc = unmark_manifest(b);
    return rc ? rc : build_step(b, "publishing");
}

int build_publish(struct build *b)
{
    CLEANUP_BYTES document = BYTES_INIT(MANIFEST_MAX);
    struct build_result *r = b->result;
    enum repository_found found = REPOSITORY_ABSENT;
    unsigned lapses;
    int rc = manifest_encode(&r->manifest, &document);
    do {
        lapses = lease_lapses(b->lease);
        if (!rc)
            rc = put_manifest(b, &document, &found);
    } while (!rc && lease_lapses(b->lease) != lapses);
    if (!rc)
        rc = nesting_check_again(b->store, &b->options.place);
    if (!rc)
        rc = publish_tags(b);
    if (!rc)
        rc = lease_renew(b->lease);
    if (!rc)
        rc = lease_check_held(b->lease, lapses);
    if (rc)
        return rc;
    bool existed = found == REPOSITORY_WHOLE;
    struct upload_counts counts = upload_counts(b->upload);
    r->packs_new = counts.packs_new;
    r->packs_reused = counts.packs_reused;
    r->objects_new = counts.objects_new + !existed;
    r->objects_healed = counts.objects_healed + (found == REPOSITORY_DAMAGED);
    r->bytes_uploaded = counts.bytes + (existed ? 0 : document.len);
    return 0;
}
