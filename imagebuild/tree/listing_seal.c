/* Seal the listing: records come in path order, those of one path are folded into one, and become nodes with ranks.
 *
 * In path order "a" comes before "a-b", and that before "a/x": a directory's children follow it at some distance. The
 * directories that may still get children are those whose path is a prefix of the current path, byte by byte. They
 * lie on a stack, where an entry needs no path but its length.
 *
 *   current path: a/x/y       stack: "" | a | a/x
 *                 "a-b" was on it while it was current, if it is a directory
 *
 * A directory that was not listed gets its mtime when it leaves the stack and all its children are known.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "imagebuild/tree/listing_internal.h"

/* A directory on the stack, which may still get children. */
struct open_dir {
    size_t path_len;
    size_t parent; /* index on the stack; the root is its own parent */
    uint32_t rank;
    bool implicit;
    uint64_t place; /* of its node (nodes_place) */
    int64_t mtime;  /* if implicit: the newest below it so far */
    uint32_t mtime_nsec;
};

/* The first name of a file that may have several; found by device and inode. */
struct link_file {
    uint64_t hash; /* link_hash; with dev it identifies the inode */
    uint64_t dev;
    uint64_t place; /* of the first name (nodes_place) */
    uint32_t rank;  /* of the first name */
    uint16_t type;  /* S_IFMT: a file replaced by one of another type while listing is two files */
    bool linked;    /* a second name was met */
};

/* State of a merge. */
struct sealer {
    struct listing *listing;
    struct nodes *nodes;
    struct bytes path, value; /* of the path being folded: what counts so far */
    bool folding;             /* path and value are set */
    VEC(struct open_dir) open;
    char before[CATALOG_PATH_MAX]; /* path of the last node */
    size_t before_len;
    struct map links; /* 32 bytes an entry: possibly every file of a dataset has several names */
};

static void sealer_free(struct sealer *s)
{
    nodes_free(s->nodes);
    bytes_release(&s->path);
    bytes_release(&s->value);
    vec_release(&s->open);
    map_release(&s->links);
    free(s);
}
DEFINE_CLEANUP(sealer, struct sealer *, sealer_free)

/* Return the record at the start of a sorter's value, which need not be aligned. */
static struct listing_record record_of(const uint8_t *value)
{
    struct listing_record r;
    memcpy(&r, value, sizeof r);
    return r;
}

/* ------------------------------------------------------------------ one path */

/* Return whether a wins over b, two listed entries of one path. The last comparison decides by all bytes, so that the
 * outcome does not depend on the order of listing. */
static bool is_newer(const struct listing_record *a, const uint8_t *a_value, size_t a_len,
                     const struct listing_record *b, const uint8_t *b_value, size_t b_len)
{
    if (a->mtime != b->mtime)
        return a->mtime > b->mtime;
    if (a->mtime_nsec != b->mtime_nsec)
        return a->mtime_nsec > b->mtime_nsec;
    int order = catalog_path_compare((const char *)a_value + sizeof *a, a->validator_len,
                                     (const char *)b_value + sizeof *b, b->validator_len);
    return order ? order > 0 : catalog_path_compare((const char *)a_value, a_len, (const char *)b_value, b_len) > 0;
}

/* Return whether a wins over b, two entries of one archive. At the same place, the entry wins that has an identity:
 * it was listed again when a second name came. */
static bool is_later(const struct listing_record *a, const struct listing_record *b)
{
    return a->member != b->member ? a->member > b->member : a->link_ino > b->link_ino;
}

/* Name the shard or image that a record's file is from, for a message. */
static bool name_origin(const struct sealer *s, const struct listing_record *r, const uint8_t *value, char out[120])
{
    struct source *source = s->listing->options.source;
    const struct source_entry e = {
        .validator = (const char *)value + sizeof *r, .validator_len = r->validator_len, .link_dev = r->link_dev};
    return source && source_name_origin(source, &e, out, 120);
}

/* Report that a path was listed twice, with the shards or images if the source knows them. */
static int listed_twice(struct sealer *s, const struct listing_record *a, const uint8_t *a_value,
                        const struct listing_record *b, const uint8_t *b_value)
{
    char why[300] = "a path is listed twice", one[120], other[120];
    if (name_origin(s, a, a_value, one) && name_origin(s, b, b_value, other))
        snprintf(why, sizeof why, "a path is listed twice, in %s and in %s", one, other);
    return listing_skip(s->listing, (const char *)s->path.data, s->path.len, why);
}

/* Make a record the one that counts for the current path. */
static int listing_seal_take(struct sealer *s, const struct sorter_record *r)
{
    bytes_clear(&s->value);
    return bytes_append(&s->value, r->value, r->value_len);
}

/* Fold a further record of the current path: a directory wins over a file, a listed entry over an implied one, the
 * newer over the older. */
