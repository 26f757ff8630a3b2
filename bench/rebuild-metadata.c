/* What a day of changes makes a build write besides file data: chunks of metadata and pages of the catalog that differ
 * from the parent's, and their bytes. A source that makes up its files is built once, then once upon that image for
 * each kind of change; one file in PER is changed, new or removed. Then ten days follow one another, each with other
 * files changed, and ten with other new ones. A file has a few bytes of its own, so that the catalog has digests and
 * extents as that of real files has.
 *
 * rebuild-metadata FILES STORE TMPDIR
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/map.h"
#include "base/text.h"
#include "format/object.h"
#include "imagebuild/build.h"
#include "repository/read/catalog_read.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"

enum { DIRECTORY = 1000, FILE_SIZE = 100, PER = 100, DAYS = 10, SPREAD = 1, NEW_SPREAD = 3 };

enum what { CHANGED, NEW, REMOVED };

/* The directory of a changed or new file is one of PER, or any. */
struct change {
    const char *name;
    enum what what;
    bool whole_directories;
};

static const struct change changes[] = {
    {"nothing", CHANGED, false},
    [SPREAD] = {"changed, spread", CHANGED, false},
    {"changed, in whole directories", CHANGED, true},
    [NEW_SPREAD] = {"new, spread", NEW, false},
    {"new, in new directories", NEW, true},
    {"removed, spread", REMOVED, false},
    {"removed, in whole directories", REMOVED, true},
};

struct synthetic {
    struct source source;
    uint64_t files;
    const struct change *change; /* NULL: the first day */
    unsigned days;               /* that changed something, each its own files */
};

/* ------------------------------------------------------------------ the source */

/* Is i one of the files that the days change, or beside which a new one lies? */
static bool is_touched(const struct synthetic *s, uint64_t i)
{
    uint64_t what = s->change && s->change->whole_directories ? i / DIRECTORY : i;
    return s->change && s->change != changes && (what * UINT64_C(0x9E3779B97F4A7C15) >> 32) % PER < s->days;
}

static int visit_file(source_visit *visit, void *arg, const char *path, bool later)
{
    char validator[80];
    struct source_entry e = {.path = path, .path_len = strlen(path), .mode = S_IFREG | 0644, .size = FILE_SIZE};
    struct digest version = digest_of(path, e.path_len - later);
    e.mtime = 1700000000 + version.b[0] * 1000 + version.b[1] + (later ? 100000000 : 0);
    e.mtime_nsec = (uint32_t)(version.b[2] * 3906250);
    e.validator = validator;
    e.validator_len =
        (size_t)snprintf(validator, sizeof validator, "%" PRId64 ".%09u-%d", e.mtime, e.mtime_nsec, FILE_SIZE);
    return visit(arg, &e);
}

static int rebuild_metadata_list(struct source *source, source_visit *visit, void *arg)
{
    const struct synthetic *s = (struct synthetic *)source;
    int rc = 0;
    for (uint64_t i = 0; i < s->files && !rc; i++) {
        bool touched = is_touched(s, i), is_new = touched && s->change->what == NEW;
        char path[80];
        if (touched && s->change->what == REMOVED)
            continue;
        snprintf(path, sizeof path, "train/class-%06" PRIu64 "/image-%09" PRIu64 ".jpg", i / DIRECTORY, i);
        rc = visit_file(visit, arg, path, touched && !is_new);
        if (rc || !is_new)
            continue;
        const char *more = s->change->whole_directories ? "-more" : "";
        snprintf(path, sizeof path, "train/class-%06" PRIu64 "%s/image-%09" PRIu64 "-new.jpg", i / DIRECTORY, more, i);
        rc = visit_file(visit, arg, path, true);
    }
    return rc;
}

/* Bytes that depend on path and version. */
static int read_content(struct source *source, const struct source_read *r)
{
    struct digest path = digest_of(r->path, r->path_len), version = digest_of(r->validator, r->validator_len);
    uint8_t content[FILE_SIZE];
    for (int i = 0; i < FILE_SIZE; i++)
        content[i] = path.b[i % DIGEST_SIZE] ^ version.b[i % DIGEST_SIZE];
    memcpy(r->dst, content + r->offset, r->len);
    return 0;
}

