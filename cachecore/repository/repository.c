/* Images in a store: the store's own document, objects by content, manifests, tags. The keys are in
 * docs/reference/format-store.md.
 *
 * Publishing a tag is a compare-and-swap loop over its document. The answer of a put can be lost, and store_retry may
 * repeat a put that was carried out. So after any failed put the tag is read again, and it is ours if it contains our
 * nonce.
 *
 * Objects are named by their SHA-256, so putting one twice does no harm. A put looks first, which saves the transfer
 * when an interrupted build is repeated, and replaces an object that is damaged. */
#include "repository/repository.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "format/catalog.h"

static const char store_doc_key[] = "granary.json";

/* A thousand lost races in a row mean that something else is wrong. */
enum { PUBLISH_TRIES = 1000, TAG_KEY_MAX = IMAGE_NAME_MAX + IMAGE_TAG_MAX + 16 };

/* Put the store and the key in front of a decoder's sentence. */
static int at_key(int rc, struct store *s, const char *key)
{
    return rc ? error_prefix(rc, "%s: %s", s->url, key) : 0;
}

/* Write 128 random bits in hex. */
static int random_text(char out[33])
{
    uint64_t random[2];
    int rc = io_random(random, sizeof random);
    if (!rc)
        snprintf(out, 33, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    return rc;
}

static int read_store_doc(struct store *s, char id[STORE_ID_MAX])
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    int rc = store_get_small(s, store_doc_key, &doc, NULL);
    return rc ? rc : at_key(store_doc_decode(doc.data, doc.len, id), s, store_doc_key);
}

/* Read granary.json, and note the store's id if this is the first time. Any thread. */
static int read_store_id(struct store *s)
{
    char id[STORE_ID_MAX], *none = NULL;
    int rc = read_store_doc(s, id);
    if (rc || s->id)
        return rc;
    char *fresh = strdup(id);
    if (!fresh)
        return error_no_memory();
    if (!atomic_compare_exchange_strong(&s->id, &none, fresh))
        free(fresh);
    return 0;
}

/* Read and decode a tag. */
static int read_tag(struct store *s, const char *key, struct tag *out)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    int rc = store_get_small(s, key, &doc, NULL);
    return rc ? rc : at_key(tag_decode(doc.data, doc.len, out), s, key);
}

/* Keep the first key of a listing, and end it. */
static int take_key(void *arg, const struct store_item *item)
{
    snprintf(arg, STORE_KEY_MAX + 1, "%s", item->key);
    return 1;
}

/* Choose the id of a store without granary.json: if that was lost, the one that its first tag names, since every tag
 * would be refused otherwise; else a random one. */
static int choose_id(struct store *s, char id[STORE_ID_MAX])
{
    char key[STORE_KEY_MAX + 1];
    struct tag t;
    if (store_list(s, "images/", take_key, key) == 1 && !read_tag(s, key, &t) && t.store[0]) {
        memcpy(id, t.store, sizeof t.store);
        return 0;
    }
    return random_text(id);
}

int repository_check(struct store *s, bool init)
{
    char id[STORE_ID_MAX];
    int rc = read_store_id(s);
    if (rc != -ENOENT)
        return rc;
    if (!init)
        return error_set(-ENOENT,
                         "%s is not a Granary store: %s is not there; check the URL, or build an image into it", s->url,
                         store_doc_key);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    rc = choose_id(s, id);
    if (!rc)
        rc = store_doc_encode(id, &doc);
    if (rc)
        return rc;
    const struct store_put put = {.key = store_doc_key, .data = doc.data, .len = doc.len, .mode = STORE_PUT_IF_ABSENT};
    rc = store_put(s, &put);
    /* Another build may have written it first, or at the same time. */
    return rc && rc != -EEXIST ? rc : read_store_id(s);
}

static const char *tag_key(const char *name, const char *tag, char out[TAG_KEY_MAX])
{
    snprintf(out, TAG_KEY_MAX, "images/%s/%s", name, tag);
    return out;
}

