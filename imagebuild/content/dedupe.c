/* Direct-mapped by the digest: the newest body of a slot replaces the older. What is found therefore depends on the
 * order of the bodies alone, which is the same in every build of the same source.
 */
#include "imagebuild/content/dedupe.h"

#include <stdlib.h>

#include "base/le.h"

struct entry {
    struct digest content;
    uint64_t size, address; /* address 0: empty */
};

struct dedupe {
    struct entry entries[DEDUPE_SLOTS];
};

struct dedupe *dedupe_new(void)
{
    return calloc(1, sizeof(struct dedupe)); /* untouched slots cost no memory */
}

void dedupe_free(struct dedupe *d)
{
    free(d);
}

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
