/* The files are small INI files. Lines that are not understood are skipped, as the AWS tools do. Nested settings ("s3
 * =" with indented lines below) are read as if they were not nested. The text contains keys, so it is wiped after use.
 */
#include "net/aws/aws_profile.h"

#include <errno.h>
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
        wipe(owned[i]);
}

/* Cut white space off both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = 0;
    return text;
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
    const char *name = trim(line), *value = trim(equals + 1);
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (strcmp(name, table[i].name) == 0 && !table[i].set) {
            wipe(table[i].value);
            *table[i].value = *value ? strdup(value) : NULL;
            if (*value && !*table[i].value)
                return error_no_memory();
        }
    return 0;
}

/* Is this the title of the profile's section: "name", or in the config file "profile name"? */
static bool is_section_of(char *title, const char *name)
{
    title = trim(title);
    if (strncmp(title, "profile", 7) == 0 && (title[7] == ' ' || title[7] == '\t'))
        title = trim(title + 7);
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
        line = trim(line);
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
static int path_of(const char *variable, const char *below_home, char **out)
{
    const char *set = getenv(variable), *home = getenv("HOME");
    bool given = set && *set;
    *out = NULL;
    if (!given && !home)
        return 0;
    if (asprintf(out, "%s%s%s", given ? set : home, given ? "" : "/", given ? "" : below_home) >= 0)
        return 0;
    *out = NULL;
    return error_no_memory();
}

static int take_file(const char *path, struct aws_profile *p)
{
    struct bytes text = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(path, &text);
    if (!rc)
        rc = bytes_append(&text, "", 1);
    if (!rc)
        rc = take_text((char *)text.data, p);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    bytes_release(&text);
    return rc && rc != -ENOENT ? error_prefix(rc, "S3 credentials") : 0;
}

int aws_profile_load(const char *configured, struct aws_profile *out)
{
    const char *name = getenv("AWS_PROFILE");
    if (!name || !*name)
        name = configured;
    CLEANUP_FREE char *config = NULL;
    *out = (struct aws_profile){.named = name && *name};
    int rc = path_of("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &out->file);
    if (!rc)
        rc = path_of("AWS_CONFIG_FILE", ".aws/config", &config);
    if (!rc && !(out->name = strdup(out->named ? name : "default")))
        rc = error_no_memory();
    if (!rc && out->file)
        rc = take_file(out->file, out);
    if (!rc && config)
        rc = take_file(config, out);
    if (rc)
        aws_profile_release(out);
    return rc;
}
