/* A join: a build whose files are those of its parents, all of them, where they are. The parents are laid end to end as
 * for any build upon several; the source is what their catalogs and inodes say (join/); every file is kept.
 *
 *   parent_open -> size -> fs_*_new -> place -> list -> (nothing is read) -> metadata, index, catalog -> publish
 *
 * ext4's front, whose size depends on the number of groups, must be known before the images can be placed after it. So
 * the filesystem is opened before the listing, with the paths and bytes that the manifests count: the listing has no
 * more.
 */
#include "imagebuild/build_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/join/join.h"
#include "repository/repository.h"

int build_join_name(struct build *b)
{
    for (size_t i = 0; i < b->options.parent_count; i++) {
        int rc = join_check_directory(b->options.join_at[i]);
        if (rc)
            return rc;
    }
    b->identity = strdup("granary join");
    return b->identity ? 0 : error_no_memory();
}

void build_join_size(const struct build *b, struct fs_config *out)
{
    out->nodes = 1;
    for (size_t i = 0; i < b->parent->image_count; i++) {
        out->nodes += b->parent->images[i].manifest.catalog_entries;
        /* the directories above the image's root */
        for (const char *at = b->options.join_at[i]; *at; at += strcspn(at, "/"), at += strspn(at, "/"))
            out->nodes++;
    }
    out->bytes = parent_whole_size(b->parent);
    out->parent_size = out->parent_data_end = 0;
}

/* ------------------------------------------------------------------ parts of one source */

/* Return the reference by digest to an image that is joined. */
static struct image_ref pinned(const struct parent_image *image)
{
    struct image_ref ref = image->found;
    ref.by_digest = true;
    ref.digest = image->digest;
    return ref;
}

/* Read what the tag of an image says about its source. *out_is_part: it says, and proves, that the image is a part. */
static int read_part(struct build *b, const struct parent_image *image, struct provenance *out, bool *out_is_part)
{
    const struct image_ref ref = pinned(image);
    struct tag tag = {.created = 0};
    char *identity = NULL;
    *out_is_part = false;
    int rc = repository_tag_beside(b->store, &ref, &tag);
    if (rc || !tag.provenance[0] || provenance_decode(tag.provenance, out) || !out->listed)
        return rc;
    if (asprintf(&identity, "%s part %llu/%llu", out->sources[0], (unsigned long long)out->part,
                 (unsigned long long)out->part_count) < 0)
        return error_no_memory();
    /* the provenance proves nothing, and has no passwords and queries; the digest is of the address as it was given */
    const struct digest source = digest_of(identity, strlen(identity));
    *out_is_part = out->part_count && digest_equal(&source, &tag.source);
    free(identity);
    return 0;
}

/* If the images are all parts of one source, at the root, their join is an image of that source: the next build from
 * there finds it as its parent, under any tag. */
static int name_source_of_parts(struct build *b)
{
    const size_t count = b->parent->image_count;
    CLEANUP_FREE bool *seen = calloc(count, sizeof *seen);
    CLEANUP_FREE struct provenance *p = calloc(1, sizeof *p);
    CLEANUP_FREE char *source = NULL;
    if (!seen || !p)
        return error_no_memory();
    for (size_t i = 0; i < count; i++) {
        bool is_part;
        if (*b->options.join_at[i])
            return 0;
        int rc = read_part(b, &b->parent->images[i], p, &is_part);
        if (rc)
            return rc;
        if (!is_part || p->part_count != count || p->part >= count || seen[p->part] ||
            (source && strcmp(source, p->sources[0]) != 0))
            return 0;
        seen[p->part] = true;
        if (!source && !(source = strdup(p->sources[0])))
            return error_no_memory();
    }
    free(b->identity);
    b->identity = steal_ptr(&source);
    return 0;
}

/* ------------------------------------------------------------------ placing, and the source */

/* Refuse to move a tag that no join made: without the new image's name, the last part would be taken for it. */
static int check_moved_tag(const struct build *b)
{
    const struct image_ref *ref = b->ref;
    struct tag tag;
    int rc = repository_read_tag(b->store, ref->name, ref->tag, &tag);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    CLEANUP_FREE struct provenance *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    const bool listed = tag.provenance[0] && !provenance_decode(tag.provenance, p) && p->listed;
    if (listed && strstr(p->sources[0], "@sha256:")) /* as build_join_describe writes them */
        return 0;
    return error_set(-EEXIST,
                     "join: %s/%s:%s is an image that no join made, and would be replaced; name the new image last, or "
                     "remove that tag first: granary rm %s/%s:%s",
                     ref->store, ref->name, ref->tag, ref->store, ref->name, ref->tag);
}

int build_join_open(struct build *b)
{
    const struct join_config join = {.store = b->store,
                                     .images = b->parent->images,
                                     .at = b->options.join_at,
                                     .count = b->parent->image_count,
                                     .dir = b->options.tmpdir,
                                     .step = {.call = build_same_step, .arg = b}};
    int rc = check_moved_tag(b);
    if (!rc)
        rc = parent_whole_place(b->parent, b->fs->data_begin, b->fs->data_max, b->fs->limit);
    if (!rc)
        rc = name_source_of_parts(b);
    if (!rc)
        rc = join_source_open(&join, &b->joined);
    b->source = b->joined;
    return rc;
}

void build_join_take(struct build *b)
{
    const struct manifest_counts *counts = &b->result->manifest.counts;
    b->ingested.written_end = parent_whole_end(b->parent);
    b->result->rebuild = (struct build_rebuild){
        .parents = b->parent->image_count, .unchanged = counts->files, .bytes_kept = counts->bytes};
    b->progress.bytes_total = 0;
}

void build_join_describe(const struct build *b, struct provenance *out)
{
    char text[IMAGE_REF_MAX];
    out->listed = 0;
    out->source_count = 0;
    for (size_t i = 0; i < b->parent->image_count; i++) {
        const struct image_ref ref = pinned(&b->parent->images[i]);
        provenance_add_source(out, image_ref_text(&ref, text));
    }
}
