/* A level's hashes are kept until a node is full; its own hash then goes to the level above. */
#include "format/content_root.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "format/index.h"

struct content_root {
    uint64_t image_size;
    uint32_t chunk_size;
    unsigned levels;
    uint32_t count[INDEX_LEVELS_MAX]; /* hashes of the node in progress */
    struct digest hashes[INDEX_LEVELS_MAX][INDEX_FANOUT];
};

int content_root_new(uint64_t image_size, uint32_t chunk_size, struct content_root **out)
{
    unsigned levels = chunk_size && image_size ? index_levels((image_size - 1) / chunk_size + 1) : 0;
    if (!levels)
        return error_set(-EINVAL, "no image has %llu bytes in chunks of %u", (unsigned long long)image_size,
                         chunk_size);
    struct content_root *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->image_size = image_size;
    c->chunk_size = chunk_size;
    c->levels = levels;
    *out = c;
    return 0;
}

void content_root_free(struct content_root *c)
{
    free(c);
}

/* Empty a level's node and return its hash; zero if it has only holes. */
static struct digest fold(struct content_root *c, unsigned level)
{
    struct digest hash = {{0}};
    bool any = false;
    for (uint32_t i = 0; !any && i < c->count[level]; i++)
        any = !digest_is_zero(&c->hashes[level][i]);
    if (any)
        hash = digest_of(c->hashes[level], c->count[level] * sizeof hash);
    c->count[level] = 0;
    return hash;
}

static void add(struct content_root *c, unsigned level, const struct digest *hash)
{
    struct digest carried = *hash;
    for (; level < c->levels; level++) {
        if (c->count[level] == INDEX_FANOUT) {
            const struct digest full = fold(c, level);
            c->hashes[level][c->count[level]++] = carried;
            carried = full;
            continue;
        }
        c->hashes[level][c->count[level]++] = carried;
        return;
    }
    assert(false && "more chunks than the image has");
}

void content_root_add(struct content_root *c, const struct digest *chunk)
{
    add(c, 0, chunk);
}

struct digest content_root_finish(struct content_root *c)
{
    for (unsigned level = 0; level + 1 < c->levels; level++) {
        const struct digest hash = fold(c, level);
        add(c, level + 1, &hash);
    }
    const struct digest root = fold(c, c->levels - 1);
    return index_content_root(c->image_size, c->chunk_size, &root);
}
