/* Direct-mapped by the digest: the newest file of a slot replaces the older one. So what is found depends only on the
 * order of the files, and that is the same in every build of the same source. */
#include "imagebuild/content/dedupe.h"

#include <stdlib.h>

#include "base/le.h"

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