static int fold(struct sealer *s, const struct sorter_record *sorted)
{
    struct listing_record kept = record_of(s->value.data), r = record_of(sorted->value);
    bool kept_file = kept.mode && !S_ISDIR(kept.mode), file = r.mode && !S_ISDIR(r.mode);
    bool same_archive = r.archive && r.archive == kept.archive, wins;
    const char *path = (const char *)s->path.data;
    int rc = 0;
    if (kept_file != file) {
        rc = listing_skip(s->listing, path, s->path.len, "a file has the name of a directory");
        wins = !file;
    } else if (!r.mode) {
        wins = false;
    } else if (same_archive) {
        wins = is_later(&r, &kept);
    } else {
        rc = file ? listed_twice(s, &kept, s->value.data, &r, sorted->value) : 0;
        wins = !kept.mode || is_newer(&r, sorted->value, sorted->value_len, &kept, s->value.data, s->value.len);
    }
    if (rc)
        return rc;
    const struct listing_record *loser = wins ? &kept : &r;
    /* one place of an archive, listed again, is not data that another entry replaced */
    if (S_ISREG(loser->mode) && !(same_archive && r.member == kept.member))
        s->listing->stats.bytes_replaced += loser->size;
    return wins ? listing_seal_take(s, sorted) : 0;
}

/* ------------------------------------------------------------------ directories */

/* Give an implicit directory the mtime of a newer child. */
static void age(struct open_dir *dir, int64_t mtime, uint32_t mtime_nsec)
{
    if (!dir->implicit || mtime < dir->mtime || (mtime == dir->mtime && mtime_nsec <= dir->mtime_nsec))
        return;
    dir->mtime = mtime;
    dir->mtime_nsec = mtime_nsec;
}

/* Pop the top directory, which gets no more children. */
static int close_top(struct sealer *s)
{
    struct open_dir *dir = &s->open.items[--s->open.len];
    if (dir->implicit && dir->mtime == INT64_MIN)
        dir->mtime = 0; /* an empty root */
    int rc = dir->implicit ? nodes_set_mtime(s->nodes, dir->place, dir->mtime, dir->mtime_nsec) : 0;
    if (s->open.len)
        age(&s->open.items[dir->parent], dir->mtime, dir->mtime_nsec);
    return rc;
}

/* Pop the directories that the path is not below; *out: index of its parent on the stack. */
static int find_parent(struct sealer *s, const char *path, size_t len, size_t *out)
{
    size_t shared = 0, common = GR_MIN(len, s->before_len);
    while (shared < common && path[shared] == s->before[shared])
        shared++;
    while (s->open.items[s->open.len - 1].path_len > shared) {
        int rc = close_top(s);
        if (rc)
            return rc;
    }
    const char *slash = memrchr(path, '/', len);
    size_t parent_len = slash ? (size_t)(slash - path) : 0, i = s->open.len - 1;
    while (s->open.items[i].path_len != parent_len) {
        assert(i); /* listing_add made records for all directories above a path */
        i--;
    }
    *out = i;
    return 0;
}

/* ------------------------------------------------------------------ nodes */

/* Distinct inodes of one device never collide, which is the usual case. */
static uint64_t link_hash(uint64_t dev, uint64_t ino)
{
    return ino + dev * 0x9E3779B97F4A7C15u;
}

/* Compare what the hash does not cover; with equal devices, equal hashes mean equal inodes. */
static bool link_file_is(const void *file, const void *first)
{
    const struct link_file *a = file, *b = first;
    return a->dev == b->dev && a->type == b->type;
}

static const struct map_type link_files = {.size = sizeof(struct link_file), .is = link_file_is};

/* Find the first name of a hard-linked file, or make n the first. The others link to it. */
static int resolve_link(struct sealer *s, struct node *n, const struct listing_record *r)
{
    struct link_file first = {.hash = link_hash(r->link_dev, r->link_ino),
                              .dev = r->link_dev,
                              .place = nodes_place(s->nodes),
                              .rank = n->rank,
                              .type = (uint16_t)(n->mode & S_IFMT)};
    struct link_file *file = map_find(&s->links, &link_files, first.hash, &first);
    if (!file) {
        if (map_reserve(&s->links, &link_files, 1))
            return error_no_memory();
        map_put(&s->links, &link_files, &first);
        return 0;
    }
    n->link = file->rank;
    n->linked = true;
    n->plan = NODE_READ; /* the first name's plan decides */
    n->address = 0;
    if (file->linked)
        return 0;
    file->linked = true;
    return nodes_set_linked(s->nodes, file->place);
}

/* Count a node; hard-linked data counts once. */
void listing_stats_count(struct listing_stats *stats, const struct node *n)
{
    if (S_ISDIR(n->mode))
        stats->directories++;
    else if (n->link != n->rank)
        stats->hard_links++;
    else if (S_ISREG(n->mode))
        stats->files++;
    else if (S_ISLNK(n->mode))
        stats->symlinks++;
    else
        stats->others++;
    if (S_ISREG(n->mode) && n->link == n->rank)
        stats->bytes += n->size;
}

