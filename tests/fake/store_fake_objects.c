/* The contents: objects in an array sorted by key. */
#include "fake/store_fake_internal.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* Index of key, or of where it would stand. */
static size_t find_locked(struct store_fake *f, const char *key, bool *found)
{
    size_t low = 0, high = f->objects.len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(f->objects.items[middle].key, key);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

struct object *fake_object_locked(struct store_fake *f, const char *key)
{
    bool found;
    size_t i = find_locked(f, key, &found);
    return found ? &f->objects.items[i] : NULL;
}

void *fake_copy(const void *data, size_t len)
{
    void *p = malloc(len ? len : 1);
    assert(p);
    if (len)
        memcpy(p, data, len);
    return p;
}

void fake_put_locked(struct store_fake *f, const char *key, const void *data, size_t len)
{
    bool found;
    size_t i = find_locked(f, key, &found);
    if (!found) {
        if (vec_reserve(&f->objects, 1))
            abort();
        memmove(&f->objects.items[i + 1], &f->objects.items[i], (f->objects.len - i) * sizeof(struct object));
        f->objects.len++;
        f->objects.items[i] = (struct object){.key = strdup(key)};
    }
    struct object *o = &f->objects.items[i];
    free(o->data);
    o->data = fake_copy(data, len);
    o->len = len;
    o->mtime = f->now ? f->now : time(NULL);
    o->version = ++f->next_version;
}

void store_fake_put(struct store_fake *f, const char *key, const void *data, size_t len)
{
    SCOPED_LOCK(&f->lock);
    fake_put_locked(f, key, data, len);
}

bool store_fake_has(struct store_fake *f, const char *key)
{
    SCOPED_LOCK(&f->lock);
    return fake_object_locked(f, key) != NULL;
}

bool store_fake_get(struct store_fake *f, const char *key, struct bytes *out)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    return o && !bytes_append(out, o->data, o->len);
}

bool store_fake_remove(struct store_fake *f, const char *key)
{
    SCOPED_LOCK(&f->lock);
    bool found;
    size_t i = find_locked(f, key, &found);
    if (!found)
        return false;
    free(f->objects.items[i].key);
    free(f->objects.items[i].data);
    memmove(&f->objects.items[i], &f->objects.items[i + 1], (f->objects.len - i - 1) * sizeof(struct object));
    f->objects.len--;
    return true;
}

bool store_fake_flip(struct store_fake *f, const char *key, size_t offset)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    if (!o || offset >= o->len)
        return false;
    o->data[offset] ^= 1;
    return true;
}

bool store_fake_truncate(struct store_fake *f, const char *key, size_t len)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    if (!o || len > o->len)
        return false;
    o->len = len;
    return true;
}

bool store_fake_set_mtime(struct store_fake *f, const char *key, int64_t mtime)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    if (o)
        o->mtime = mtime;
    return o;
}

size_t store_fake_count(struct store_fake *f, const char *prefix)
{
    SCOPED_LOCK(&f->lock);
    size_t n = 0;
    for (size_t i = 0; i < f->objects.len; i++)
        n += !strncmp(f->objects.items[i].key, prefix, strlen(prefix));
    return n;
}

void store_fake_set_now(struct store_fake *f, int64_t now)
{
    SCOPED_LOCK(&f->lock);
    f->now = now;
}
