/* The file is read at most once a second, and only while requests come. A file that cannot be read, or is wrong,
 * changes nothing: a node that can no longer read its key must not leave the cluster for that. */
#include "net/peer_key.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

enum { FILE_MAX = 16 << 10, LOOK_MS = 1000 };

/* The keys of a moment: the digests of the lines. */
struct keys {
    struct digest of[PEER_KEYS_MAX];
    size_t n;
};

struct peer_key {
    char *path;
    pthread_mutex_t lock; /* guards the rest; not held while the file is read */
    struct keys keys;
    uint64_t looked_ms; /* on clock_now_ms */
    bool failing;       /* the last look failed, and was logged */
};

static int add_key(const char *path, size_t line, const char *key, struct keys *out)
{
    if (strlen(key) < PEER_KEY_LEAST)
        return error_set(-EINVAL,
                         "%s, line %zu: a key has at least %d characters; make one by: openssl rand -hex 32 >%s", path,
                         line, PEER_KEY_LEAST, path);
    if (out->n == PEER_KEYS_MAX)
        return error_set(-EINVAL, "%s: more than %d keys; remove those that no node uses any more", path,
                         PEER_KEYS_MAX);
    out->of[out->n++] = digest_of(key, strlen(key));
    return 0;
}

static int read_keys(const char *path, struct keys *out)
{
    struct bytes text CLEANUP(bytes_wipe) = BYTES_INIT(FILE_MAX);
    size_t number = 0;
    *out = (struct keys){.n = 0};
    int rc = io_read_file(path, &text);
    char *line = rc ? NULL : bytes_string(&text);
    if (!line)
        return rc ? rc : -EMSGSIZE;
    for (char *next; !rc && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        number++;
        const char *key = text_trim(line);
        if (*key)
            rc = add_key(path, number, key, out);
    }
    if (!rc && !out->n)
        rc = error_set(-EINVAL, "%s has no key; make one by: openssl rand -hex 32 >%s", path, path);
    return rc;
}

int peer_key_open(const char *path, struct peer_key **out)
{
    struct peer_key *k = calloc(1, sizeof *k);
    if (!k || !(k->path = strdup(path))) {
        free(k);
        return error_no_memory();
    }
    pthread_mutex_init(&k->lock, NULL);
    k->looked_ms = clock_now_ms();
    int rc = read_keys(path, &k->keys);
    if (rc)
        peer_key_free(k);
    else
        *out = k;
    return rc;
}

void peer_key_free(struct peer_key *k)
{
    if (!k)
        return;
    explicit_bzero(&k->keys, sizeof k->keys);
    pthread_mutex_destroy(&k->lock);
    free(k->path);
    free(k);
}

/* Is it time to read the file again? The caller then does. */
static bool is_due(struct peer_key *k)
{
    uint64_t now = clock_now_ms();
    SCOPED_LOCK(&k->lock);
    if (now - k->looked_ms < LOOK_MS)
        return false;
    k->looked_ms = now;
    return true;
}

static void read_again(struct peer_key *k)
{
    struct keys fresh;
    bool was;
    int rc = read_keys(k->path, &fresh);
    {
        SCOPED_LOCK(&k->lock);
        was = k->failing;
        k->failing = rc;
        if (!rc)
            k->keys = fresh;
    }
    explicit_bzero(&fresh, sizeof fresh);
    if (rc && !was)
        log_warning("peer-key: %.400s; the previous keys stay in use", error_text());
    if (!rc && was)
        log_info("peer-key: %s is read again", k->path);
}

static struct keys keys_now(struct peer_key *k)
{
    if (is_due(k))
        read_again(k);
    SCOPED_LOCK(&k->lock);
    return k->keys;
}

static struct digest mac_of(const struct digest *key, const struct peer_get *get, int64_t time)
{
    char text[512], hex[DIGEST_HEX_SIZE];
    struct digest chunks = digest_of(get->chunks, strlen(get->chunks));
    int len =
        snprintf(text, sizeof text, "granary-peer-1\n%.200s\n%llu %llu\n%s\n%lld", get->key,
                 (unsigned long long)get->off, (unsigned long long)get->len, digest_hex(&chunks, hex), (long long)time);
    return digest_hmac(key->b, sizeof key->b, text, (size_t)len);
}

char *peer_key_prove(struct peer_key *k, const struct peer_get *get, int64_t now, char out[PEER_PROOF_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    struct keys keys = keys_now(k);
    struct digest mac = mac_of(&keys.of[0], get, now);
    explicit_bzero(&keys, sizeof keys);
    snprintf(out, PEER_PROOF_MAX, "%lld %s", (long long)now, digest_hex(&mac, hex));
    return out;
}

bool peer_key_check(struct peer_key *k, const struct peer_get *get, int64_t now, const char *proof)
{
    struct digest mac;
    char hex[DIGEST_HEX_SIZE], after;
    long long time;
    bool good = false;
    if (!proof || sscanf(proof, "%lld %64s%c", &time, hex, &after) != 2 || digest_parse(hex, strlen(hex), &mac) ||
        time < now - PEER_PROOF_AGE_S || time > now + PEER_PROOF_AGE_S)
        return false;
    struct keys keys = keys_now(k);
    for (size_t i = 0; i < keys.n; i++) {
        const struct digest want = mac_of(&keys.of[i], get, time);
        good |= digest_equal_secret(&mac, &want);
    }
    explicit_bzero(&keys, sizeof keys);
    return good;
}
