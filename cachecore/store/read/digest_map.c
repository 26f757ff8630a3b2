/* Linear probing; the keys are SHA-256 and need no further hashing. Nothing is ever removed. */
#include "store/read/digest_map.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"

enum { CAPACITY_MIN = 1024 };

void digest_map_release(struct digest_map *m)
{
    free(m->slots);
    memset(m, 0, sizeof *m);
}

/* The slot that holds key, or the free one where it would go. */
static struct digest_slot *probe(const struct digest_map *m, const struct digest *key)
{
    size_t i = le64_get(key->b) & (m->capacity - 1);
    while (!digest_is_zero(&m->slots[i].key) && !digest_equal(&m->slots[i].key, key))
        i = (i + 1) & (m->capacity - 1);
    return &m->slots[i];
}

static int grow(struct digest_map *m)
{
    struct digest_map larger = {.capacity = m->capacity ? m->capacity * 2 : CAPACITY_MIN, .count = m->count};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots)
        return error_no_memory();
    for (size_t i = 0; i < m->capacity; i++)
        if (!digest_is_zero(&m->slots[i].key))
            *probe(&larger, &m->slots[i].key) = m->slots[i];
    free(m->slots);
    *m = larger;
    return 0;
}

int digest_map_add(struct digest_map *m, const struct digest *key, int64_t value)
{
    assert(!digest_is_zero(key));
    if (m->count >= m->capacity / 3 * 2) {
        int rc = grow(m);
        if (rc)
            return rc;
    }
    struct digest_slot *slot = probe(m, key);
    if (!digest_is_zero(&slot->key))
        return 0;
    *slot = (struct digest_slot){.key = *key, .value = value};
    m->count++;
    return 1;
}

struct digest_slot *digest_map_find(const struct digest_map *m, const struct digest *key)
{
    if (!m->capacity)
        return NULL;
    struct digest_slot *slot = probe(m, key);
    return digest_is_zero(&slot->key) ? NULL : slot;
}
