/* The filesystem's metadata is pinned while its image is served: opening any file reads it first. The chunks are found
 * by the index nodes that are cached; no store is asked. */
#include "image/warm/warm_internal.h"

#include <errno.h>

#include "base/map.h"

/* Called for a chunk of the metadata. A negative value ends the walk. */
typedef int metadata_visit(void *arg, const struct digest *chunk);

static int each_chunk(struct image *img, metadata_visit *visit, void *arg)
{
    struct warm_part parts[2];
    struct image_cursor cursor;
    uint64_t run;
    int rc = 0;
    warm_metadata_parts(&img->manifest, parts);
    image_cursor_init(&cursor, img, NULL);
    for (size_t k = 0; k < GR_ARRAY_SIZE(parts); k++)
        for (uint64_t i = parts[k].first; !rc && i < parts[k].end; i += run) {
            const struct chunk_ref *ref;
            rc = image_cursor_at(&cursor, i, &ref, &run);
            if (!rc && ref)
                rc = visit(arg, &ref->digest);
        }
    image_cursor_release(&cursor);
    return rc;
}

struct pinning {
    struct cache *cache;
    uint64_t refused;
};

static int pin(void *arg, const struct digest *chunk)
{
    struct pinning *p = arg;
    p->refused += cache_session_pin(p->cache, chunk) == -EDQUOT;
    return 0;
}

int warm_pin_metadata(struct image *img, uint64_t *out_refused)
{
    struct pinning p = {.cache = img->config.cache};
    int rc = each_chunk(img, pin, &p);
    *out_refused = p.refused;
    return rc;
}

enum { GOES, STAYS };

static int add(void *arg, const struct digest *chunk)
{
    int rc = digest_map_add(arg, chunk, GOES);
    return rc < 0 ? rc : 0;
}

int warm_unpin_begin(struct image *img, struct digest_map *out)
{
    return each_chunk(img, add, out);
}

static int spare(void *arg, const struct digest *chunk)
{
    struct digest_slot *slot = digest_map_find(arg, chunk);
    if (slot)
        slot->value = STAYS;
    return 0;
}

int warm_unpin_spare(struct image *img, struct digest_map *chunks)
{
    return each_chunk(img, spare, chunks);
}

void warm_unpin(struct cache *cache, const struct digest_map *chunks)
{
    for (const struct digest_slot *s = digest_map_next(chunks, NULL); s; s = digest_map_next(chunks, s))
        if (s->value == GOES)
            cache_session_unpin(cache, &s->key);
}
