/* Where AWS credentials come from: the environment first, then one profile of the shared file. The
 * file is small INI text; what is not understood is skipped, as the AWS tools do. */
#include "net/credentials.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

enum { FILE_MAX = 1 << 20 };

static void wipe(char **secret)
{
    if (*secret)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

void credentials_release(struct credentials *c)
{
    wipe(&c->access_key);
    wipe(&c->secret_key);
    wipe(&c->session_token);
}

/* They travel in HTTP headers: a control byte or a space would break one. */
static bool usable(const char *value)
{
    if (!*value)
        return false;
    for (; *value; value++)
        if (*value <= 0x20 || *value >= 0x7f)
            return false;
    return true;
}

static int finish(const char *where, struct credentials *c)
{
    const char *bad = NULL;
    if (!c->access_key || !c->secret_key)
        bad = "only one of access key and secret key is there";
    else if (!usable(c->access_key) || !usable(c->secret_key) || (c->session_token && !usable(c->session_token)))
        bad = "a key is empty or holds a space or control character";
    if (!bad)
        return 0;
    credentials_release(c);
    return error_set(-EINVAL, "S3 credentials in %s: %s; set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", where,
                     bad);
}

static char *copy_set(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = 0;
    return text;
}

static void take_line(char *line, struct credentials *c)
{
    char *equals = strchr(line, '=');
    if (!equals)
        return;
    *equals = 0;
    const char *name = trim(line), *value = trim(equals + 1);
    char **into = strcmp(name, "aws_access_key_id") == 0       ? &c->access_key
                  : strcmp(name, "aws_secret_access_key") == 0 ? &c->secret_key
                  : strcmp(name, "aws_session_token") == 0     ? &c->session_token
                                                               : NULL;
    if (!into)
        return;
    wipe(into);
    *into = copy_set(value);
}

/* Take the profile's lines of INI text, which is cut up on the way. */
static void take_profile(char *text, const char *profile, struct credentials *c)
{
    bool inside = false;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        line = trim(line);
        if (*line == '#' || *line == ';')
            continue;
        char *end = *line == '[' ? strchr(line, ']') : NULL;
        if (end) {
            *end = 0;
            inside = strcmp(trim(line + 1), profile) == 0;
        } else if (inside) {
            take_line(line, c);
        }
    }
}

static char *shared_file(void)
{
    const char *set = getenv("AWS_SHARED_CREDENTIALS_FILE"), *home = getenv("HOME");
    if (set && *set)
        return strdup(set);
    char *path = NULL;
    if (!home || asprintf(&path, "%s/.aws/credentials", home) < 0)
        return NULL;
    return path;
}

static int load_file(const char *path, const char *profile, struct credentials *out)
{
    struct bytes text = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(path, &text);
    char *string = rc ? NULL : bytes_string(&text);
    if (string)
        take_profile(string, profile, out);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    bytes_release(&text);
    if (rc && rc != -ENOENT)
        return error_prefix(rc, "S3 credentials");
    if (!out->access_key && !out->secret_key)
        return error_set(-ENOENT,
                         "no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set and %s has no "
                         "profile '%s'; AWS_NO_SIGN_REQUEST=1 reads public data without any",
                         path, profile);
    return finish(path, out);
}

int credentials_load(struct credentials *out)
{
    *out = (struct credentials){
        .access_key = copy_set(getenv("AWS_ACCESS_KEY_ID")),
        .secret_key = copy_set(getenv("AWS_SECRET_ACCESS_KEY")),
    };
    if (out->access_key || out->secret_key) {
        out->session_token = copy_set(getenv("AWS_SESSION_TOKEN"));
        return finish("the environment", out);
    }
    const char *profile = getenv("AWS_PROFILE");
    CLEANUP_FREE char *path = shared_file();
    if (!path)
        return error_set(-ENOENT, "no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and "
                                  "without HOME there is no ~/.aws/credentials");
    int rc = load_file(path, profile && *profile ? profile : "default", out);
    if (rc)
        credentials_release(out);
    return rc;
}