static const struct source_ops ops = {.list = rebuild_metadata_list, .read = read_content};

/* ------------------------------------------------------------------ what an image consists of */

/* Chunks of metadata by where they are stored, and pages by their names; value: bytes in the store. */
struct parts {
    struct store *store;
    const struct manifest *m;
    struct digest_map chunks, pages;
};

static struct digest place_of(const struct chunk_ref *ref)
{
    char text[DIGEST_HEX_SIZE + 16], hex[DIGEST_HEX_SIZE];
    int len = snprintf(text, sizeof text, "%s %u", digest_hex(&ref->object, hex), ref->offset);
    return digest_of(text, (size_t)len);
}

static int add_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct parts *p = arg;
    const struct manifest *m = p->m;
    for (uint64_t i = 0; chunks && i < count; i++) {
        uint64_t begin = (first + i) * m->chunk_size, end = begin + m->chunk_size;
        bool metadata =
            begin < m->front_len || (end > m->metadata_offset && begin < m->metadata_offset + m->metadata_len);
        const struct digest place = place_of(&chunks[i]);
        if (metadata && !chunk_is_hole(&chunks[i]) && digest_map_add(&p->chunks, &place, chunks[i].stored_len) < 0)
            return -1;
    }
    return 0;
}

static int add_page(void *arg, const struct digest *object)
{
    struct parts *p = arg;
    char key[OBJECT_KEY_MAX];
    struct store_item item;
    int rc = store_stat(p->store, object_key(OBJECT_CATALOG, object, key), &item);
    return rc ? rc : GR_MIN(digest_map_add(&p->pages, object, (int64_t)item.size), 0);
}

static int take_apart(struct store *store, const struct manifest *m, struct parts *out)
{
    const struct index_walk_ops walk = {.chunks = add_chunks};
    *out = (struct parts){.store = store, .m = m};
    int rc = index_walk(store, m, &walk, out);
    return rc ? rc : catalog_walk_pages(store, m, add_page, out);
}

struct sum {
    uint64_t count, bytes;
};

/* All of `of`, without those in `but` (NULL: none). */
static struct sum sum(const struct digest_map *of, const struct digest_map *but)
{
    struct sum s = {0};
    for (const struct digest_slot *slot = NULL; (slot = digest_map_next(of, slot));) {
        if (but && digest_map_find(but, &slot->key))
            continue;
        s.count++;
        s.bytes += (uint64_t)slot->value;
    }
    return s;
}

/* "12 of 345, 67890 bytes, 1.2 %" of what the first image has, all of which is stored in full */
static void print_share(const struct digest_map *now, const struct digest_map *before, const struct digest_map *first)
{
    struct sum all = sum(now, NULL), fresh = sum(now, before), full = sum(first, NULL);
    printf(" %" PRIu64 " of %" PRIu64 " | %" PRIu64 " | %.1f %% |", fresh.count, all.count, fresh.bytes,
           100 * (double)fresh.bytes / (double)(full.bytes ? full.bytes : 1));
}

/* ------------------------------------------------------------------ the days */

struct days {
    struct synthetic source;
    struct store *store;
    const char *place, *tmpdir;
    const struct parts *first;
};

/* Build what the source has now, upon parent (NULL: in full). */
static int build_day(struct days *d, const char *tag, const struct image_ref *parent, struct image_ref *out_ref,
                     struct build_result *out)
{
    struct build_options options = {.zstd_level = 3, .tmpdir = d->tmpdir, .no_parent = !parent};
    char image[4096];
    options.parents = parent;
    options.parent_count = parent ? 1 : 0;
    snprintf(image, sizeof image, "%s/synthetic:%s", d->place, tag);
    int rc = image_ref_parse(image, out_ref);
    return rc ? rc : build_run(&d->source.source, d->store, out_ref, &options, out);
}

