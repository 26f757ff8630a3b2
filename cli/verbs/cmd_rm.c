/* granary rm IMAGE: removes a tag. The bytes stay until gc finds that no image needs them.
 *
 * The tag is resolved first, only to report which image it named. A tag that cannot be read is removed all the same: a
 * damaged tag is one that its owner wants to get rid of.
 */
#include "base/error.h"
#include "base/log.h"
#include "cli/verbs/verbs.h"
#include "repository/repository.h"

struct rm_values {
    struct open_access access;
    bool json;
};

static const struct rm_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct rm_values),
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct rm_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Only tags are removed. A digest is refused: other tags may name the same image. */
static int cmd_rm_run(const struct invocation *inv)
{
    const struct rm_values *v = inv->values;
    struct image_ref ref;
    if (image_ref_parse(inv->operands[0], &ref) || open_check_writable(&ref))
        return CLI_USAGE;
    if (ref.by_digest)
        return options_wrong(
            "%s: only tags are removed; remove every tag that points at the digest ('granary images %s "
            "--all' lists them), then run 'granary gc %s'",
            inv->operands[0], ref.store, ref.store);
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct digest digest = {{0}};
    int rc = open_image_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    rc = repository_resolve(store, &ref, &digest, NULL); /* -ENOENT: no such tag; digest is for the output */
    if (rc == -EBADMSG) {
        log_warning("%s", error_text()); /* no reason to stop: a broken tag is one to remove */
        rc = 0;
    }
    if (!rc)
        rc = repository_remove_tag(store, ref.name, ref.tag);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack("{s:o,s:s,s:s,s:o}", "store", json_lossy(ref.store), "name", ref.name, "tag",
                                    ref.tag, "digest", print_json_digest(&digest)));
    char text[PRINT_DIGEST_MAX];
    printf("removed %s/%s:%s, which was %s\n", ref.store, ref.name, ref.tag,
           digest_is_zero(&digest) ? "damaged" : print_digest(&digest, text));
    printf("  'granary gc' frees its space once no other tag keeps it; 'granary images %s %s --all' lists them\n",
           ref.store, ref.name);
    return 0;
}

const struct verb verb_rm = {
    .name = "rm",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Remove a tag of an image; gc reclaims the space",
    .options = rows,
    .values_size = sizeof(struct rm_values),
    .defaults = &defaults,
    .run = cmd_rm_run,
};
