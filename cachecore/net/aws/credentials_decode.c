/* The XML is searched as text. The values are base64 and dates, which need no escapes; a value with an escape would be
 * refused as a key by the server. Copies of secrets are wiped.
 */
#include "net/aws/credentials_decode.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static int unexpected(const char *service)
{
    return error_set(-EIO, "S3 credentials from %s: the answer is not what such a service says", service);
}

/* Parse "2026-11-22T01:02:03Z", perhaps with a fraction, or with "+00:00" for the Z. */
static int parse_expiration(const char *text, int64_t *out)
{
    char plain[] = "0000-00-00T00:00:00Z";
    size_t seconds = sizeof plain - 2, len = strlen(text);
    if (len <= seconds || (text[len - 1] != 'Z' && strcmp(text + len - 6, "+00:00")))
        return -EINVAL;
    memcpy(plain, text, seconds);
    return text_parse_time(plain, out);
}

/* Copy the values to *out and check them. No expiration means that the keys do not expire. */
static int credentials_decode_take(const char *service, const char *access, const char *secret, const char *token,
                                   const char *expiration, struct credentials *out)
{
    int64_t expires = 0;
    *out = (struct credentials){0};
    if (!access || !secret || (expiration && parse_expiration(expiration, &expires)))
        return unexpected(service);
    int rc = credentials_copy(service, access, secret, token && *token ? token : NULL, out);
    out->expires = rc ? 0 : expires;
    return rc;
}

int credentials_decode_json(const char *service, const void *json, size_t len, struct credentials *out)
{
    *out = (struct credentials){0};
    json_t *root = len ? json_loadb(json, len, 0, NULL) : NULL;
    const char *access = json_string_value(json_object_get(root, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(root, "SecretAccessKey"));
    const char *token = json_string_value(json_object_get(root, "Token"));
    const char *expiration = json_string_value(json_object_get(root, "Expiration"));
    int rc = credentials_decode_take(service, access, secret, token, expiration, out);
    json_decref(root);
    return rc;
}

/* Return the text of the first element with this tag; the caller wipes and frees it. NULL: there is none. */
static char *element(const char *xml, size_t len, const char *tag)
{
    char open[64];
    size_t open_len = (size_t)snprintf(open, sizeof open, "<%s>", tag);
    const char *start = len ? memmem(xml, len, open, open_len) : NULL;
    if (!start)
        return NULL;
    start += open_len;
    const char *end = memchr(start, '<', (size_t)(xml + len - start));
    return end && !memchr(start, 0, (size_t)(end - start)) ? strndup(start, (size_t)(end - start)) : NULL;
}

int credentials_decode_sts(const char *service, const void *xml, size_t len, struct credentials *out)
{
    static const char *const tags[] = {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"};
    char *values[GR_ARRAY_SIZE(tags)];
    for (size_t i = 0; i < GR_ARRAY_SIZE(tags); i++)
        values[i] = element(xml, len, tags[i]);
    int rc = credentials_decode_take(service, values[0], values[1], values[2], values[3], out);
    for (size_t i = 0; i < GR_ARRAY_SIZE(tags); i++) {
        if (values[i])
            explicit_bzero(values[i], strlen(values[i]));
        free(values[i]);
    }
    return rc;
}