static void parts_release(struct parts *p)
{
    digest_map_release(&p->chunks);
    digest_map_release(&p->pages);
}

/* Build a day upon parent, whose parts are *before, and print what differs. The caller releases *out_now. */
static int print_day(struct days *d, const char *name, const char *tag, const struct image_ref *parent,
                     const struct parts *before, struct image_ref *out_ref, struct parts *out_now)
{
    struct build_result day;
    int rc = build_day(d, tag, parent, out_ref, &day);
    if (!rc)
        rc = take_apart(d->store, &day.manifest, out_now);
    if (rc)
        return rc;
    printf("| %s |", name);
    print_share(&out_now->chunks, &before->chunks, &d->first->chunks);
    print_share(&out_now->pages, &before->pages, &d->first->pages);
    printf(" %" PRIu64 " | %.1f |\n", day.bytes_uploaded, day.seconds);
    fflush(stdout);
    return 0;
}

/* A day of each kind, all upon the first image. */
static int each_kind(struct days *d, const struct image_ref *first, const struct parts *before)
{
    int rc = 0;
    d->source.days = 1;
    for (size_t i = 0; i < GR_ARRAY_SIZE(changes) && !rc; i++) {
        struct image_ref ref;
        struct parts now;
        char tag[16];
        d->source.change = &changes[i];
        snprintf(tag, sizeof tag, "kind%zu", i);
        rc = print_day(d, changes[i].name, tag, first, before, &ref, &now);
        if (!rc)
            parts_release(&now);
    }
    return rc;
}

/* A kind of change, day after day. */
static int many_days(struct days *d, const struct change *change, const struct image_ref *first,
                     const struct parts *before)
{
    struct image_ref refs[2] = {*first};
    struct parts parts[2] = {*before};
    int rc = 0;
    d->source.change = change;
    for (unsigned i = 1; i <= DAYS && !rc; i++) {
        unsigned now = i % 2, yesterday = !now;
        char tag[16], name[32];
        d->source.days = i;
        snprintf(tag, sizeof tag, "day%u-%u", (unsigned)(change - changes), i);
        snprintf(name, sizeof name, "%s, day %u", change->name, i);
        rc = print_day(d, name, tag, &refs[yesterday], &parts[yesterday], &refs[now], &parts[now]);
        if (i > 1 && !rc)
            parts_release(&parts[yesterday]);
    }
    return rc;
}

static int run(struct days *d)
{
    struct image_ref first;
    struct build_result full;
    struct parts parts;
    char at[4096];
    snprintf(at, sizeof at, "%s/synthetic", d->place);
    int rc = image_ref_parse(at, &first);
    if (!rc)
        rc = store_open(first.store, &(struct store_options){0}, &d->store);
    if (!rc)
        rc = build_day(d, "first", NULL, &first, &full);
    if (!rc)
        rc = take_apart(d->store, &full.manifest, &parts);
    if (rc)
        return rc;
    d->first = &parts;
    printf("%" PRIu64 " files, one in %d changed, new or removed; built in full in %.1f s\n\n"
           "| day | chunks of metadata | bytes | | pages of the catalog | bytes | | uploaded in all | s |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
           d->source.files, PER, full.seconds);
    rc = each_kind(d, &first, &parts);
    if (!rc)
        rc = many_days(d, &changes[SPREAD], &first, &parts);
    return rc ? rc : many_days(d, &changes[NEW_SPREAD], &first, &parts);
}

int main(int argc, char **argv)
{
    struct days d = {.source = {.source = {.ops = &ops, .url = "synthetic"}}};
    if (argc != 4 || text_parse_uint("FILES", argv[1], 1, UINT32_MAX, &d.source.files)) {
        fprintf(stderr, "usage: rebuild-metadata FILES STORE TMPDIR\n");
        return 2;
    }
    d.place = argv[2];
    d.tmpdir = argv[3];
    if (run(&d)) {
        fprintf(stderr, "rebuild-metadata: %s\n", error_text());
        return 1;
    }
    return 0;
}
