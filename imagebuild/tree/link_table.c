#include "imagebuild/tree/link_table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/error.h"

enum { SLOTS_FIRST = 64 };

void link_table_release(struct link_table *t)
{
    free(t->files);
    *t = (struct link_table){0};
}

/* The slot that holds the file, or the empty one where it belongs. The seed differs from run to run, so that no listing
 * can be made to collide on purpose; nothing in an image depends on it. */
static struct link_file *slot_of(const struct link_table *t, const struct link_file *f)
{
    uint64_t h = (t->seed ^ f->dev) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ f->ino ^ (uint64_t)f->type << 48) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
    for (size_t i = (size_t)h & (t->slots - 1);; i = (i + 1) & (t->slots - 1)) {
        struct link_file *slot = &t->files[i];
        if (!slot->ino || (slot->ino == f->ino && slot->dev == f->dev && slot->type == f->type))
            return slot;
    }
}

static int grow(struct link_table *t)
{
    struct link_table fresh = {.count = t->count, .slots = t->slots ? t->slots * 2 : SLOTS_FIRST, .seed = t->seed};
    if (!t->slots && getrandom(&fresh.seed, sizeof fresh.seed, 0) != sizeof fresh.seed)
        fresh.seed = (uintptr_t)t;
    fresh.files = calloc(fresh.slots, sizeof *fresh.files);
    if (!fresh.files)
        return error_no_memory();
    for (size_t i = 0; i < t->slots; i++)
        if (t->files[i].ino)
            *slot_of(&fresh, &t->files[i]) = t->files[i];
    free(t->files);
    *t = fresh;
    return 0;
}

int link_table_get(struct link_table *t, const struct link_file *first, struct link_file **out, bool *out_new)
{
    if (t->count >= t->slots / 4 * 3) {
        int rc = grow(t);
        if (rc)
            return rc;
    }
    *out = slot_of(t, first);
    *out_new = !(*out)->ino;
    if (*out_new) {
        **out = *first;
        t->count++;
    }
    return 0;
}
