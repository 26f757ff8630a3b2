/* Each image is listed by itself: its inodes are read and those kept that say more than the catalog does; then the
 * catalog is walked, in path order, in step with them.
 *
 *   catalog:  a (directory)   a-b   a/x   b           inodes of erofs:  a-b  a/x  a  b     (struct inodes)
 *                                                     of ext4:          a  a-b  a/x  b
 *
 * erofs numbers a directory when it is complete. So a directory waits on the stack of those whose path is a prefix of
 * the current one, and is passed on when it leaves. The order of entries does not matter to the listing.
 */
#include "imagebuild/join/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "imagebuild/join/join_internal.h"
#include "imagebuild/rebuild/live_map.h"
#include "repository/read/catalog_read.h"

enum { STEP_ENTRIES = 4096, NAME_SHOWN = 200 };

/* Device numbers of the entries: the image's number is added. They differ from those of other sources. */
#define DEVICE_OF_IMAGES (UINT64_C(3) << 62)

struct images {
    struct source base;
    struct join_config config;
};

/* A directory that is not complete. */
struct open_dir {
    size_t path_len;
    struct catalog_entry entry; /* without pointers, but for: */
    char validator[CATALOG_VALIDATOR_MAX];
};

/* The listing of an image. */
struct image_listing {
    const struct images *images;
    size_t number; /* of the image */
    struct inodes *inodes;
    uint64_t next; /* number of the next inode */
    VEC(struct open_dir) open;
    struct bytes above;       /* path of the directory on top of the stack, and so of all below it */
    struct bytes path;        /* of the entry that is passed on, in the new image */
    struct digest_map linked; /* first names of files with several: the inode's number, from 1 */
    source_visit *visit;
    void *arg;
};

static void image_listing_release(struct image_listing *l)
{
    inodes_free(l->inodes);
    vec_release(&l->open);
    bytes_release(&l->above);
    bytes_release(&l->path);
    digest_map_release(&l->linked);
}

static const struct parent_image *image_of(const struct image_listing *l)
{
    return &l->images->config.images[l->number];
}

/* The catalog of the image is not what a build writes. */
static int wrong(const struct catalog_entry *e, const char *what)
{
    return error_set(-EBADMSG, "'%.*s' %s", (int)GR_MIN(e->path_len, (size_t)NAME_SHOWN), e->path, what);
}

/* ------------------------------------------------------------------ one entry */

/* Make l->path the path in the new image. */
static int place(struct image_listing *l, const char *path, size_t len)
{
    const char *at = l->images->config.at[l->number];
    at += strspn(at, "/");
    size_t at_len = strlen(at);
    while (at_len && at[at_len - 1] == '/')
        at_len--;
    bytes_clear(&l->path);
    int rc = bytes_append(&l->path, at, at_len);
    if (!rc && at_len && len)
        rc = bytes_append(&l->path, "/", 1);
    return rc ? rc : bytes_append(&l->path, path, len);
}

/* Say where the data of a file lies in the new image: in one piece, among the chunks that are taken over. */
static int place_data(const struct image_listing *l, const struct catalog_entry *e, struct source_entry *out)
{
    const struct parent_image *image = image_of(l);
    const struct manifest *m = &image->manifest;
    if (!S_ISREG(e->mode) || !e->size)
        return 0;
    if (e->extent_count != 1 || e->extents[0].len != e->size || digest_is_zero(&e->content))
        return wrong(e, "is not in one piece, so no build of this program made the image; build it again");
    const uint64_t first = parent_data_begin(m);
    const uint64_t offset = e->extents[0].offset;
    if (offset % LIVE_BLOCK || offset < first || offset > m->metadata_offset || e->size > m->metadata_offset - offset)
        return wrong(e, "lies where no file can be");
    out->address = image->begin + offset;
    out->sha256 = e->content;
    return 0;
}

/* Add what the inode says. */
static int add_extra(struct image_listing *l, const struct catalog_entry *e, uint64_t number, struct source_entry *out)
{
    struct inode_extra extra;
    int rc = inodes_find(l->inodes, e->path, e->path_len, number, &extra);
    if (rc <= 0)
        return rc;
    if (extra.mode != e->mode)
        return wrong(e, "has another mode in the filesystem than in the catalog");
    out->rdev = extra.rdev;
    out->xattrs = extra.xattrs;
    out->xattrs_len = extra.xattrs_len;
    if (S_ISDIR(e->mode) || extra.links < 2)
        return 0;
    const struct digest first = digest_of(e->path, e->path_len);
    out->link_ino = number + 1;
    rc = digest_map_add(&l->linked, &first, (int64_t)out->link_ino);
    return GR_MIN(rc, 0);
}

/* Find the file that a further name belongs to. */
static int find_first(const struct image_listing *l, const struct catalog_entry *e, struct source_entry *out)
{
    const struct digest first = digest_of(e->target, e->target_len);
    const struct digest_slot *slot = digest_map_find(&l->linked, &first);
    if (!slot)
        return wrong(e, "is a further name of a file that the filesystem gives one name only");
    out->link_ino = (uint64_t)slot->value;
    return 0;
}

/* Pass an entry on. number: its inode's; not used for a further name. */
static int pass_on(struct image_listing *l, const struct catalog_entry *e, uint64_t number)
{
    struct source_entry out = source_entry_of_catalog(e);
    out.link_dev = DEVICE_OF_IMAGES + l->number;
    int rc = e->hard_link ? find_first(l, e, &out) : add_extra(l, e, number, &out);
    if (!rc && !e->hard_link)
        rc = place_data(l, e, &out);
    if (!rc)
        rc = place(l, e->path, e->path_len);
    if (rc)
        return rc;
    out.path = l->path.len ? (const char *)l->path.data : "";
    out.path_len = l->path.len;
    return l->visit(l->arg, &out);
}

