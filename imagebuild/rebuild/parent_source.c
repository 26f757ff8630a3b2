/* Read the data of moved files through image_bytes, which fetches and verifies the chunks. There is neither list nor
 * stat: the content reader calls only source_read. */
#include "imagebuild/rebuild/parent_source.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "repository/read/chunk_read.h"

struct parent_source {
    struct source base;
    struct image_bytes *bytes;
};

static int parent_read(struct source *s, const struct source_read *read)
{
    struct parent_source *p = (struct parent_source *)s;
    return image_bytes_read(p->bytes, read->address + read->offset, read->len, read->dst);
}

static void parent_close(struct source *s)
{
    struct parent_source *p = (struct parent_source *)s;
    image_bytes_free(p->bytes);
    free(p);
}

static const struct source_ops parent_ops = {.read = parent_read, .close = parent_close};

int parent_source_new(struct store *store, const struct manifest *parent, struct source **out)
{
    struct parent_source *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    /* errors of moved files name the store */
    p->base = (struct source){.ops = &parent_ops, .url = store->url};
    int rc = image_bytes_new(store, parent, &p->bytes);
    if (rc) {
        free(p);
        return rc;
    }
    *out = &p->base;
    return 0;
}
