/* An image is trusted when the signature of its tag is valid under one of the keys, for this digest under this name and
 * tag. Which keys and which image is in every sentence, since the user has to decide which of them is wrong. */
#include "repository/trust.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

int trust_add(struct trust *t, const char *what, const char *key)
{
    CLEANUP_BYTES text = BYTES_INIT(KEY_FILE_MAX);
    if (t->count == TRUST_KEYS_MAX)
        return error_set(-EINVAL, "%s%.200s: more than %d keys", what, key, TRUST_KEYS_MAX);
    /* A key that is no path either gets the sentence about the file. */
    if (!public_key_decode(key, strlen(key), &t->keys[t->count])) {
        t->count++;
        return 0;
    }
    int rc = io_read_file(key, &text);
    if (!rc)
        rc = public_key_decode((const char *)text.data, text.len, &t->keys[t->count]);
    if (rc)
        return error_prefix(rc == -ENOMEM ? rc : -EINVAL, "%s%.200s", what, key);
    t->count++;
    return 0;
}

/* Refuse an image. why: "it ...", with what helps. */
static int trust_refuse(const struct trust *t, const struct image_ref *ref, const char *why)
{
    char ids[TRUST_KEYS_MAX * (KEY_ID_TEXT_MAX + 4)] = ""; /* "A or B" */
    size_t used = 0;
    for (size_t i = 0; i < t->count; i++) {
        char id[KEY_ID_TEXT_MAX];
        used +=
            (size_t)snprintf(ids + used, sizeof ids - used, "%s%s", i ? " or " : "", key_id_text(t->keys[i].id, id));
    }
    return error_set(-EKEYREJECTED, "%.120s/%s%s%s is not signed by a trusted key (%s): %s", ref->store, ref->name,
                     *ref->tag ? ":" : "", ref->tag, ids, why);
}

/* Say why no trusted key fits. */
static int refuse_signature(const struct trust *t, const struct image_ref *ref, const struct signature *s)
{
    char why[256], id[KEY_ID_TEXT_MAX];
    bool known = false;
    for (size_t i = 0; i < t->count; i++)
        known |= !memcmp(t->keys[i].id, s->id, KEY_ID_SIZE);
    if (known)
        return trust_refuse(t, ref,
                            "its signature was made for another image or tag, or was changed; find out who put it "
                            "there before you sign again");
    snprintf(why, sizeof why, "it has a signature of key %s; add that key to the trusted ones, or sign again",
             key_id_text(s->id, id));
    return trust_refuse(t, ref, why);
}

int trust_check(const struct trust *t, const struct image_ref *ref, const char *text)
{
    struct signature s;
    char message[SIGNATURE_MESSAGE_MAX], why[ERROR_TEXT_MAX];
    if (!t->count)
        return 0;
    if (!text || !*text)
        return trust_refuse(t, ref, "it has no signature; 'granary sign IMAGE --key FILE' makes one");
    if (signature_decode(text, strlen(text), &s)) {
        snprintf(why, sizeof why, "what is there %s", error_text());
        return trust_refuse(t, ref, why);
    }
    size_t len = signature_message(ref->name, ref->tag, &ref->digest, message);
    for (size_t i = 0; i < t->count; i++) {
        int rc = signature_verify(&s, &t->keys[i], message, len);
        if (rc != -EBADMSG)
            return rc;
    }
    return refuse_signature(t, ref, &s);
}

int trust_check_tag(const struct trust *t, const struct image_ref *ref, const struct digest *named)
{
    if (!t->count)
        return 0;
    if (!*ref->tag)
        return trust_refuse(t, ref, "a signature is found by its tag; name the image as NAME:TAG@sha256:DIGEST");
    if (!digest_equal(named, &ref->digest))
        return trust_refuse(t, ref,
                            "its tag was removed or names another image by now, and the signature went with it");
    return 0;
}
