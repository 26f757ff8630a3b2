/* granary sign IMAGE: puts a signature of the image into its tag. A tag that was moved meanwhile is not signed.
 *
 * Only the short text that --message prints is signed. So a key may stay where it is, under a password or on another
 * machine: minisign signs the text there, and --signature brings the result here. */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "repository/repository.h"

struct sign_values {
    const char *key, *signature, *comment;
    struct option_list trust;
    struct open_access access;
    bool message, json;
};

#define AT(field) offsetof(struct sign_values, field), 0, 0

static const struct sign_values defaults = {.access = {.timeout_s = OPEN_LOOKUP_S}};

static const struct option_row rows[] = {
    {OPTION_TEXT, 0, "key", "FILE", AT(key), "a secret key of minisign, without a password (minisign -G -W -s FILE)"},
    {OPTION_TEXT, 0, "trusted-comment", "TEXT", AT(comment),
     "one line that is signed too (default: the time, and NAME:TAG)"},
    {OPTION_TEXT, 0, "signature", "FILE", AT(signature), "take this signature of the message, which minisign made"},
    {OPTION_LIST, 0, "trust", "KEY", AT(trust),
     "put the signature only if this public key has made it: the key, or its file; may be repeated"},
    {OPTION_FLAG, 0, "message", NULL, AT(message), "print the text that is to be signed, and change nothing"},
    LOOKUP_ROWS(struct sign_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

/* Read the secret key. The caller wipes it. */
static int read_key(const char *path, struct secret_key *out)
{
    struct bytes text = BYTES_INIT(KEY_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (!rc) {
        rc = secret_key_decode((const char *)text.data, text.len, out);
        if (rc)
            (void)error_prefix(rc, "%s", path);
    }
    bytes_wipe(&text);
    return rc;
}

/* Sign the message with --key. */
static int make_signature(const struct sign_values *v, const struct image_ref *ref, const char *message, size_t len,
                          char out[SIGNATURE_TEXT_MAX])
{
    char comment[SIGNATURE_COMMENT_MAX];
    struct secret_key key;
    snprintf(comment, sizeof comment, "timestamp:%lld\tfile:%s:%s\thashed", (long long)time(NULL), ref->name, ref->tag);
    int rc = read_key(v->key, &key);
    if (!rc)
        rc = signature_make(&key, message, len, v->comment ? v->comment : comment, out);
    explicit_bzero(&key, sizeof key);
    return rc;
}

/* Take the signature that --signature names. Whether it is of this message only its public key can tell (--trust). */
static int read_signature(const char *path, char out[SIGNATURE_TEXT_MAX])
{
    struct signature unused;
    CLEANUP_BYTES text = BYTES_INIT(KEY_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return rc;
    rc = signature_decode((const char *)text.data, text.len, &unused);
    if (rc)
        return error_set(rc, "%s %s", path, error_text());
    memcpy(out, text.data, text.len);
    out[text.len] = '\0';
    return 0;
}

/* Check the signature against the keys of --trust. */
static int check_signature(const struct sign_values *v, const struct image_ref *ref, const char *text)
{
    struct trust trust = {.count = 0};
    int rc = server_options_add_trust("--trust ", &v->trust, &trust);
    if (!rc)
        rc = trust_check(&trust, ref, text);
    if (rc != -EKEYREJECTED)
        return rc;
    return error_set(
        rc,
        "%.200s: no key of --trust has made this signature of %s:%s, so it is not put; 'granary sign IMAGE "
        "--message' prints what to sign",
        v->key ? v->key : v->signature, ref->name, ref->tag);
}

/* Read the tag, which must name the digest if one was given. */
static int resolve(const char *operand, const struct sign_values *v, struct image_ref *ref, struct store **out)
{
    int rc = open_image_store(operand, &v->access, ref, out);
    if (rc)
        return rc;
    const bool by_digest = ref->by_digest;
    const struct digest wanted = ref->digest;
    ref->by_digest = false;
    rc = repository_resolve(*out, ref, &ref->digest, NULL);
    if (!rc && by_digest && !digest_equal(&ref->digest, &wanted))
        rc = error_set(-ESTALE, "%s: the tag names another image by now; look at that one first", operand);
    return rc;
}

static int check(const struct invocation *inv)
{
    const struct sign_values *v = inv->values;
    struct image_ref ref;
    if ((v->key != NULL) + (v->signature != NULL) + v->message != 1)
        return options_wrong("give one of --key FILE, --signature FILE and --message");
    if (v->comment && !v->key)
        return options_wrong("--trusted-comment goes with --key: it is part of the signature");
    if (v->message && v->trust.count)
        return options_exclude("--message", "--trust", "no signature is put");
    if (v->message && v->json)
        return options_exclude("--message", "--json", "the text is printed as it is signed");
    if (image_ref_parse(inv->operands[0], &ref) || (!v->message && open_check_writable(&ref)))
        return CLI_USAGE;
    if (!*ref.tag)
        return options_wrong("%s: a tag is signed, not a digest alone; say NAME:TAG, or NAME:TAG@sha256:DIGEST",
                             inv->operands[0]);
    return 0;
}

static int cmd_sign_run(const struct invocation *inv)
{
    const struct sign_values *v = inv->values;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    char message[SIGNATURE_MESSAGE_MAX], text[SIGNATURE_TEXT_MAX], id[KEY_ID_TEXT_MAX], digest[PRINT_DIGEST_MAX];
    struct signature made;
    int rc = check(inv);
    if (!rc)
        rc = resolve(inv->operands[0], v, &ref, &store);
    if (rc)
        return rc;
    size_t len = signature_message(ref.name, ref.tag, &ref.digest, message);
    if (v->message) {
        fputs(message, stdout);
        return 0;
    }
    rc = v->key ? make_signature(v, &ref, message, len, text) : read_signature(v->signature, text);
    if (!rc)
        rc = signature_decode(text, strlen(text), &made);
    if (!rc)
        rc = check_signature(v, &ref, text);
    if (!rc)
        rc = repository_sign(store, ref.name, ref.tag, &ref.digest, text);
    if (rc)
        return rc;
    key_id_text(made.id, id);
    if (v->json)
        return print_json(json_pack("{s:o,s:s,s:s,s:o,s:s}", "store", json_lossy(ref.store), "name", ref.name, "tag",
                                    ref.tag, "digest", print_json_digest(&ref.digest), "key", id));
    printf("%s/%s:%s, which is %s, has a signature of key %s\n", ref.store, ref.name, ref.tag,
           print_digest(&ref.digest, digest), id);
    return 0;
}

const struct verb verb_sign = {
    .name = "sign",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Sign an image's tag, for readers that trust the key",
    .details =
        "Readers check it by --trust KEY. The signature says that NAME:TAG is the image with this digest, in any\n"
        "store. It is kept in the tag until the tag is put again: sign after each build. With a key that has a\n"
        "password, sign what --message prints by minisign -S -m, and give --signature the result; --trust checks it\n"
        "before it is put.",
    .options = rows,
    .values_size = sizeof(struct sign_values),
    .defaults = &defaults,
    .run = cmd_sign_run,
};
