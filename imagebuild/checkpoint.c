/* Write and find checkpoints (checkpoint.h). The catalog of a checkpoint grows page by page as nodes come; each
 * checkpoint cuts the page in progress, and rebuilds the levels above from the list of all pages.
 *
 *   pages put:      [0][1][2] ... [n]   [n + 1, in progress]
 *   checkpoint:     finish page n + 1 -> levels over pages 0 .. n + 1 -> index snapshot -> flush -> document
 *
 * Invariant: the document is put last, when everything that it names is in the store.
 */
#include "imagebuild/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "format/manifest.h"
#include "imagebuild/sink/catalog_writer.h"

/* The checkpoints of one build. */
struct checkpoint {
    struct checkpoint_config config;
    uint64_t last; /* address of the last checkpoint */
    uint64_t count;
    bool pending; /* the page in progress has entries */
    struct catalog_page_writer *page;
    VEC(struct catalog_child) pages; /* all pages put so far; owns `first` */
};

struct digest checkpoint_key(const struct checkpoint_identity *id)
{
    char numbers[160];
    int n = snprintf(numbers, sizeof numbers, "granary checkpoint 2\n%s %u %d %zu %" PRIu64 "\n",
                     manifest_fs_name(id->fs), id->chunk_size, id->zstd_level, id->pack_size, id->bytes);
    /* each text is hashed by itself, so that no two identities can run together into the same bytes */
    const char *const texts[] = {id->name, id->tag, id->source};
    struct digest parts[1 + GR_ARRAY_SIZE(texts)];
    parts[0] = digest_of(numbers, (size_t)n);
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++)
        parts[1 + i] = digest_of(texts[i], strlen(texts[i]));
    return digest_of(parts, sizeof parts);
}

/* ------------------------------------------------------------------ finding */

/* A checkpoint that cannot be used is dropped with a warning: the build can start again, which costs only time. */
int checkpoint_find(struct store *s, const struct checkpoint_identity *id, uint64_t data_begin, struct manifest *out)
{
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX);
    const struct digest name = checkpoint_key(id);
    struct checkpoint_doc doc;
    char key[CHECKPOINT_KEY_MAX];
    int rc = store_get_small(s, checkpoint_doc_key(&name, key), &text, NULL);
    if (rc == -ENOENT)
        return 0;
    if (!rc)
        rc = checkpoint_doc_decode(text.data, text.len, &doc);
    if (!rc && (!digest_equal(&doc.key, &name) || doc.image.fs != id->fs || doc.image.chunk_size != id->chunk_size))
        rc = error_set(-EBADMSG, "it belongs to another build");
    if (!rc && doc.image.front_len != data_begin)
        rc = error_set(-EBADMSG, "the source has grown so much that file contents begin elsewhere");
    if (rc == -EBADMSG || rc == -EMSGSIZE) {
        log_warning("build: starts over, since the checkpoint %s cannot be used: %s", key, error_text());
        return 0;
    }
    *out = doc.image;
    return rc ? rc : 1;
}

int checkpoint_hold(struct store *s, const struct checkpoint_identity *id)
{
    const struct digest name = checkpoint_key(id);
    struct store_item item;
    char key[CHECKPOINT_KEY_MAX];
    int rc = store_stat(s, checkpoint_doc_key(&name, key), &item);
    return rc == -ENOENT ? error_set(-EAGAIN,
                                     "build: the checkpoint %s is gone from %s, and what it names may be; nothing was "
                                     "published, run the build again",
                                     key, s->url)
                         : rc;
}

void checkpoint_remove(struct store *s, const struct checkpoint_identity *id)
{
    const struct digest name = checkpoint_key(id);
    char key[CHECKPOINT_KEY_MAX];
    if (store_remove(s, checkpoint_doc_key(&name, key)))
        log_warning("the checkpoint %s could not be removed; gc removes it later: %s", key, error_text());
}

/* ------------------------------------------------------------------ writing */

int checkpoint_new(const struct checkpoint_config *config, struct checkpoint **out)
{
    struct checkpoint *c = calloc(1, sizeof *c);
    if (c)
        c->page = catalog_page_writer_new(0);
    if (!c || !c->page) {
        checkpoint_free(c);
        return error_no_memory();
    }
    c->config = *config;
    *out = c;
    return 0;
}

