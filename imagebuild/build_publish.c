/* The last step of a build: the manifest, then the unique tag, then the requested tag. Each object refers only to
 * objects that are already in the store. From the unique tag on, the image exists, and gc keeps its objects.
 *
 * While the build stood still its lease may have lapsed, and gc may have removed any of them: so they are looked up
 * before the manifest is put, and again if the lease lapsed meanwhile.
 */
#include "imagebuild/build_internal.h"

#include <string.h>
#include <time.h>

#include "base/error.h"
#include "repository/gc_marks.h"
#include "repository/repository.h"

/* Note in the tag where the image came from. The manifest could not hold it: equal images are one object. */
static int describe(const struct build *b, struct tag *tag)
{
    const struct manifest_counts *counts = &b->result->manifest.counts;
    if (!b->options.provenance)
        return 0;
    struct provenance p = *b->options.provenance;
    p.files = counts->files;
    p.bytes = counts->bytes;
    p.built = tag->created;
    p.parent = tag->parent;
    p.part = b->options.part.number;
    p.part_count = b->options.part.count;
    p.parents = b->parent && !b->resumed ? b->parent->image_count : 0;
    if (b->options.join_at)
        build_join_describe(b, &p);
    return provenance_encode(&p, tag->provenance);
}

/* Publish the build tag and the requested tag. A checkpoint is no image, so the tags never name one as parent. */
static int publish_tags(struct build *b)
{
    struct build_result *r = b->result;
    struct tag tag = {.digest = r->image,
                      .content_root = r->content_root,
                      .created = time(NULL),
                      .source = digest_of(b->identity, strlen(b->identity))};
    if (b->parent && !b->resumed)
        tag.parent = parent_of_tag(b->parent, &r->image);
    int rc = describe(b, &tag);
    if (rc)
        return rc;
    return repository_publish_both(b->store, b->ref->name, b->ref->tag, &tag, b->options.strict_tags, r->unique_tag);
}

/* Take gc's mark off a manifest that was there before. upload_check_present has done so for the other objects. */
static int unmark_manifest(struct build *b)
{
    const struct step step = {.call = build_same_step, .arg = b};
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
    /* what was there before this build, which a second round would find itself */
    enum repository_found found = REPOSITORY_WHOLE, now = REPOSITORY_WHOLE;
    unsigned lapses;
    int rc = manifest_encode(&r->manifest, &document);
    do {
        lapses = lease_lapses(b->lease);
        if (!rc)
            rc = put_manifest(b, &document, &now);
        if (found == REPOSITORY_WHOLE)
            found = now;
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
