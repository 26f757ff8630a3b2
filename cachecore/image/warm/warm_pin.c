/* The filesystem's metadata is pinned while its image is served: opening any file reads it first. The chunks are found
 * by the index nodes that are cached; no store is asked. */
#include "image/warm/warm_internal.h"

#include <errno.h>

#include "base/log.h"

/* Called for a chunk of the metadata. */
typedef void metadata_visit(struct cache *cache, const struct digest *chunk, uint64_t *refused);

static int each_chunk(struct image *img, metadata_visit *visit, uint64_t *refused)
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
                visit(img->config.cache, &ref->digest, refused);
        }
    image_cursor_release(&cursor);
    return rc;
}

static void pin(struct cache *cache, const struct digest *chunk, uint64_t *refused)
{
    *refused += cache_session_pin(cache, chunk) == -EDQUOT;
}

static void unpin(struct cache *cache, const struct digest *chunk, uint64_t *refused)
{
    cache_session_unpin(cache, chunk);
}

int warm_pin_metadata(struct image *img, uint64_t *out_refused)
{
    *out_refused = 0;
    return each_chunk(img, pin, out_refused);
}

void warm_unpin_metadata(struct image *img)
{
    if (each_chunk(img, unpin, NULL))
        log_debug("image: some of its metadata stays pinned: %s", error_text());
}
