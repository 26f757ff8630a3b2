/* Credentials from the environment and the shared files. Keys are wiped before they are freed, and checked before use:
 * a key with a line end could smuggle a header into a request.
 *
 * The shared files are small INI files. Lines that are not understood are skipped, as the AWS tools do. Nested settings
 * ("s3 =" with indented lines below) are read as if they were not nested. The text contains keys, so it is wiped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "net/aws/aws_internal.h"

/* ------------------------------------------------------------------ the shared files */

enum { FILE_MAX = 1 << 20 };

void aws_profile_release(struct aws_profile *p)
{
    char **const owned[] = {&p->name,
                            &p->file,
                            &p->access_key,
                            &p->secret_key,
                            &p->session_token,
                            &p->region,
                            &p->addressing_style,
                            &p->role_arn,
                            &p->role_session_name,
                            &p->web_identity_token_file};
    for (size_t i = 0; i < GR_ARRAY_SIZE(owned); i++)
        text_wipe(owned[i]);
}

/* Take one line NAME=VALUE. Within a file the last line wins; a value that an earlier file set (`before`) stays.
 * -ENOMEM.
 */
static int aws_profile_take_line(char *line, struct aws_profile *p, const struct aws_profile *before)
{
    const struct {
        const char *name;
        char **value;
        const char *set;
    } table[] = {
        {"aws_access_key_id", &p->access_key, before->access_key},
        {"aws_secret_access_key", &p->secret_key, before->secret_key},
        {"aws_session_token", &p->session_token, before->session_token},
        {"region", &p->region, before->region},
        {"addressing_style", &p->addressing_style, before->addressing_style},
        {"role_arn", &p->role_arn, before->role_arn},
        {"role_session_name", &p->role_session_name, before->role_session_name},
        {"web_identity_token_file", &p->web_identity_token_file, before->web_identity_token_file},
    };
    char *equals = strchr(line, '=');
    if (!equals)
        return 0;
    *equals = 0;
    const char *name = text_trim(line), *value = text_trim(equals + 1);
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (strcmp(name, table[i].name) == 0 && !table[i].set) {
            text_wipe(table[i].value);
            *table[i].value = *value ? strdup(value) : NULL;
            if (*value && !*table[i].value)
                return error_no_memory();
        }
    return 0;
}

/* Is this the title of the profile's section: "name", or in the config file "profile name"? */
static bool is_section_of(char *title, const char *name)
{
    title = text_trim(title);
    if (strncmp(title, "profile", 7) == 0 && (title[7] == ' ' || title[7] == '\t'))
        title = text_trim(title + 7);
    return strcmp(title, name) == 0;
}

/* Take the profile's lines out of a file's text, which is modified. */
static int take_text(char *text, struct aws_profile *p)
{
    const struct aws_profile before = *p;
    bool inside = false;
    char *rest = text, *line;
    int rc = 0;
    while (!rc && (line = strsep(&rest, "\n"))) {
        line = text_trim(line);
        if (*line == '#' || *line == ';')
            continue;
        char *end = *line == '[' ? strchr(line, ']') : NULL;
        if (end) {
            *end = 0;
            inside = is_section_of(line + 1, p->name);
        } else if (inside) {
            rc = aws_profile_take_line(line, p, &before);
        }
    }
    return rc;
}

/* Make a file's path, from the variable or below HOME; *out is NULL if HOME is not set. */
static int credentials_path(const char *variable, const char *below_home, char **out)
{
    const char *given = text_of_environment(variable), *home = getenv("HOME");
    *out = NULL;
    if (!given && !home)
        return 0;
    if (asprintf(out, "%s%s%s", given ? given : home, given ? "" : "/", given ? "" : below_home) >= 0)
        return 0;
    *out = NULL;
    return error_no_memory();
}

static int take_file(const char *path, struct aws_profile *p)
{
    struct bytes text CLEANUP(bytes_wipe) = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(path, &text);
    if (!rc)
        rc = bytes_append(&text, "", 1);
    if (!rc)
        rc = take_text((char *)text.data, p);
    return rc && rc != -ENOENT ? error_prefix(rc, "S3 credentials") : 0;
}

int aws_profile_load(const char *configured, struct aws_profile *out)
{
    const char *name = text_of_environment("AWS_PROFILE");
    CLEANUP_FREE char *config = NULL;
    if (!name)
        name = configured;
    *out = (struct aws_profile){.named = name};
    int rc = credentials_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &out->file);
    if (!rc)
        rc = credentials_path("AWS_CONFIG_FILE", ".aws/config", &config);
    if (!rc && !(out->name = strdup(name ? name : "default")))
        rc = error_no_memory();
    if (!rc && out->file)
        rc = take_file(out->file, out);
    if (!rc && config)
        rc = take_file(config, out);
    if (rc)
        aws_profile_release(out);
    return rc;
}

/* ------------------------------------------------------------------ credentials */

void credentials_release(struct credentials *c)
{
    text_wipe(&c->access_key);
    text_wipe(&c->secret_key);
    text_wipe(&c->session_token);
}

void lent_credentials_drop(struct lent_credentials *l)
{
    if (!l || --l->holders)
        return;
    credentials_release(&l->keys);
    free(l);
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

bool credentials_in_environment(void)
{
    return text_of_environment("AWS_ACCESS_KEY_ID") || text_of_environment("AWS_SECRET_ACCESS_KEY");
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
        return credentials_copy("the environment", text_of_environment("AWS_ACCESS_KEY_ID"),
                                text_of_environment("AWS_SECRET_ACCESS_KEY"), text_of_environment("AWS_SESSION_TOKEN"),
                                out);
    }
    *out = (struct credentials){0};
    struct aws_profile p CLEANUP(aws_profile_release) = {0};
    int rc = aws_profile_load(profile, &p);
    return rc ? rc : credentials_from_profile(&p, out);
}
