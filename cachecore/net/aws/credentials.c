/* Credentials from the environment and the shared files. Keys are wiped before they are freed, and checked before use:
 * a key with a line end could smuggle a header into a request.
 */
#include "net/aws/credentials.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

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

/* May this value stand in an HTTP header? Control bytes and spaces would break one. */
static bool usable(const char *value)
{
    if (!*value)
        return false;
    for (; *value; value++)
        if (*value <= 0x20 || *value >= 0x7f)
            return false;
    return true;
}

/* Check that both keys are there and may stand in an HTTP header. -EINVAL: not so; *c is released. */
static int credentials_check(const char *where, struct credentials *c)
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

/* Copy text, which may be NULL, to *out. */
static int copy(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return *out || !text ? 0 : error_no_memory();
}

int credentials_copy(const char *where, const char *access, const char *secret, const char *token,
                     struct credentials *out)
{
    *out = (struct credentials){0};
    int rc = copy(access, &out->access_key);
    if (!rc)
        rc = copy(secret, &out->secret_key);
    if (!rc)
        rc = copy(token, &out->session_token);
    if (!rc)
        return credentials_check(where, out);
    credentials_release(out);
    return rc;
}

static const char *credentials_set_value(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool credentials_in_environment(void)
{
    return credentials_set_value("AWS_ACCESS_KEY_ID") || credentials_set_value("AWS_SECRET_ACCESS_KEY");
}

int credentials_from_profile(struct aws_profile *p, struct credentials *out)
{
    *out = (struct credentials){.access_key = steal_ptr(&p->access_key),
                                .secret_key = steal_ptr(&p->secret_key),
                                .session_token = steal_ptr(&p->session_token)};
    if (out->access_key || out->secret_key)
        return credentials_check(p->file ? p->file : "the shared files", out);
    credentials_release(out);
    if (!p->file)
        return error_set(-ENOENT, "no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and "
                                  "without HOME there is no ~/.aws/credentials");
    return error_set(-ENOENT,
                     "no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set and %s has no "
                     "profile '%s'; AWS_NO_SIGN_REQUEST=1 reads public data without any",
                     p->file, p->name);
}

int credentials_load(const char *profile, struct credentials *out)
{
    if (credentials_in_environment()) { /* one key alone is an error, not a reason to go on to the files */
        return credentials_copy("the environment", credentials_set_value("AWS_ACCESS_KEY_ID"),
                                credentials_set_value("AWS_SECRET_ACCESS_KEY"),
                                credentials_set_value("AWS_SESSION_TOKEN"), out);
    }
    *out = (struct credentials){0};
    struct aws_profile p CLEANUP(aws_profile_release) = {0};
    int rc = aws_profile_load(profile, &p);
    return rc ? rc : credentials_from_profile(&p, out);
}
