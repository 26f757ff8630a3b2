/* granary config show, granary config check
 *
 * A setting comes from the first of: the command line, which is not known here; the environment; the configuration file
 * (base/config.h); the default. show prints each value that applies and where it comes from, in the form of the file: a
 * default is a comment where the same line of a file would mean something else. No setting is a secret, but a URL may
 * contain one by mistake: one with an '@' or a '?' is not shown.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "net/aws/s3.h"

#define EVERY_BUCKET "s3://"

struct config_values {
    bool json;
};

static const struct option_row show_rows[] = {
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct config_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Where settings are printed, or collected. */
struct listing {
    json_t *settings;    /* NULL: print text */
    const char *section; /* of the last line printed */
};

/* Return the value, unless it may contain a password or a token. */
static const char *without_secret(const char *value)
{
    return strstr(value, "://") && strpbrk(value, "@?") ? "(not shown: it has an '@' or a '?')" : value;
}

/* Show one setting. value: NULL if there is none; from: "file", "environment", "default" or "unset"; name: the
 * variable; line: in the file. */
static void show(struct listing *l, const char *section, const char *key, const char *value, const char *from,
                 const char *name, unsigned line)
{
    value = value ? without_secret(value) : NULL;
    if (l->settings) {
        json_array_append_new(l->settings, json_pack("{s:s,s:s,s:o,s:s,s:o,s:o}", "section", section, "key", key,
                                                     "value", value ? json_lossy(value) : json_null(), "from", from,
                                                     "variable", name ? json_string(name) : json_null(), "line",
                                                     line ? INTEGER(line) : json_null()));
        return;
    }
    if (!l->section || strcmp(l->section, section) != 0)
        printf("%s[%s]\n", l->section ? "\n" : "", section);
    l->section = section;
    /* Two defaults would mean something else as a line of the file: a cache needs a size there, which a server chooses
     * when it makes the default one, and an endpoint or a profile goes before what AWS's own files say. */
    bool comment = !value || (!strcmp(from, "default") && (!strcmp(key, "cache") || !strcmp(section, EVERY_BUCKET)));
    int width = printf("%s%s =%s%s", comment ? "#" : "", key, value ? " " : "", value ? value : "");
    printf("%*s  # ", width < 44 ? 44 - width : 0, "");
    if (line)
        printf("line %u\n", line);
    else
        printf("%s\n", name ? name : from);
}

/* Show what the environment says of a setting. */
static bool show_variable(struct listing *l, const char *section, const char *key, const char *const *names)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value && *value) {
            show(l, section, key, value, "environment", *names, 0);
            return true;
        }
    }
    return false;
}

/* Show every line that a section has for a key. */
static bool show_lines(struct listing *l, const struct config *c, const char *section, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < c->entries.len; i++) {
        const struct config_entry *e = &c->entries.items[i];
        if (!strcmp(e->section, section) && !strcmp(e->key, key)) {
            show(l, section, key, e->value, "file", NULL, e->line);
            found = true;
        }
    }
    return found;
}

/* Return the cache of a server for which nothing names one; NULL: this user has no place for it. */
static const char *default_cache(const struct config *c, char out[PATH_MAX])
{
    struct server_values v = {0};
    bool none = !server_options_read_config(c, &v) && server_options_no_cache(&v); /* memory alone */
    options_release_lists(server_option_rows, &v);
    return none ? "none" : server_options_default_cache(out) ? out : NULL;
}

/* Show the section of a table of options. */
static void show_section(struct listing *l, const struct config *c, const char *section, const struct option_row *rows)
{
    static const char *const cache[] = {"GRANARY_CACHE", NULL};
    char directory[PATH_MAX];
    for (const struct option_row *row = rows; row->kind; row++) {
        bool server = rows == server_option_rows;
        if (server && !server_options_in_config(row))
            continue;
        const char *standard = server ? server_options_default(row) : NULL;
        if (server && !strcmp(row->name, "cache") && show_variable(l, section, row->name, cache))
            continue;
        if (show_lines(l, c, section, row->name))
            continue;
        if (server && !strcmp(row->name, "cache"))
            standard = default_cache(c, directory);
        show(l, section, row->name, standard, standard ? "default" : "unset", NULL, 0);
    }
}