void checkpoint_free(struct checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->pages.len; i++)
        free((char *)c->pages.items[i].first);
    vec_release(&c->pages);
    catalog_page_writer_free(c->page);
    free(c);
}

void checkpoint_start(struct checkpoint *c, uint64_t end)
{
    c->last = end;
}

/* Finish and put the page in progress, and note it for the levels above. The page writer's `first` lives until its
 * next page only, so it is copied. */
static int end_page(struct checkpoint *c)
{
    CLEANUP_BYTES object = BYTES_INIT(2 * (size_t)CATALOG_PAGE_MAX);
    struct catalog_child child;
    int rc = catalog_page_finish(c->page, &object, &child);
    if (rc)
        return rc;
    c->pending = false;
    char *first = malloc(child.first_len + 1); /* the root's path is empty */
    if (!first)
        return error_no_memory();
    memcpy(first, child.first, child.first_len);
    child.first = first;
    if (vec_push(&c->pages, child)) {
        free(first);
        return error_no_memory();
    }
    return upload_put(c->config.upload, OBJECT_CATALOG, &object, &child.digest);
}

int checkpoint_add(struct checkpoint *c, const struct node *n)
{
    struct catalog_extent extent;
    const struct catalog_entry entry = catalog_entry_of(n, &extent);
    bool full;
    int rc = catalog_page_add(c->page, &entry, &full);
    if (rc)
        return rc;
    c->pending = true;
    return full ? end_page(c) : 0;
}

/* Put the document: a manifest of an image that ends at `end` and has no metadata after its data. */
static int put_document(struct checkpoint *c, uint64_t end, const struct sink_result *r,
                        const struct catalog_root *root)
{
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX);
    const struct checkpoint_doc doc = {.key = checkpoint_key(&c->config.id),
                                       .image = {.fs = c->config.id.fs,
                                                 .size = end,
                                                 .chunk_size = c->config.id.chunk_size,
                                                 .metadata_offset = end,
                                                 .front_len = c->config.data_begin,
                                                 .index_levels = r->index_levels,
                                                 .index_root = r->index_root,
                                                 .deltas = r->deltas,
                                                 .content_root = r->content_root,
                                                 .stored_bytes = r->stored_bytes,
                                                 .catalog_levels = root->levels,
                                                 .catalog_root = root->digest,
                                                 .catalog_len = root->len,
                                                 .catalog_crc = root->crc,
                                                 .catalog_entries = root->entries}};
    char key[CHECKPOINT_KEY_MAX];
    int rc = checkpoint_doc_encode(&doc, &text);
    const struct store_put put = {
        .key = checkpoint_doc_key(&doc.key, key), .data = text.data, .len = text.len, .mode = STORE_PUT_ALWAYS};
    return rc ? rc : store_put(c->config.store, &put);
}

/* The snapshot comes first: it closes chunk and pack even when it cannot describe them, so that a build's addresses
 * and packs do not depend on whether a checkpoint was written. */
int checkpoint_reach(struct checkpoint *c, uint64_t end, uint64_t *out_end)
{
    struct sink_result described;
    struct catalog_root root;
    *out_end = 0;
    if (end - c->last < c->config.id.bytes)
        return 0;
    /* the end moves even if no document is written: addresses must not depend on that */
    *out_end = c->last = GR_ALIGN_UP(end, (uint64_t)c->config.id.chunk_size);
    int rc = sink_snapshot(c->config.sink, c->last, &described);
    if (rc <= 0)
        return rc;
    rc = c->pending ? end_page(c) : 0;
    if (!rc)
        rc = catalog_from_pages(c->pages.items, c->pages.len, c->config.upload, &root);
    if (!rc)
        rc = upload_flush(c->config.upload);
    if (!rc)
        rc = upload_step(c->config.upload); /* renews the lease, or notices that it has lapsed */
    /* gc may have swept what a document would name */
    if (rc || lease_lapses(c->config.lease))
        return rc;
    rc = put_document(c, c->last, &described, &root);
    c->count += !rc;
    return rc;
}

uint64_t checkpoint_count(const struct checkpoint *c)
{
    return c->count;
}