static int check_names(const char *name, const char *tag)
{
    int rc = image_ref_check_name("image name", name);
    return rc ? rc : image_ref_check_name("tag", tag);
}

/* The sentence for a reference that names no tag. */
static int no_such_tag(struct store *s, const char *name, const char *tag)
{
    return error_set(-ENOENT, "there is no image %s:%s in %s; 'granary images %s' lists what is there", name, tag,
                     s->url, s->url);
}

/* Check that the tag was published under this name. Old tags without a name are accepted. */
static int check_name(struct store *s, const char *name, const char *tag, const struct tag *t)
{
    if (!t->name[0] || (!strcmp(t->name, name) && !strcmp(t->tag, tag)))
        return 0;
    return error_set(-EBADMSG,
                     "%s: images/%s/%s is the tag %s:%s, copied there by other means than Granary's: name the image by "
                     "'granary tag %s/%s:%s' or 'granary copy', or remove the copy by 'granary rm'",
                     s->url, name, tag, t->name, t->tag, s->url, t->name, t->tag);
}

int repository_check_tag_of(struct store *s, struct store_id_now *now, const char *name, const char *tag,
                            const struct tag *t)
{
    char hex[DIGEST_HEX_SIZE];
    int rc = check_name(s, name, tag, t);
    if (rc || !t->store[0])
        return rc;
    if (!s->id)
        rc = read_store_id(s);
    if (rc || !strcmp(s->id, t->store))
        return rc;
    /* Again, as in fill_in: what was noted may have been replaced. */
    if (!now->read)
        rc = read_store_doc(s, now->id);
    now->read = !rc;
    if (rc || !strcmp(now->id, t->store))
        return rc;
    return error_set(-EBADMSG,
                     "%s: images/%s/%s was published in another store, and copied here by other means than Granary's: "
                     "copy the image by 'granary copy', or, if it is meant, name it here by 'granary tag "
                     "%s/%s@sha256:%s %s'",
                     s->url, name, tag, s->url, name, digest_hex(&t->digest, hex), tag);
}

int repository_check_tag(struct store *s, const char *name, const char *tag, const struct tag *t)
{
    return repository_check_tag_of(s, &(struct store_id_now){.read = false}, name, tag, t);
}

int repository_read_tag(struct store *s, const char *name, const char *tag, struct tag *out)
{
    char key[TAG_KEY_MAX];
    int rc = check_names(name, tag);
    if (!rc)
        rc = read_tag(s, tag_key(name, tag, key), out);
    return rc == -ENOENT ? no_such_tag(s, name, tag) : rc;
}

int repository_resolve(struct store *s, const struct image_ref *ref, struct digest *out, struct tag *out_tag)
{
    struct tag found = {.created = 0};
    if (!ref->by_digest) {
        int rc = repository_read_tag(s, ref->name, ref->tag, &found);
        if (!rc)
            rc = repository_check_tag(s, ref->name, ref->tag, &found);
        if (rc)
            return rc;
    }
    *out = ref->by_digest ? ref->digest : found.digest;
    if (out_tag)
        *out_tag = found;
    return 0;
}

int repository_tag_beside(struct store *s, const struct image_ref *ref, struct tag *out)
{
    struct image_ref by_tag = *ref;
    struct digest named;
    struct tag tag;
    if (!ref->by_digest || !*ref->tag)
        return 0;
    by_tag.by_digest = false;
    int rc = repository_resolve(s, &by_tag, &named, &tag);
    if (!rc && digest_equal(&named, &ref->digest))
        *out = tag;
    return rc == -ENOENT ? 0 : rc;
}

