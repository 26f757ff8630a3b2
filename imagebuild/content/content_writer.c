/* Walk the planned nodes in step with content_reader_next, which delivers the bytes of those that
 * content_reader_reads.
 *
 *   node:  kept      -> note its digest for dedupe           --+
 *          read      -> equal file known? share its address    +-> final node -> nodes, checkpoint
 *                       else allocate, write into the sink   --+
 *          further name of a hard-linked file -> copy of the first name's node
 *
 * The first name of a hard-linked file comes first in path order. Its final node is remembered by rank until the end:
 * the further names get the same data, or vanish with it.
 */
#include "imagebuild/content/content.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/vec.h"
#include "imagebuild/content/content_internal.h"

/* The outcome for the first name of a hard-linked file. */
struct linked {
    bool vanished;
    bool changed;     /* another version than the listed one was read */
    struct node node; /* path and validator point into text; no xattrs */
    char text[];
};

struct content_writer {
    const struct content_writer_config *config;
    struct content_writer_result result;
    struct content_reader *reader;
    struct dedupe *dedupe;
    struct alloc alloc;
    VEC(struct linked *) linked; /* ascending by rank */
    enum sink_section section;   /* of the file being written */
    bool changed;                /* the current node is another version than the listed one: */
    struct source_version version;
};

/* ------------------------------------------------------------------ one file */

/* Give the node the attributes of the version that was read. Extended attributes stay the listing's. */
static void take_version(struct content_writer *w, struct node *n, const struct source_version *v)
{
    w->version = *v;
    w->changed = true;
    n->size = v->size;
    n->mtime = v->mtime;
    n->mtime_nsec = v->mtime_nsec;
    n->validator = w->version.validator;
    n->validator_len = v->validator_len;
    if (v->have_owner) {
        uint32_t dropped = S_IFMT | (w->config->keep_special ? 0u : (uint32_t)(S_ISUID | S_ISGID));
        n->mode = (uint16_t)(S_IFREG | (v->mode & ~dropped));
        n->uid = v->uid;
        n->gid = v->gid;
    }
}

/* Write a part. A file of one part may share the blocks of an equal file instead. */
static int write_part(struct content_writer *w, struct node *n, const struct content_part *part)
{
    bool candidate = part->first && part->last && part->size <= DEDUPE_SIZE_MAX;
    uint64_t known = candidate ? dedupe_find(w->dedupe, &part->content, part->size) : 0;
    if (known) {
        n->address = known;
        w->result.dedupe_files++;
        w->result.dedupe_bytes += part->size;
        return 0;
    }
    int rc = part->first ? alloc_data(&w->alloc, n->size, &w->section, &n->address) : 0;
    if (rc)
        return rc;
    /* noted before the write: a failed write ends the build */
    if (candidate)
        dedupe_add(w->dedupe, &part->content, part->size, n->address);
    return sink_write(w->config->sink, w->section, n->address + part->offset, part->data, part->len);
}

/* Check the digest that the list of files promised (SOURCE_VALIDATOR_SHA256), if it promised one. */
static int check_promise(const struct node *n)
{
    size_t prefix = strlen(SOURCE_VALIDATOR_SHA256);
    struct digest promised;
    if (n->validator_len <= prefix || memcmp(n->validator, SOURCE_VALIDATOR_SHA256, prefix) != 0)
        return 0;
    if (!digest_parse(n->validator + prefix, n->validator_len - prefix, &promised) &&
        digest_equal(&promised, &n->content))
        return 0;
    return error_set(-EBADMSG, "build: '%.*s' does not have the SHA-256 that the list of files says; correct the list",
                     (int)GR_MIN(n->path_len, (size_t)300), n->path);
}

/* Check data moved from the parent against the digest in the parent's catalog. */
static int check_moved(const struct content_writer *w, const struct node *n, const struct digest *content)
{
    if (n->plan != NODE_MOVE || w->changed || digest_equal(&n->content, content))
        return 0;
    return error_set(-EBADMSG,
                     "build: '%.*s' has other bytes in the parent image than its catalog says; give --parent none, and "
                     "see what granary verify --deep says of the parent",
                     (int)GR_MIN(n->path_len, (size_t)300), n->path);
}

