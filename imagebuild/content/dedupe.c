/* A direct-mapped table, indexed by the digest: a newer file replaces an older one in its slot. So a lookup depends
 * only on the files before it, in an order that is the same in every build of the same source. That matters, because
 * a shared address is part of the image's digest. A file that was replaced costs only space: an equal file is
 * written again. */
#include "imagebuild/content/dedupe.h"

#include <stdlib.h>

#include "base/le.h"

/* A file that was placed. */
struct entry {
    struct digest content;
    uint64_t size, address; /* address 0: an empty slot */
};

struct dedupe {
    struct entry entries[DEDUPE_SLOTS];
};

struct dedupe *dedupe_new(void)
{
    return calloc(1, sizeof(struct dedupe)); /* pages that are never touched cost no memory */
}

void dedupe_free(struct dedupe *d)
{
    free(d);
}

/* A SHA-256 is uniform, so a part of it serves as the hash. */
static size_t slot_of(const struct digest *content)
{
    return le32_get(content->b) % DEDUPE_SLOTS;
}

uint64_t dedupe_find(const struct dedupe *d, const struct digest *content, uint64_t size)
{
    const struct entry *e = &d->entries[slot_of(content)];
    return e->address && e->size == size && digest_equal(&e->content, content) ? e->address : 0;
}

void dedupe_add(struct dedupe *d, const struct digest *content, uint64_t size, uint64_t address)
{
    d->entries[slot_of(content)] = (struct entry){.content = *content, .size = size, .address = address};
}