/* Check every section of a file that was read. */
int config_check_sections(const struct config *c)
{
    struct server_values unused = {0};
    int rc = server_options_read_config(c, &unused);
    options_release_lists(server_option_rows, &unused);
    return rc ? rc : mount_check_config(c);
}

/* What holds for every bucket is shown whether or not the file says anything of it. */
static void show_buckets(struct listing *l, const struct config *c)
{
    static const char *const endpoint[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const profile[] = {"AWS_PROFILE", NULL};
    char standard[S3_ENDPOINT_MAX];
    const char *aws = s3_standard_endpoint(standard) ? NULL : standard; /* AWS_REGION, or a profile, may be wrong */
    if (!show_variable(l, EVERY_BUCKET, "endpoint", endpoint) && !show_lines(l, c, EVERY_BUCKET, "endpoint"))
        show(l, EVERY_BUCKET, "endpoint", aws, aws ? "default" : "unset", NULL, 0);
    if (!show_variable(l, EVERY_BUCKET, "profile", profile) && !show_lines(l, c, EVERY_BUCKET, "profile"))
        show(l, EVERY_BUCKET, "profile", "default", "default", NULL, 0);
    for (size_t i = 0; i < c->entries.len; i++) {
        const struct config_entry *e = &c->entries.items[i];
        if (strcmp(e->section, "server") != 0 && strcmp(e->section, "mount") != 0 &&
            strcmp(e->section, EVERY_BUCKET) != 0 &&
            !show_variable(l, e->section, e->key, strcmp(e->key, "profile") ? endpoint : profile))
            show(l, e->section, e->key, e->value, "file", NULL, e->line);
    }
}

/* Show every setting that applies. */
static void show_all(struct listing *l, const struct config *c)
{
    show_section(l, c, "server", server_option_rows);
    show_section(l, c, "mount", mount_config_rows);
    show_buckets(l, c);
}

json_t *config_settings(const struct config *c)
{
    struct listing l = {.settings = json_array()};
    show_all(&l, c);
    return json_pack("{s:o,s:o}", "file", c->entries.len ? json_lossy(c->path) : json_null(), "settings", l.settings);
}

static int run_show(const struct invocation *inv)
{
    const struct config_values *v = inv->values;
    const struct config *c;
    struct listing l = {0};
    if (config_get(&c) || config_check_sections(c))
        return CLI_USAGE;
    if (v->json)
        return print_json(config_settings(c));
    if (c->path)
        printf("# %s%s\n", c->path, c->entries.len ? "" : ": no settings");
    show_all(&l, c);
    return 0;
}

static const struct verb verb_config_show = {
    .name = "config show",
    .operands = "",
    .summary = "Print every setting that applies without options, and where it comes from",
    .details =
        "The environment takes precedence over the file, and options over both. A URL with an @ or a ? is not shown.",
    .options = show_rows,
    .values_size = sizeof(struct config_values),
    .run = run_show,
};

static int run_check(const struct invocation *inv)
{
    const char *path = inv->operand_count ? inv->operands[0] : config_path();
    CLEANUP_CONFIG c = {0};
    if (!path)
        return options_wrong("GRANARY_CONFIG is none, so no file is read; name one");
    if (config_read(path, true, &c) || config_check_sections(&c))
        return CLI_USAGE;
    char count[TEXT_COUNT_MAX];
    printf("%s: no errors in %s\n", path, text_format_count(c.entries.len, "setting", count));
    return 0;
}

static const struct option_row no_rows[] = {{0}};

static const struct verb verb_config_check = {
    .name = "config check",
    .operands = "[FILE]",
    .max_operands = 1,
    .summary = "Check a configuration file before it is used",
    .details = "FILE is /etc/granary.conf, or what GRANARY_CONFIG names, unless given.",
    .options = no_rows,
    .run = run_check,
};

static const struct verb *const commands[] = {&verb_config_show, &verb_config_check, NULL};

const struct verb verb_config = {
    .name = "config",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Show or check the configuration file",
    .options = no_rows,
    .commands = commands,
    .run = options_need_command,
};