int repository_get_object(struct store *s, enum object_kind kind, const struct digest *name, size_t max,
                          struct bytes *out)
{
    char key[OBJECT_KEY_MAX];
    object_key(kind, name, key);
    bytes_clear(out);
    out->max = max;
    int rc = store_get_small(s, key, out, NULL);
    /* The maximum is that of the format, so a longer object is damaged. */
    if (rc == -EMSGSIZE)
        return error_set(-EBADMSG, "%s: %s is longer than the %zu bytes it may have", s->url, key, max);
    if (rc)
        return rc;
    struct digest found = digest_of(out->data, out->len);
    if (!digest_equal(&found, name))
        return error_set(-EBADMSG, "%s: %s: digest differs: the object is damaged", s->url, key);
    return 0;
}

int repository_manifest_text(struct store *s, const struct digest *image, struct manifest *out, struct bytes *text)
{
    char key[OBJECT_KEY_MAX];
    object_key(OBJECT_MANIFEST, image, key);
    int rc = repository_get_object(s, OBJECT_MANIFEST, image, MANIFEST_MAX, text);
    if (rc == -ENOENT)
        return error_set(-ENOENT, "%s: the image sha256:%s is not there (any more): %s is missing", s->url,
                         strchr(key, '/') + 1, key);
    return rc ? rc : at_key(manifest_decode(text->data, text->len, out), s, key);
}

int repository_manifest(struct store *s, const struct digest *image, struct manifest *out)
{
    CLEANUP_BYTES text = BYTES_INIT(MANIFEST_MAX);
    return repository_manifest_text(s, image, out, &text);
}

/* Read the last n of an object's bytes, as repository_read_end does. */
static int read_last(struct store *s, const char *key, uint64_t len, size_t n, struct bytes *out)
{
    bytes_clear(out);
    out->max = n;
    return n ? store_get(s, key, len - n, n, store_append, out) : 0;
}

int repository_read_end(struct store *s, const char *key, uint64_t len, struct bytes *out)
{
    return read_last(s, key, len, (size_t)GR_MIN(len, (uint64_t)REPOSITORY_COMPARED), out);
}

int repository_has_end(struct store *s, const char *key, uint64_t len, const void *end, size_t n, bool *out)
{
    CLEANUP_BYTES found = BYTES_INIT(0);
    int rc = read_last(s, key, len, n, &found);
    *out = !rc && found.len == n && (!n || !memcmp(found.data, end, n));
    return rc == -EBADMSG || rc == -ENOENT ? 0 : rc;
}

int repository_says_md5(struct store *s, bool *out)
{
    struct store_item item;
    char md5[MD5_HEX_SIZE];
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    *out = false;
    int rc = store_get_small(s, store_doc_key, &doc, NULL);
    if (!rc)
        rc = store_stat(s, store_doc_key, &item);
    if (!rc)
        *out = *item.md5 && !strcmp(item.md5, md5_hex(doc.data, doc.len, md5));
    return rc == -ENOENT ? 0 : rc;
}

/* Compare an object of the same length with data: by its MD5 if the store reports one that can be relied on, else by
 * its end, or by all of it if something else than a pack can be that short. A differing MD5 proves damage only if the
 * store reports true MD5s. */
static int is_whole(struct store *s, const struct store_item *item, const char *key, const void *data, bool *out)
{
    const size_t len = (size_t)item->size, n = len > CATALOG_OBJECT_MAX ? REPOSITORY_COMPARED : len;
    char md5[MD5_HEX_SIZE];
    bool differs = false;
    *out = *item->md5 && !strcmp(item->md5, md5_hex(data, len, md5));
    int rc = *item->md5 && !*out ? repository_says_md5(s, &differs) : 0;
    if (rc || *out || differs)
        return rc;
    return repository_has_end(s, key, len, (const uint8_t *)data + len - n, n, out);
}

int repository_look(struct store *s, const char *key, const void *data, size_t len, enum repository_found *out)
{
    struct store_item item;
    bool whole = false;
    *out = REPOSITORY_ABSENT;
    int rc = store_stat(s, key, &item);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (item.size == len)
        rc = is_whole(s, &item, key, data, &whole);
    *out = whole ? REPOSITORY_WHOLE : REPOSITORY_DAMAGED;
    return rc;
}

