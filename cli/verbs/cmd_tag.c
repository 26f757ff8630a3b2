/* granary tag IMAGE TAG: gives an image another tag. A tag makes an image needed, so this has to win against a gc that
 * is about to sweep an image without tags: a lease comes first, then the manifest is read again. */
#include <string.h>

#include "base/cancel.h"
#include "cli/verbs/verbs.h"
#include "repository/gc_marks.h"
#include "repository/lease.h"
#include "repository/nesting.h"
#include "repository/repository.h"

struct tag_values {
    struct open_access access;
    bool strict_tags, json;
};

#define AT(field) offsetof(struct tag_values, field), 0, 0

static const struct tag_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct tag_values),
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

/* What cmd_tag_step needs. */
struct tagging {
    struct lease_handle *lease;
    const volatile int *cancel;
};

static int cmd_tag_step(void *arg)
{
    const struct tagging *t = arg;
    int rc = cancel_check(t->cancel);
    return rc ? rc : lease_renew(t->lease);
}

/* The order: lease, manifest, unmark, publish. Each step is needed against a gc that runs at the same time; see below.
 */
static int cmd_tag_run(const struct invocation *inv)
{
    const struct tag_values *v = inv->values;
    const char *tag = inv->operands[1];
    struct image_ref ref;
    if (image_ref_check_name("tag", tag) || image_ref_parse(inv->operands[0], &ref) || open_check_writable(&ref))
        return CLI_USAGE;
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image(inv->operands[0], &v->access, &image);
    if (rc)
        return rc;
    struct store_options options = {0};
    open_store_options(&v->access, &options);
    const struct nesting place = {.options = &options, .is_store = true};
    /* gc may be about to sweep an image without tags. Once the lease exists, either gc spares the image, or it has
     * removed the manifest already and reading it below fails. */
    const volatile int *cancel = interrupt_watch();
    CLEANUP(cleanup_lease_handle) struct lease_handle *lease = NULL;
    rc = lease_begin(image.store, &place, inv->operands[0], cancel, &lease);
    if (!rc)
        rc = repository_manifest(image.store, &image.digest, &image.manifest);
    /* Remove gc's old mark: if the tag is removed later, the grace period must begin then and not at that mark. */
    struct tagging tagging = {.lease = lease, .cancel = cancel};
    const struct step step = {.call = cmd_tag_step, .arg = &tagging};
    if (!rc)
        rc = gc_unmark_image(image.store, &image.digest, &step);
    if (!rc)
        rc = cmd_tag_step(&tagging);
    if (!rc)
        rc = lease_check_held(lease, 0);
    if (rc)
        return rc;
    struct tag fresh = {.digest = image.digest, .content_root = image.manifest.content_root};
    fresh.parent = image.tag.parent;
    fresh.source = image.tag.source;
    memcpy(fresh.provenance, image.tag.provenance, sizeof fresh.provenance);
    rc = repository_publish(image.store, image.ref.name, tag, &fresh, v->strict_tags);
    if (!rc)
        rc = lease_renew(lease);
    if (!rc)
        rc = lease_check_held(lease, 0);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack("{s:o,s:s,s:s,s:o}", "store", json_lossy(image.ref.store), "name", image.ref.name,
                                    "tag", tag, "digest", print_json_digest(&image.digest)));
    char digest[PRINT_DIGEST_MAX];
    printf("%s/%s:%s is now %s\n", image.ref.store, image.ref.name, tag, print_digest(&image.digest, digest));
    return 0;
}

const struct verb verb_tag = {
    .name = "tag",
    .operands = "IMAGE TAG",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Give an image another tag, or move one to it",
    .details = "The way to roll back: 'granary tag STORE/NAME:OLD latest'.",
    .options = rows,
    .values_size = sizeof(struct tag_values),
    .defaults = &defaults,
    .run = cmd_tag_run,
};