/* Take one part of a node: its version with the first part, its digest with the last. */
static int take_part(struct content_writer *w, struct node *n, const struct content_part *part)
{
    if (part->first && part->version)
        take_version(w, n, part->version);
    int rc = part->last ? check_moved(w, n, &part->content) : 0;
    if (part->last)
        n->content = part->content;
    if (!rc && part->last)
        rc = check_promise(n);
    if (rc)
        return rc;
    if (part->size)
        return write_part(w, n, part);
    n->address = 0;
    return 0;
}

/* Take all parts of n, or set *out_vanished. */
static int take_content(struct content_writer *w, struct node *n, bool *out_vanished)
{
    struct content_part part = {0};
    while (!part.last) {
        int rc = content_reader_next(w->reader, &part);
        if (rc < 0)
            return rc;
        if (!rc || part.rank != n->rank)
            return error_set(-EIO, "build: contents and nodes are not in the same order: a bug, nothing was published");
        *out_vanished = part.vanished;
        if (part.vanished)
            return 0;
        rc = take_part(w, n, &part);
        if (!rc)
            rc = w->config->step(w->config->step_arg, 0, part.len);
        if (rc)
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ hard links */

/* Remember the outcome for a first name, for its further names. */
static int remember(struct content_writer *w, const struct node *n, bool vanished)
{
    struct linked *l = calloc(1, sizeof *l + n->path_len + n->validator_len);
    if (!l || vec_push(&w->linked, l)) {
        free(l);
        return error_no_memory();
    }
    l->vanished = vanished;
    l->changed = w->changed;
    l->node = *n;
    l->node.path = l->text;
    l->node.validator = l->text + n->path_len;
    l->node.xattrs_len = 0;
    memcpy(l->text, n->path, n->path_len);
    if (n->validator_len)
        memcpy(l->text + n->path_len, n->validator, n->validator_len);
    return 0;
}

/* Order of `linked`, for bsearch. */
static int compare_rank(const void *key, const void *item)
{
    uint32_t rank = *(const uint32_t *)key, other = (*(struct linked *const *)item)->node.rank;
    return rank < other ? -1 : rank > other;
}

/* Return whether a version has this size and validator. */
static bool same_version(const struct source_version *v, uint64_t size, const char *validator, size_t len)
{
    return v->size == size && v->validator_len == len && (!len || !memcmp(v->validator, validator, len));
}

/* The first name was read as another version than listed, or is gone. Either the file changed, or the name was given
 * to another file. Check that n still names the same file as the first name; *out_vanished: n is gone. -ESTALE: it
 * does not. */
static int check_further(struct content_writer *w, const struct linked *l, const struct node *n, bool *out_vanished)
{
    struct source *s = w->config->source;
    const struct node *first = &l->node;
    struct source_version now, there;
    for (unsigned i = 0; i < CONTENT_TRIES; i++) {
        int rc = source_stat(s, n->path, n->path_len, &now);
        *out_vanished = rc == -ENOENT;
        if (rc || (!l->vanished && same_version(&now, first->size, first->validator, first->validator_len)))
            return *out_vanished ? 0 : rc;
        rc = source_stat(s, first->path, first->path_len, &there);
        if (rc && rc != -ENOENT)
            return rc;
        if (!rc && !l->vanished && same_version(&now, there.size, there.validator, there.validator_len))
            return 0; /* same file, changed once more */
    }
    return error_set(-ESTALE,
                     "source: '%.*s' and '%.*s' were names of one file when the build began and are not any more; run "
                     "the build again",
                     (int)GR_MIN(n->path_len, (size_t)200), n->path, (int)GR_MIN(first->path_len, (size_t)200),
                     first->path);
}

/* Give n, a further name, the data of the first name. */
static int take_further(struct content_writer *w, struct node *n, bool *out_vanished)
{
    struct linked **found =
        w->linked.len ? bsearch(&n->link, w->linked.items, w->linked.len, sizeof *w->linked.items, compare_rank) : NULL;
    if (!found)
        return error_set(-EIO, "build: a hard link's first name is unknown: a bug, nothing was published");
    struct node same = (*found)->node;
    *out_vanished = false;
    int rc = (*found)->vanished || (*found)->changed ? check_further(w, *found, n, out_vanished) : 0;
    if (rc)
        return rc;
    same.rank = n->rank;
    same.parent = n->parent;
    same.target = same.path;
    same.target_len = same.path_len;
    same.path = n->path;
    same.path_len = n->path_len;
    same.name = n->name;
    same.name_len = n->name_len;
    *n = same;
    return 0;
}

/* ------------------------------------------------------------------ all nodes */

/* Count a final node; hard-linked data counts once. */
static void count(struct manifest_counts *c, const struct node *n)
{
    if (S_ISDIR(n->mode))
        c->directories++;
    else if (n->link != n->rank)
        c->hard_links++;
    else if (S_ISREG(n->mode))
        c->files++;
    else if (S_ISLNK(n->mode))
        c->symlinks++;
    else
        c->others++;
    if (S_ISREG(n->mode) && n->link == n->rank)
        c->bytes += n->size;
}

/* Add a final node, whose data is written, to the checkpoint. Data continues where the checkpoint says. */
static int reach_checkpoint(struct content_writer *w, const struct node *n)
{
    uint64_t end = 0;
    int rc = checkpoint_add(w->config->checkpoint, n);
    if (!rc)
        rc = checkpoint_reach(w->config->checkpoint, alloc_end(&w->alloc), &end);
    if (end)
        alloc_go_on(&w->alloc, end);
    return rc;
}

/* Make one planned node final, unless it vanished. */
static int take_node(struct content_writer *w, struct node *n)
{
    bool vanished = false;
    w->changed = false;
    bool further = n->link != n->rank, read = content_reader_reads(n);
    int rc = further ? take_further(w, n, &vanished) : read ? take_content(w, n, &vanished) : 0;
    if (rc)
        return rc;
    /* new files may share the blocks of a kept one */
    if (!further && !read && S_ISREG(n->mode) && n->address && n->size <= DEDUPE_SIZE_MAX)
        dedupe_add(w->dedupe, &n->content, n->size, n->address);
    if (!further && n->linked)
        rc = remember(w, n, vanished);
    if (!rc)
        rc = w->config->step(w->config->step_arg, S_ISREG(n->mode) && !further, 0);
    if (rc || vanished)
        return rc;
    count(&w->result.counts, n);
    rc = nodes_add(w->result.nodes, n);
    return rc || !w->config->checkpoint ? rc : reach_checkpoint(w, n);
}

/* Make all planned nodes final, in order. */
static int take_nodes(struct content_writer *w)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct node n;
    int rc = nodes_cursor_new(w->config->planned, &cursor);
    while (!rc && (rc = nodes_next(cursor, &n)) == 1)
        rc = take_node(w, &n);
    return rc ? rc : nodes_end(w->result.nodes);
}

/* Open what the run needs. The checkpoint learns where data begins before the first node comes. */
static int content_writer_start(struct content_writer *w)
{
    const struct content_writer_config *c = w->config;
    const struct scratch_config scratch = {.dir = c->dir};
    const struct content_reader_config reader = {.source = c->source,
                                                 .parent = c->parent,
                                                 .nodes = c->planned,
                                                 .jobs = c->jobs,
                                                 .memory = c->memory,
                                                 .strict = c->strict};
    const struct alloc_config alloc = {.live = c->live,
                                       .chunk_size = c->chunk_size,
                                       .data_begin = c->fs->data_begin,
                                       .data_max = c->fs->data_max,
                                       .written_end = c->written_end,
                                       .gaps = c->gaps,
                                       .limit = c->fs->limit};
    alloc_init(&w->alloc, &alloc);
    if (c->checkpoint)
        checkpoint_start(c->checkpoint, alloc_end(&w->alloc));
    w->dedupe = dedupe_new();
    if (!w->dedupe)
        return error_no_memory();
    int rc = nodes_new(&scratch, &w->result.nodes);
    return rc ? rc : content_reader_start(&reader, &w->reader);
}

static void content_writer_release(struct content_writer *w)
{
    content_reader_free(w->reader);
    dedupe_free(w->dedupe);
    for (size_t i = 0; i < w->linked.len; i++)
        free(w->linked.items[i]);
    vec_release(&w->linked);
}

int content_writer_run(const struct content_writer_config *config, struct content_writer_result *out)
{
    struct content_writer w = {.config = config};
    struct error error;
    int rc = content_writer_start(&w);
    if (!rc)
        rc = take_nodes(&w);
    if (w.reader)
        w.result.read = content_reader_counts(w.reader);
    error_take(&error, rc); /* content_writer_release must not replace the sentence */
    content_writer_release(&w);
    if (rc) {
        nodes_free(w.result.nodes);
        return error_restore(&error);
    }
    w.result.data_end = alloc_end(&w.alloc);
    *out = w.result;
    return 0;
}