int repository_put_object(struct store *s, enum object_kind kind, const void *data, size_t len,
                          const struct digest *name, struct digest *out_name, enum repository_found *out_found)
{
    struct digest computed;
    if (!name) {
        computed = digest_of(data, len);
        name = &computed;
    }
    if (out_name)
        *out_name = *name;
    char key[OBJECT_KEY_MAX];
    object_key(kind, name, key);
    int rc = repository_look(s, key, data, len, out_found);
    if (rc || *out_found == REPOSITORY_WHOLE)
        return rc;
    /* ALWAYS instead of IF_ABSENT: it also replaces a damaged object. */
    const struct store_put put = {.key = key, .data = data, .len = len, .sha256 = name, .mode = STORE_PUT_ALWAYS};
    return store_put(s, &put);
}

/* Fill in where the tag is, and time and nonce if it has none. The store's id is read again: where puts are not
 * conditional, another build may have replaced granary.json since. */
static int fill_in(struct store *s, const char *name, const char *tag, struct tag *t)
{
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->tag, sizeof t->tag, "%s", tag);
    if (t->created == 0)
        t->created = time(NULL);
    int rc = t->nonce[0] ? 0 : random_text(t->nonce);
    return rc ? rc : read_store_doc(s, t->store);
}

/* Replace the version of the tag that was read ("": it was absent). Return 1 if the tag is ours, 0 if another writer
 * was faster, or -errno. */
static int replace_version(struct store *s, const char *key, const char *version, const struct tag *t,
                           const struct bytes *doc)
{
    const struct store_put put = {
        .key = key,
        .data = doc->data,
        .len = doc->len,
        .mode = *version ? STORE_PUT_IF_MATCH : STORE_PUT_IF_ABSENT,
        .version = version,
    };
    int rc = store_put(s, &put);
    if (rc == 0)
        return 1;
    struct error failed;
    error_take(&failed, rc);
    struct tag now;
    rc = read_tag(s, key, &now);
    if (rc == 0 && !strcmp(now.nonce, t->nonce))
        return 1;
    return failed.code == -EEXIST ? 0 : error_restore(&failed);
}

/* Make one attempt; returns as replace_version. */
static int publish_once(struct store *s, const char *key, const struct tag *t, const struct bytes *doc)
{
    char version[STORE_VERSION_MAX] = "";
    CLEANUP_BYTES before = BYTES_INIT(TAG_DOC_MAX);
    int rc = store_get_small(s, key, &before, version);
    return rc && rc != -ENOENT ? rc : replace_version(s, key, rc ? "" : version, t, doc);
}

/* Publish on a store that does not honour conditional puts. */
static int publish_anyway(struct store *s, const char *key, const struct bytes *doc, bool strict)
{
    if (strict)
        return error_set(-ENOTSUP,
                         "%s does not honour conditional puts, so two builds could overwrite each other's %s: leave "
                         "out --strict-tags to let the last writer win",
                         s->url, key);
    struct store_item there;
    if (store_stat(s, key, &there) == 0)
        log_warning("%s does not honour conditional puts: the last writer of %s wins", s->url, key);
    const struct store_put put = {.key = key, .data = doc->data, .len = doc->len, .mode = STORE_PUT_ALWAYS};
    return store_put(s, &put);
}

int repository_publish(struct store *s, const char *name, const char *tag, struct tag *t, bool strict)
{
    char key[TAG_KEY_MAX];
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    bool conditional;
    int rc = check_names(name, tag);
    if (strcmp(t->name, name) != 0 || strcmp(t->tag, tag) != 0)
        t->signature[0] = '\0';
    if (!rc)
        rc = fill_in(s, name, tag, t);
    if (!rc)
        rc = tag_encode(t, &doc);
    if (!rc)
        rc = store_probe_conditional(s, &conditional);
    if (rc)
        return rc;
    tag_key(name, tag, key);
    if (!conditional)
        return publish_anyway(s, key, &doc, strict);
    for (int i = 0; i < PUBLISH_TRIES; i++) {
        rc = publish_once(s, key, t, &doc);
        if (rc)
            return rc > 0 ? 0 : rc;
    }
    return error_set(-EAGAIN, "%s: others keep replacing %s; try again", s->url, key);
}