/* ------------------------------------------------------------------ directories that wait (erofs) */

/* Pass on the directory on top of the stack: it is complete. Its path is a prefix of `above`. */
static int close_top(struct image_listing *l)
{
    const struct open_dir top = l->open.items[--l->open.len];
    struct catalog_entry e = top.entry;
    e.path = l->above.len ? (const char *)l->above.data : "";
    e.path_len = top.path_len;
    e.validator = top.validator;
    return pass_on(l, &e, l->next++);
}

/* Pass on the directories that cannot hold the path or anything after it. path NULL: all. */
static int close_before(struct image_listing *l, const char *path, size_t len)
{
    size_t same = 0, common = path ? GR_MIN(len, l->above.len) : 0;
    int rc = 0;
    while (same < common && l->above.data[same] == (uint8_t)path[same])
        same++;
    while (!rc && l->open.len && (!path || l->open.items[l->open.len - 1].path_len > same))
        rc = close_top(l);
    return rc;
}

/* Put a directory onto the stack. Those below it have a prefix of its path. */
static int open_directory(struct image_listing *l, const struct catalog_entry *e)
{
    struct open_dir dir = {.path_len = e->path_len, .entry = *e};
    dir.entry.path = dir.entry.validator = dir.entry.target = NULL;
    dir.entry.target_len = 0;
    if (e->validator_len)
        memcpy(dir.validator, e->validator, e->validator_len);
    dir.entry.extents = NULL;
    dir.entry.extent_count = 0;
    bytes_clear(&l->above);
    int rc = bytes_append(&l->above, e->path, e->path_len);
    return rc ? rc : vec_push(&l->open, dir);
}

/* ------------------------------------------------------------------ an image */

static int take_entry(struct image_listing *l, const struct catalog_entry *e)
{
    int rc = close_before(l, e->path, e->path_len);
    if (rc)
        return rc;
    if (S_ISDIR(e->mode) && inodes_close_directories(l->inodes))
        return open_directory(l, e);
    return pass_on(l, e, e->hard_link ? 0 : l->next++);
}

static int walk_catalog(struct image_listing *l)
{
    const struct join_config *c = &l->images->config;
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    uint64_t done = 0;
    int rc = catalog_cursor_new(c->store, &image_of(l)->manifest, NULL, 0, CATALOG_CURSOR_AHEAD, &cursor);
    while (!rc && (rc = catalog_cursor_next(cursor, &e)) == 1) {
        rc = take_entry(l, e);
        if (!rc && ++done % STEP_ENTRIES == 0)
            rc = step_take(&c->step);
    }
    if (!rc)
        rc = close_before(l, NULL, 0);
    if (!rc && l->next != inodes_expected(&image_of(l)->manifest))
        rc = error_set(-EBADMSG, "the catalog has other paths than the manifest counts");
    return rc;
}

/* Errors of the listing (visit) name a path; others get the image's name. */
static int list_image(struct image_listing *l)
{
    const struct join_config *c = &l->images->config;
    const struct inodes_config inodes = {
        .store = c->store, .manifest = &image_of(l)->manifest, .dir = c->dir, .step = c->step};
    int rc = inodes_read(&inodes, &l->inodes);
    if (!rc)
        rc = walk_catalog(l);
    if (rc != -EBADMSG && rc != -ENOENT)
        return rc;
    char name[PARENT_IMAGE_NAME_MAX];
    return error_prefix(-EBADMSG, "join: %s cannot be joined", parent_image_name(image_of(l), name));
}

/* ------------------------------------------------------------------ the source */

static int images_list(struct source *base, source_visit *visit, void *arg)
{
    const struct images *s = (const struct images *)base;
    int rc = 0;
    for (size_t i = 0; i < s->config.count && !rc; i++) {
        struct image_listing l CLEANUP(image_listing_release) = {.images = s,
                                                                 .number = i,
                                                                 .above = BYTES_INIT(CATALOG_PATH_MAX),
                                                                 .path = BYTES_INIT(3 * (size_t)CATALOG_PATH_MAX),
                                                                 .visit = visit,
                                                                 .arg = arg};
        rc = list_image(&l);
    }
    return rc;
}

/* Name the image that an entry is from. */
static bool images_name_origin(struct source *base, const struct source_entry *e, char *out, size_t size)
{
    const struct join_config *c = &((const struct images *)base)->config;
    if (e->link_dev < DEVICE_OF_IMAGES || e->link_dev - DEVICE_OF_IMAGES >= c->count)
        return false;
    char name[PARENT_IMAGE_NAME_MAX];
    snprintf(out, size, "%s", parent_image_name(&c->images[e->link_dev - DEVICE_OF_IMAGES], name));
    return true;
}

static void images_close(struct source *base)
{
    free(base);
}

static const struct source_ops images_ops = {
    .list = images_list, .name_origin = images_name_origin, .close = images_close};

int join_check_directory(const char *at)
{
    const char *p = at + strspn(at, "/");
    for (size_t n; *p; p += n) {
        n = strcspn(p, "/");
        if (!n || n > 255 || (n <= 2 && !memcmp(p, "..", n)))
            return error_set(-EINVAL, "'%s' cannot be a directory of the image; write for example data/train", at);
        n += p[n] == '/';
    }
    return 0;
}

int join_source_open(const struct join_config *config, struct source **out)
{
    struct images *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    *s = (struct images){.base = {.ops = &images_ops, .url = "granary join", .near = true}, .config = *config};
    *out = &s->base;
    return 0;
}
