/* Image references. The name is the last path component, so a store's URL may have any depth:
 *
 *   s3://bucket/some/prefix/faces:v1@sha256:...
 *   |---- store ----------| |name|tag|  digest
 *
 * User names and passwords in URLs are refused, because a store's URL appears in messages and logs.
 * That check comes first, so that no later sentence can show one.
 */
#include "format/image_ref.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const char *const schemes[] = {"file", "s3", "http", "https", "hdfs", "swebhdfs"};
static const char *const form = "write STORE/NAME[:TAG] or STORE/NAME@sha256:DIGEST, for instance "
                                "s3://bucket/prefix/faces:latest or /srv/images/faces";

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Is this a valid name or tag: [A-Za-z0-9][A-Za-z0-9._-]*? So "." and ".." are none, and a key needs no escapes. */
static bool name_valid(const char *text, size_t len)
{
    if (len == 0 || len > IMAGE_NAME_MAX || !is_alnum(text[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!is_alnum(text[i]) && !strchr("._-", text[i]))
            return false;
    return true;
}

int image_ref_check_name(const char *what, const char *text)
{
    if (name_valid(text, strlen(text)))
        return 0;
    return error_set(-EINVAL,
                     "%s \"%s\" is not valid: at most %d letters, digits, '.', '_' and '-', beginning with a letter or "
                     "digit",
                     what, text, IMAGE_NAME_MAX);
}

static bool scheme_known(const char *text, size_t len)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(schemes); i++)
        if (strlen(schemes[i]) == len && !memcmp(schemes[i], text, len))
            return true;
    return false;
}

/* Refuse a URL with a user or password; the sentence does not show it. In a path of file:// an '@' is harmless. */
static int refuse_password(const char *text)
{
    const char *colon = strstr(text, "://");
    if (!colon || !memchr(colon + 3, '@', strcspn(colon + 3, "/")) || !strncmp(text, "file:", 5))
        return 0;
    return error_set(-EINVAL, "reference: a user or password in a store's URL is not allowed: credentials come from "
                              "the environment or the shared files");
}

const char *image_ref_advice(const char *url)
{
    static const struct {
        const char *scheme, *advice;
    } others[] = {
        {"gs://", "Google Cloud Storage speaks S3: write s3://BUCKET/PREFIX with --endpoint "
                  "https://storage.googleapis.com and an HMAC key"},
        {"oss://", "Alibaba OSS speaks S3: write s3://BUCKET/PREFIX with --endpoint https://oss-REGION.aliyuncs.com"},
        {"az://", "Azure does not speak S3: write s3://BUCKET/PREFIX with the --endpoint of an S3 gateway before it"},
        {"abfs", "Azure does not speak S3: write s3://BUCKET/PREFIX with the --endpoint of an S3 gateway before it"},
        {"wasb", "Azure does not speak S3: write s3://BUCKET/PREFIX with the --endpoint of an S3 gateway before it"},
        {"s3a://", "write s3:// in place of s3a://"},
        {"s3n://", "write s3:// in place of s3n://"},
    };
    if (!strcmp(url, "s3:") || !strcmp(url, "s3:/") || !strncmp(url, "s3:///", 6) || !strcmp(url, "s3://"))
        return "it names no bucket: write s3://BUCKET/PREFIX";
    for (size_t i = 0; i < GR_ARRAY_SIZE(others); i++)
        if (!strncmp(url, others[i].scheme, strlen(others[i].scheme)) && strstr(url, "://"))
            return others[i].advice;
    return NULL;
}

/* Set the sentence for a store that is neither an absolute path nor a URL of a known scheme. */
static int refuse_scheme(const char *whole)
{
    const char *advice = image_ref_advice(whole);
    if (advice)
        return error_set(-EINVAL, "reference \"%s\": %s", whole, advice);
    if (!strstr(whole, "://") && (*whole == '.' || strchr(whole, '/')))
        return error_set(-EINVAL, "reference \"%s\": a relative path; write it from the root on, as \"$PWD/%s\"", whole,
                         whole + (strncmp(whole, "./", 2) ? 0 : 2));
    if (!strstr(whole, "://"))
        return error_set(-EINVAL,
                         "\"%s\" is no store; write its path or URL, for instance /srv/images or s3://bucket/prefix",
                         whole);
    return error_set(-EINVAL,
                     "reference \"%s\": the store is an absolute path or a URL that begins with file://, s3://, "
                     "http://, https://, hdfs:// or swebhdfs://; %s",
                     whole, form);
}

/* Copy the store, the first len bytes of text, to out, with file:// before a plain path and without final slashes.
 * Check that the URL has every part that its scheme needs. */