/* Return the node of a record. A directory that was not listed gets the attributes of options.directory. */
static struct node node_of(const struct sealer *s, const struct listing_record *r, uint32_t rank)
{
    const char *rest = (const char *)s->value.data + sizeof *r;
    const struct listing_directory *made = &s->listing->options.directory;
    uint32_t made_mode = S_IFDIR | (made->mode ? made->mode : 0755);
    return (struct node){
        .rank = rank,
        .link = rank,
        .implicit = !r->mode,
        .mode = (uint16_t)(r->mode ? r->mode : made_mode),
        .uid = r->mode ? r->uid : made->uid,
        .gid = r->mode ? r->gid : made->gid,
        .rdev = r->rdev,
        .mtime = r->mtime,
        .mtime_nsec = r->mtime_nsec,
        .size = r->size,
        .plan = r->written.address ? NODE_KEEP : NODE_READ,
        .address = r->written.address,
        .content = r->written.content,
        .path = (const char *)s->path.data,
        .path_len = s->path.len,
        .validator = rest,
        .validator_len = r->validator_len,
        .target = rest + r->validator_len,
        .target_len = r->target_len,
        .xattrs = rest + r->validator_len + r->target_len,
        .xattrs_len = r->xattrs_len,
    };
}

/* Push a directory. An implicit one begins older than anything that can be below it. */
static int listing_seal_open_dir(struct sealer *s, const struct node *n, size_t parent, uint64_t place)
{
    struct open_dir dir = {.path_len = n->path_len,
                           .parent = parent,
                           .rank = n->rank,
                           .implicit = n->implicit,
                           .place = place,
                           .mtime = n->implicit ? INT64_MIN : n->mtime,
                           .mtime_nsec = n->mtime_nsec};
    return vec_push(&s->open, dir);
}

/* Emit the current path, with what its records were folded into, as the next node. */
static int listing_seal_emit(struct sealer *s)
{
    struct listing_record r = record_of(s->value.data);
    if (nodes_count(s->nodes) >= UINT32_MAX - 1)
        return error_set(-EINVAL, "an image holds at most %u paths; build several", UINT32_MAX - 1);
    struct node n = node_of(s, &r, (uint32_t)nodes_count(s->nodes));
    size_t parent = 0;
    int rc = n.path_len ? find_parent(s, n.path, n.path_len, &parent) : 0;
    if (!rc && r.link_ino)
        rc = resolve_link(s, &n, &r);
    if (rc)
        return rc;
    uint64_t place = nodes_place(s->nodes);
    n.parent = n.path_len ? s->open.items[parent].rank : NODE_ROOT;
    rc = nodes_add(s->nodes, &n);
    if (rc)
        return rc;
    /* the root's path is empty, and its buffer may be NULL */
    memcpy(s->before, s->path.data ? s->path.data : (const uint8_t *)"", n.path_len);
    s->before_len = n.path_len;
    listing_stats_count(&s->listing->stats, &n);
    if (S_ISDIR(n.mode))
        return listing_seal_open_dir(s, &n, parent, place);
    age(&s->open.items[parent], n.mtime, n.mtime_nsec);
    return 0;
}

/* Fold a record into the current path, or emit that path and begin the next. */
static int next_record(struct sealer *s, const struct sorter_record *r)
{
    if (s->folding && s->path.len == r->key_len && (!r->key_len || !memcmp(s->path.data, r->key, r->key_len)))
        return fold(s, r);
    int rc = s->folding ? listing_seal_emit(s) : 0;
    if (rc)
        return rc;
    s->folding = true;
    bytes_clear(&s->path);
    rc = bytes_append(&s->path, r->key, r->key_len);
    return rc ? rc : listing_seal_take(s, r);
}

int listing_seal(struct listing *l, struct nodes **out)
{
    CLEANUP(cleanup_sealer) struct sealer *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->listing = l;
    s->path.max = CATALOG_PATH_MAX;
    s->value.max = SORTER_RECORD_MAX;
    int rc = nodes_new(&(struct scratch_config){.dir = l->options.dir}, &s->nodes);
    if (!rc)
        rc = sorter_sort(l->sorter);
    struct sorter_record r;
    while (!rc && (rc = sorter_next(l->sorter, &r)) > 0)
        rc = next_record(s, &r);
    sorter_free(steal_ptr(&l->sorter));
    if (!rc)
        rc = listing_seal_emit(s); /* at least the root */
    while (!rc && s->open.len)
        rc = close_top(s);
    if (!rc)
        rc = nodes_end(s->nodes);
    if (rc)
        return rc;
    *out = steal_ptr(&s->nodes);
    return 0;
}
