/* Looks for a granary.json in every directory above the new store, and in the places below it where an image of the
 * same name would put one. unnest takes apart stores that were nested before this check existed; writers look again,
 * so that none of them goes on in a store that is being taken apart. */
#include "repository/nesting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/image_ref.h"
#include "repository/repository.h"

/* Remove the last component of the url's path. Return false if there is none left (the root, a bucket, a host). */
static bool go_up(char *url)
{
    char *path = strstr(url, "://");
    if (!path)
        return false;
    path += 3;
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1])
        return false;
    slash[slash == path] = '\0'; /* "file:///" is a store too */
    return true;
}

/* The sentence for s next to the other store. */
static int nesting_refuse(const struct store *s, const char *other)
{
    return error_set(
        -EINVAL,
        "%s would be a store inside or around the store %s, and neither could be listed or collected then: "
        "was a part of the path forgotten, or is one too many? Write %s/NAME[:TAG], or choose a directory "
        "beside it",
        s->url, other, other);
}

/* Any failure counts as "no store": the user may not be allowed to read a parent directory. */
static bool is_store(const char *url, const struct store_options *options)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    return !store_open(url, options, &store) && !repository_check(store, false);
}

/* Refuse s if a store is below it. */
static int look_below(struct store *s, const char *name)
{
    static const char *const places[] = {"%s/granary.json", "images/granary.json", "images/%s/granary.json"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(places); i++) {
        char key[IMAGE_NAME_MAX + 64], other[IMAGE_STORE_MAX + IMAGE_NAME_MAX + 64];
        struct store_item item;
        snprintf(key, sizeof key, places[i], name);
        int rc = store_stat(s, key, &item);
        if (rc == -ENOENT)
            continue;
        if (rc)
            return rc;
        snprintf(other, sizeof other, "%s/%.*s", s->url, (int)(strrchr(key, '/') - key), key);
        return nesting_refuse(s, other);
    }
    return 0;
}

/* Write the URL of the next store above s to url. Return false if there is none. */
static bool find_above(const struct store *s, const struct store_options *options, char url[IMAGE_STORE_MAX + 1])
{
    snprintf(url, IMAGE_STORE_MAX + 1, "%s", s->url);
    while (go_up(url))
        if (is_store(url, options))
            return true;
    return false;
}

int nesting_check(struct store *s, const char *name, const struct store_options *options, struct nesting *out)
{
    char above[IMAGE_STORE_MAX + 1];
    int rc = repository_check(s, false);
    *out = (struct nesting){.options = options, .is_store = !rc};
    /* It is a store already, nested or not, or it cannot be read. */
    if (rc != -ENOENT)
        return rc;
    return find_above(s, options, above) ? nesting_refuse(s, above) : look_below(s, name);
}

int nesting_enter(struct store *s, const struct nesting *n)
{
    return n->is_store ? nesting_check_again(s, n) : repository_check(s, true);
}

int nesting_check_again(struct store *s, const struct nesting *n)
{
    char above[IMAGE_STORE_MAX + 1];
    int rc = repository_check(s, false);
    if (rc != -ENOENT)
        return rc;
    if (!find_above(s, n->options, above))
        return error_set(-ESTALE, "%s is no longer a store: its granary.json was removed; nothing was published",
                         s->url);
    return error_set(-ESTALE,
                     "%s is no longer a store: 'granary unnest' has moved its images into %s; nothing was published, "
                     "write %s/NAME[:TAG] instead",
                     s->url, above, above);
}