static int set_store(const char *whole, const char *text, size_t len, char out[IMAGE_STORE_MAX])
{
    const char *prefix = text[0] == '/' ? "file://" : "";
    while (len > 0 && text[len - 1] == '/')
        len--;
    if (strlen(prefix) + len >= IMAGE_STORE_MAX)
        return error_set(-EINVAL, "reference: the store's URL is longer than %d bytes", IMAGE_STORE_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return error_set(-EINVAL, "reference \"%s\": control characters are not allowed", whole);
    snprintf(out, IMAGE_STORE_MAX, "%s%.*s", prefix, (int)len, text);

    const char *colon = strstr(out, "://");
    if (!colon || !scheme_known(out, (size_t)(colon - out)))
        return refuse_scheme(whole);
    const char *rest = colon + 3;
    /* file:// has a path and no host; all others have a host. */
    bool local = !strncmp(out, "file://", 7);
    size_t host = strcspn(rest, "/");
    if (rest[0] == '\0' || local != (host == 0))
        return error_set(-EINVAL, "reference \"%s\": the store has no %s; %s", whole,
                         local ? "absolute path of a directory" : "host or bucket", form);
    if (!strncmp(out, "http", 4) && strpbrk(rest, "?#"))
        return error_set(-EINVAL, "reference \"%s\": '?' and '#' are not allowed in a store's URL", whole);
    return 0;
}

/* Parse "@sha256:DIGEST". */
static int set_digest(const char *whole, const char *at, struct image_ref *out)
{
    static const char algorithm[] = "@sha256:";
    size_t skip = sizeof algorithm - 1;
    if (strncmp(at, algorithm, skip) || digest_parse(at + skip, strlen(at + skip), &out->digest))
        return error_set(-EINVAL, "reference \"%s\": write sha256: and 64 lower-case hex digits after '@'", whole);
    out->by_digest = true;
    return 0;
}

/* Parse the part after the last slash: NAME[:TAG][@sha256:DIGEST]. */
static int set_name(const char *whole, const char *last, struct image_ref *out)
{
    size_t name_len = strcspn(last, ":@"), len = strcspn(last, "@");
    if (!name_valid(last, name_len))
        return error_set(-EINVAL, "reference \"%s\": no valid image name after the last '/'; %s", whole, form);
    memcpy(out->name, last, name_len);
    if (name_len < len) {
        const char *tag = last + name_len + 1;
        size_t tag_len = len - name_len - 1;
        if (!name_valid(tag, tag_len))
            return error_set(-EINVAL, "reference \"%s\": the tag \"%.*s\" is not valid; %s", whole, (int)tag_len, tag,
                             form);
        memcpy(out->tag, tag, tag_len);
    }
    if (last[len])
        return set_digest(whole, last + len, out);
    if (!out->tag[0])
        memcpy(out->tag, "latest", sizeof "latest");
    return 0;
}

int image_ref_parse(const char *text, struct image_ref *out)
{
    struct image_ref ref = {.by_digest = false};
    int rc = refuse_password(text);
    if (rc)
        return rc;
    if (image_ref_advice(text))
        return refuse_scheme(text);
    const char *slash = strrchr(text, '/');
    if (!slash)
        return error_set(-EINVAL, "reference \"%s\" names no store; %s", text, form);
    /* "s3://faces": what follows the last slash is the bucket. */
    if (slash > text && slash[-1] == '/' && slash[1] && strstr(text, "://") == slash - 2)
        return error_set(-EINVAL, "reference \"%s\" names a store and no image in it; %s", text, form);
    rc = set_name(text, slash + 1, &ref);
    if (!rc)
        rc = set_store(text, text, (size_t)(slash - text), ref.store);
    if (!rc)
        *out = ref;
    return rc;
}

char *image_ref_text(const struct image_ref *ref, char out[IMAGE_REF_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, IMAGE_REF_MAX, "%s/%s%s%s%s%s", ref->store, ref->name, ref->tag[0] ? ":" : "", ref->tag,
             ref->by_digest ? "@sha256:" : "", ref->by_digest ? digest_hex(&ref->digest, hex) : "");
    return out;
}

int image_ref_parse_store(const char *text, struct image_ref *out)
{
    struct image_ref ref = {.by_digest = false};
    int rc = refuse_password(text);
    if (!rc)
        rc = set_store(text, text, strlen(text), ref.store);
    if (!rc)
        *out = ref;
    return rc;
}

bool image_ref_is_version(const char *name, const char *followed)
{
    return text_begins_with(name, followed) && text_begins_with(name + strlen(followed), "@sha256:");
}
