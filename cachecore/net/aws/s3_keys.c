/* The keys are lent to requests with a count of holders, so that the old ones live until the last request that was
 * signed with them has ended. The lock is innermost and never held across I/O. */
#include "net/aws/s3_keys.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "net/aws/aws_internal.h"

struct s3_keys {
    _Atomic unsigned refs;
    pthread_mutex_t lock;             /* guards the rest, and the holders of what is lent */
    struct lent_credentials *current; /* one holder is this struct; NULL: wiped */
};

/* The names of the lines; AWS_SESSION_TOKEN may be absent. */
static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};

/* Make keys out of copies of these strings; token may be NULL. */
static int make(const char *access, const char *secret, const char *token, struct s3_keys **out)
{
    CLEANUP_FREE struct s3_keys *k = calloc(1, sizeof *k);
    CLEANUP_FREE struct lent_credentials *lent = calloc(1, sizeof *lent);
    if (!k || !lent)
        return error_no_memory();
    int rc = credentials_copy("the request", access, secret, token, &lent->keys);
    if (rc)
        return rc;
    k->refs = lent->holders = 1;
    pthread_mutex_init(&k->lock, NULL);
    k->current = steal_ptr(&lent);
    *out = steal_ptr(&k);
    return 0;
}

/* ---- text ---- */

/* Take one line; values point into it. The line is not quoted in a sentence, since it may hold a secret. */
static int take_line(char *line, unsigned number, const char *values[GR_ARRAY_SIZE(names)])
{
    char *name = text_trim(line), *equals = strchr(name, '=');
    if (!*name || *name == '#')
        return 0;
    if (equals)
        *equals = 0;
    for (size_t i = 0; equals && i < GR_ARRAY_SIZE(names); i++)
        if (!strcmp(text_trim(name), names[i]) && !values[i]) {
            values[i] = text_trim(equals + 1);
            return 0;
        }
    return error_set(-EINVAL,
                     "keys: line %u is wrong; give AWS_ACCESS_KEY_ID=..., AWS_SECRET_ACCESS_KEY=... and for temporary "
                     "keys AWS_SESSION_TOKEN=..., each once",
                     number);
}

int s3_keys_parse(const void *text, size_t len, struct s3_keys **out)
{
    const char *values[GR_ARRAY_SIZE(names)] = {NULL};
    struct bytes copy CLEANUP(bytes_wipe) = BYTES_INIT(S3_KEYS_TEXT_MAX);
    uint8_t *room; /* at once: a buffer that grows leaves copies behind */
    int rc = bytes_reserve(&copy, len + 1, &room);
    if (!rc)
        rc = bytes_append(&copy, text, len);
    if (rc)
        return rc == -EMSGSIZE ? error_set(-EINVAL, "keys: more than %d bytes", S3_KEYS_TEXT_MAX) : rc;
    char *rest = bytes_string(&copy), *line;
    if (memchr(text, 0, len))
        return error_set(-EINVAL, "keys: a NUL is in them");
    for (unsigned number = 1; !rc && (line = strsep(&rest, "\n")); number++)
        rc = take_line(line, number, values);
    if (!rc)
        rc = make(values[0], values[1], values[2] && *values[2] ? values[2] : NULL, out);
    return rc;
}

int s3_keys_format(struct s3_keys *k, struct bytes *out)
{
    uint8_t *room;
    int rc = bytes_reserve(out, GR_MIN(out->max - out->len, (size_t)S3_KEYS_TEXT_MAX), &room);
    SCOPED_LOCK(&k->lock);
    const struct credentials *keys = k->current ? &k->current->keys : NULL;
    const char *const values[] = {keys ? keys->access_key : NULL, keys ? keys->secret_key : NULL,
                                  keys ? keys->session_token : NULL};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        const char *const parts[] = {names[i], "=", values[i], "\n"};
        for (size_t part = 0; !rc && values[i] && part < GR_ARRAY_SIZE(parts); part++)
            rc = bytes_append(out, parts[part], strlen(parts[part]));
    }
    return rc;
}

/* ---- life ---- */

struct s3_keys *s3_keys_ref(struct s3_keys *k)
{
    atomic_fetch_add(&k->refs, 1);
    return k;
}

void s3_keys_unref(struct s3_keys *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1)
        return;
    s3_keys_wipe(k);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

int s3_keys_copy(struct s3_keys *from, struct s3_keys **out)
{
    SCOPED_LOCK(&from->lock);
    const struct credentials *keys = from->current ? &from->current->keys : NULL;
    if (!keys)
        return error_set(-EACCES, "keys: they have been removed");
    return make(keys->access_key, keys->secret_key, keys->session_token, out);
}

/* Put fresh (may be NULL) in the place of the current ones, which go with their last request. */
static void exchange(struct s3_keys *k, struct lent_credentials *fresh)
{
    SCOPED_LOCK(&k->lock);
    lent_credentials_drop(k->current);
    k->current = fresh;
}

/* By way of a copy, so that no two locks are held. */
int s3_keys_replace(struct s3_keys *k, struct s3_keys *by)
{
    CLEANUP(cleanup_s3_keys) struct s3_keys *copy = NULL;
    int rc = s3_keys_copy(by, &copy);
    if (!rc)
        exchange(k, steal_ptr(&copy->current));
    return rc;
}

void s3_keys_wipe(struct s3_keys *k)
{
    exchange(k, NULL);
}

/* ---- lending ---- */

int s3_keys_lend(struct s3_keys *k, const struct lent_credentials **out)
{
    SCOPED_LOCK(&k->lock);
    if (!k->current)
        return error_set(-EACCES, "the keys of this export have been removed");
    k->current->holders++;
    *out = k->current;
    return 0;
}

void s3_keys_take_back(struct s3_keys *k, const struct lent_credentials *lent)
{
    SCOPED_LOCK(&k->lock);
    lent_credentials_drop((struct lent_credentials *)lent);
}

bool s3_keys_changed(struct s3_keys *k, const struct lent_credentials *since)
{
    SCOPED_LOCK(&k->lock);
    return k->current != since;
}
