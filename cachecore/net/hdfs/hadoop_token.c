/* Hadoop's Credentials file, version 0 ("Writable"):
 *
 *   "HDTS" | 0 | vint tokens | token... | vint secrets | secret...          (the secrets are not read)
 *   token: text alias | vint len, identifier | vint len, password | text kind | text service
 *   text: vint len, UTF-8
 *   vint: one byte from -112 to 127 is the value itself; otherwise it says how many big-endian bytes follow
 *
 * The URL form of a token is the base64url, without padding, of its bytes from identifier to service, exactly as they
 * are in the file. So a token need not be understood, only its end must be found.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "net/hdfs/webhdfs_internal.h"

enum { TOKENS_MAX = 10000 };

struct reader {
    const uint8_t *p, *end;
};

static int damaged(void)
{
    return error_set(-EBADMSG, "Hadoop token file: damaged, or not whole; fetch the tokens again (hdfs fetchdt)");
}

/* Take a length, as Hadoop's WritableUtils.readVInt reads it. A negative one means that the file is damaged. */
static int take_length(struct reader *r, size_t *out)
{
    if (r->p == r->end)
        return damaged();
    int8_t first = (int8_t)*r->p++;
    uint64_t value = 0;
    if (first >= 0) {
        *out = (size_t)first;
        return 0;
    }
    int bytes = first >= -112 ? 0 : first >= -120 ? -112 - first : 0; /* below -120: a negative number */
    if (!bytes || bytes > 4 || r->end - r->p < bytes)
        return damaged();
    while (bytes--)
        value = value << 8 | *r->p++;
    *out = (size_t)value;
    return 0;
}

/* Take a length and that many bytes. */
static int take_field(struct reader *r, const uint8_t **out, size_t *out_len)
{
    int rc = take_length(r, out_len);
    if (rc)
        return rc;
    if ((size_t)(r->end - r->p) < *out_len)
        return damaged();
    *out = r->p;
    r->p += *out_len;
    return 0;
}

/* A token in the file's bytes; nothing is copied. */
struct token {
    const uint8_t *begin, *end; /* identifier to service */
    const char *kind, *service;
    size_t kind_len, service_len;
};

static int take_token(struct reader *r, struct token *out)
{
    const uint8_t *field;
    size_t len;
    int rc = take_field(r, &field, &len); /* alias */
    out->begin = r->p;
    for (int i = 0; !rc && i < 2; i++)
        rc = take_field(r, &field, &len); /* identifier, password */
    if (!rc)
        rc = take_field(r, (const uint8_t **)&out->kind, &out->kind_len);
    if (!rc)
        rc = take_field(r, (const uint8_t **)&out->service, &out->service_len);
    out->end = r->p;
    return rc;
}

/* Is the token for HDFS? The files also contain tokens of YARN, Hive and others. */
static bool is_hdfs(const struct token *t)
{
    static const char *const kinds[] = {"HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(kinds); i++)
        if (t->kind_len == strlen(kinds[i]) && !memcmp(t->kind, kinds[i], t->kind_len))
            return true;
    return false;
}

/* Return how well a token fits: 3: it is for one of the services; 2: for the host of one, with another port, which may
 * be that of RPC; 1: for some HDFS; 0: for something else. */
static int fitness(const struct token *t, const char *const *services, size_t count)
{
    int best = is_hdfs(t);
    for (size_t i = 0; best && i < count; i++) {
        size_t len = strlen(services[i]), host = (size_t)(strrchr(services[i], ':') - services[i]) + 1;
        if (t->service_len == len && !memcmp(t->service, services[i], len))
            best = 3;
        else if (t->service_len > host && !memcmp(t->service, services[i], host))
            best = GR_MAX(best, 2);
    }
    return best;
}

/* Write the token in base64url. */
static int url_form(const struct token *t, char **out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = (size_t)(t->end - t->begin);
    if (len > HADOOP_TOKEN_TEXT_MAX / 4 * 3)
        return damaged();
    char *w = *out = malloc((len + 2) / 3 * 4 + 1);
    if (!w)
        return error_no_memory();
    for (size_t i = 0; i < len; i += 3) {
        size_t have = GR_MIN(len - i, (size_t)3);
        uint32_t group = (uint32_t)t->begin[i] << 16;
        group |= have > 1 ? (uint32_t)t->begin[i + 1] << 8 : 0;
        group |= have > 2 ? t->begin[i + 2] : 0;
        for (size_t k = 0; k <= have; k++)
            *w++ = digits[group >> (18 - 6 * k) & 63];
    }
    *w = 0;
    return 0;
}

/* Decode Hadoop's format after its first five bytes. */
static int decode_writable(struct reader r, const char *const *services, size_t count, char **out)
{
    struct token token, chosen = {0};
    int chosen_fits = 0;
    size_t tokens;
    int rc = take_length(&r, &tokens);
    if (!rc && tokens > TOKENS_MAX)
        rc = damaged();
    for (size_t i = 0; !rc && i < tokens; i++) {
        rc = take_token(&r, &token);
        int fits = rc ? 0 : fitness(&token, services, count);
        if (fits > chosen_fits) {
            chosen = token;
            chosen_fits = fits;
        }
    }
    if (rc)
        return rc;
    if (!chosen_fits)
        return error_set(-ENOENT, "Hadoop token file: it holds no HDFS delegation token; fetch one (hdfs fetchdt)");
    return url_form(&chosen, out);
}

static bool is_base64url(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Decode text: one token in its URL form, perhaps followed by white space. */
static int decode_text(const char *text, size_t len, char **out)
{
    while (len && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
        len--;
    bool ok = len && len <= HADOOP_TOKEN_TEXT_MAX;
    for (size_t i = 0; ok && i < len; i++)
        ok = is_base64url(text[i]);
    if (!ok)
        return error_set(-EBADMSG, "Hadoop token file: neither Hadoop's own form nor one token's URL form; fetch the "
                                   "tokens again (hdfs fetchdt)");
    *out = strndup(text, len);
    return *out ? 0 : error_no_memory();
}

int hadoop_token_decode(const void *data, size_t len, const char *const *services, size_t count, char **out)
{
    const uint8_t *p = data;
    if (len > HADOOP_TOKEN_FILE_MAX)
        return error_set(-EBADMSG, "Hadoop token file: longer than %d bytes", HADOOP_TOKEN_FILE_MAX);
    if (len < 5 || memcmp(p, "HDTS", 4) || p[4] > 1)
        return decode_text(data, len, out);
    if (p[4] == 1)
        return error_set(-EBADMSG,
                         "Hadoop token file: the protobuf form is not read; write it in the other one (hadoop "
                         "dtutil with -format java)");
    return decode_writable((struct reader){.p = p + 5, .end = p + len}, services, count, out);
}