/* Make one attempt to sign; returns as replace_version. Everything but signature and nonce is as it was read. */
static int sign_once(struct store *s, const char *name, const char *tag, const struct digest *image,
                     const char *signature, bool conditional)
{
    char key[TAG_KEY_MAX], version[STORE_VERSION_MAX] = "";
    CLEANUP_BYTES before = BYTES_INIT(TAG_DOC_MAX);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t;
    int rc = store_get_small(s, tag_key(name, tag, key), &before, version);
    if (rc)
        return rc == -ENOENT ? no_such_tag(s, name, tag) : rc;
    rc = at_key(tag_decode(before.data, before.len, &t), s, key);
    if (!rc)
        rc = repository_check_tag(s, name, tag, &t);
    if (!rc && !digest_equal(&t.digest, image))
        rc = error_set(-ESTALE, "%s: %s:%s names another image by now; look at that one, and sign again", s->url, name,
                       tag);
    if (rc)
        return rc;
    snprintf(t.signature, sizeof t.signature, "%s", signature);
    t.nonce[0] = '\0';
    rc = fill_in(s, name, tag, &t);
    if (!rc)
        rc = tag_encode(&t, &doc);
    if (rc)
        return rc;
    if (conditional)
        return replace_version(s, key, version, &t, &doc);
    rc = publish_anyway(s, key, &doc, false);
    return rc ? rc : 1;
}

int repository_sign(struct store *s, const char *name, const char *tag, const struct digest *image,
                    const char *signature)
{
    bool conditional;
    int rc = check_names(name, tag);
    if (!rc)
        rc = store_probe_conditional(s, &conditional);
    if (rc)
        return rc;
    for (int i = 0; i < PUBLISH_TRIES; i++) {
        rc = sign_once(s, name, tag, image, signature, conditional);
        if (rc)
            return rc > 0 ? 0 : rc;
    }
    return error_set(-EAGAIN, "%s: others keep replacing %s:%s; try again", s->url, name, tag);
}

int repository_remove_tag(struct store *s, const char *name, const char *tag)
{
    char key[TAG_KEY_MAX];
    struct store_item item;
    int rc = check_names(name, tag);
    if (!rc)
        rc = store_stat(s, tag_key(name, tag, key), &item);
    if (rc)
        return rc == -ENOENT ? no_such_tag(s, name, tag) : rc;
    return store_remove(s, key);
}

/* The build tag's name has time and digest, so builds that choose the same name have the same image. It comes first: if
 * the process is killed in between, the image still has a tag. */
int repository_publish_both(struct store *s, const char *name, const char *tag, const struct tag *t, bool strict,
                            char out_unique[TAG_BUILD_NAME_MAX])
{
    char key[TAG_KEY_MAX];
    struct store_item item;
    struct tag unique = *t, asked = *t;
    tag_build_name(t->created, &t->digest, out_unique);
    bool was_there = store_stat(s, tag_key(name, out_unique, key), &item) != -ENOENT;
    int rc = repository_publish(s, name, out_unique, &unique, strict);
    if (rc || !strcmp(tag, out_unique))
        return rc;
    rc = repository_publish(s, name, tag, &asked, strict);
    if (!rc || was_there)
        return rc;
    struct error first;
    error_take(&first, rc);
    if (repository_remove_tag(s, name, out_unique))
        log_warning("%s: tag %s:%s was published, but %s was not: %s", s->url, name, out_unique, tag, first.text);
    return error_restore(&first);
}
