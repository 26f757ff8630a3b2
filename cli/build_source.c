/* Builds the source from the inside out:
 *
 *     SOURCE, or what a list names of it -> judged by rules, --prefix-strip -+
 *     source of --add --------------------> judged by rules ----------------+-> joined -> overrides (uid, mode, ...)
 *
 * Each step wraps the source of the step before and owns it, so closing the outermost one closes all. Malformed options
 * are CLI_USAGE; a source that does not answer is an error.
 */
#include "cli/build_source.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "imagebuild/imagebuild.h"

typedef VEC(struct source_part) source_parts;

/* Add the rules in the order of the command line, since the last match decides. */
static int add_rules(const struct option_list *list, struct rules *rules)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < list->count; i++) {
        const char *option = list->rows[i]->name;
        if (!strcmp(option, "exclude-from"))
            rc = rules_add_file(rules, list->items[i]);
        else
            rc = rules_add(rules, !strcmp(option, "include"), list->items[i]);
        rc = rc ? error_prefix(rc, "--%s", option) : 0;
    }
    return rc;
}

/* Parse an octal mode. *have: it was given. */
static int parse_mode(const char *option, const char *text, bool *have, uint32_t *out)
{
    int rc = text ? text_parse_mode(option, text, 07777, out) : 0;
    *have = text && !rc;
    return rc;
}

/* Parse a user or group number. *have: it was given. */
static int parse_id(const char *option, const char *text, bool *have, uint32_t *out)
{
    uint64_t id = 0;
    int rc = text ? text_parse_uint(option, text, 0, UINT32_MAX - 1, &id) : 0;
    *have = text && !rc;
    *out = (uint32_t)id;
    return rc;
}

/* Parse --mtime: a time, or seconds since 1970. */
static int parse_time(const char *text, bool *have, int64_t *out)
{
    char *end;
    if (!text)
        return 0;
    if (text_parse_time(text, out)) {
        errno = 0;
        *out = strtoll(text, &end, 10);
        if (errno || end == text || *end)
            return error_set(-EINVAL, "--mtime: '%s' is no time; write 2026-11-20T23:01:02Z, or seconds since 1970",
                             text);
    }
    *have = true;
    return 0;
}

/* Parse the options that replace a source's own attributes. */
static int parse_overrides(const struct build_source_values *v, struct source_overrides *o)
{
    int rc = parse_id("--uid", v->uid, &o->have_uid, &o->uid);
    if (!rc)
        rc = parse_id("--gid", v->gid, &o->have_gid, &o->gid);
    if (!rc)
        rc = parse_mode("--mode", v->mode, &o->have_file_mode, &o->file_mode);
    if (!rc)
        rc = parse_mode("--dir-mode", v->dir_mode, &o->have_directory_mode, &o->directory_mode);
    return rc ? rc : parse_time(v->mtime, &o->have_mtime, &o->mtime);
}

static bool is_web(const char *url)
{
    return !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
}

/* Open a source. A malformed address is wrong usage; a source that does not answer is a failure. */
static int open_address(const char *url, const struct source_options *options, struct source **out)
{
    int rc = source_open(url, options, out);
    return rc == -EINVAL ? CLI_USAGE : rc;
}

/* Open SOURCE, or only the files of it that a list names. SOURCE "-" is this machine's files, whose names standard
 * input lists; the first name decides whether they are absolute. */
static int open_source(const char *url, const struct build_source_values *v, const struct source_options *options,
                       struct source **out)
{
    bool standard_input = !strcmp(url, "-");
    const char *file = standard_input ? "-" : v->files_from;
    if (!file)
        return open_address(url, options, out);
    struct path_list_config list_config = {.file = file, .nul = v->nul, .web_base = is_web(url) ? url : NULL};
    struct source_listed_config config = {
        .threads = options->connections, .ignore_missing = v->ignore_missing, .cancel = options->cancel};
    CLEANUP(cleanup_path_list) struct path_list *list = NULL;
    struct source *all;
    bool absolute = false;
    int rc = path_list_open(&list_config, &list);
    if (!rc && standard_input)
        rc = path_list_absolute(list, &absolute);
    if (!rc)
        rc = !standard_input ? open_address(url, options, &all)
             : absolute      ? source_local_open("", "/", options, &all)
                             : source_local_open(".", ".", options, &all);
    return rc ? rc : source_listed_open(all, steal_ptr(&list), &config, out);
}

/* Wrap a source so that the rules and the prefix apply. */
static int shape_source(const char *strip, const struct source_options *options, struct source **source)
{
    struct source_shape shape = {.rules = options->rules, .strip = strip};
    return shape.rules || shape.strip ? source_shape_open(*source, &shape, source) : 0;
}

/* Append a source, taking it over; it is closed on failure. */
static int add_part(source_parts *parts, const char *dir, struct source *source)
{
    struct source_part part = {.dir = dir, .source = source};
    if (!vec_push(parts, part))
        return 0;
    source_close(source);
    return error_no_memory();
}

/* Return SOURCE of "DIR=SOURCE"; NULL when text is not of that form. */
static const char *added_url(const char *text)
{
    const char *equals = strchr(text, '=');
    return equals && equals != text && equals[1] ? equals + 1 : NULL;
}

/* Open the sources of --add, append them to parts, and join all. The parts belong to *out afterwards. */
static int join_added(const struct option_list *add, const struct source_options *options, source_parts *parts,
                      struct source **out)
{
    CLEANUP_STRING_LIST dirs = {0};
    int rc = 0;
    for (size_t i = 0; !rc && i < add->count; i++) {
        const char *url = added_url(add->items[i]);
        struct source *source;
        rc = string_list_add(&dirs, "%.*s", (int)(url - 1 - add->items[i]), add->items[i]);
        if (!rc)
            rc = open_address(url, options, &source);
        if (!rc)
            rc = shape_source(NULL, options, &source);
        if (!rc)
            rc = add_part(parts, dirs.items[i], source);
    }
    if (!rc) {
        rc = source_join_open(parts->items, parts->len, out);
        parts->len = 0;
    }
    return rc;
}

/* Open SOURCE and the sources of --add, joined if there are any. Parts that were not joined are closed. */
static int open_all(const char *url, const struct build_source_values *v, const struct source_options *options,
                    struct source **out)
{
    source_parts parts = {0};
    int rc = open_source(url, v, options, out);
    if (!rc)
        rc = shape_source(v->prefix_strip, options, out);
    if (rc || !v->add.count)
        return rc;
    rc = add_part(&parts, "", *out);
    if (!rc)
        rc = join_added(&v->add, options, &parts, out);
    for (size_t i = 0; i < parts.len; i++)
        source_close(parts.items[i].source);
    vec_release(&parts);
    return rc;
}

bool build_source_any(const char *url, const struct build_source_values *v, bool (*is)(const char *url))
{
    bool any = is(url);
    for (size_t i = 0; i < v->add.count; i++) {
        const char *added = added_url(v->add.items[i]);
        any |= added && is(added);
    }
    return any;
}

bool build_source_is_tar(const char *url)
{
    return !strncmp(url, "tar:", 4);
}

/* A path that is not absolute would say nothing elsewhere. */
static void note_address(const char *url, struct provenance *out)
{
    char path[PATH_MAX], whole[PATH_MAX + 4];
    const char *tar = build_source_is_tar(url) ? "tar:" : "", *place = url + strlen(tar);
    bool relative = *place != '/' && strcmp(place, "-") != 0 && !strstr(place, "://");
    if (relative && realpath(place, path)) {
        snprintf(whole, sizeof whole, "%s%s", tar, path);
        url = whole;
    }
    provenance_add_source(out, url);
}

void build_source_note(const char *url, const struct build_source_values *v, struct provenance *out)
{
    note_address(url, out);
    for (size_t i = 0; i < v->add.count; i++)
        note_address(added_url(v->add.items[i]), out);
}

/* Find the web server in an address, which may have tar: in front. Returns the length of "http://host:port" at *out; 0:
 * no web server. */
static size_t web_server(const char *url, const char **out)
{
    *out = build_source_is_tar(url) ? url + strlen("tar:") : url;
    return is_web(*out) ? strcspn(strstr(*out, "://") + 3, "/") + (size_t)(strstr(*out, "://") + 3 - *out) : 0;
}

/* A token is for one server; refuse to send it to two. */
static int check_token(const char *url, const struct build_source_values *v)
{
    const char *first = NULL, *server;
    size_t first_len = 0;
    for (size_t i = 0; i <= v->add.count; i++) {
        size_t len = web_server(i ? added_url(v->add.items[i - 1]) : url, &server);
        if (len && first && (len != first_len || memcmp(server, first, len) != 0))
            return error_set(-EINVAL, "--http-token-file: %.*s and %.*s are two servers, and would both be sent it",
                             (int)first_len, first, (int)len, server);
        if (len) {
            first = server;
            first_len = len;
        }
    }
    return first ? 0 : error_set(-EINVAL, "--http-token-file: no source is a web server");
}

/* Check that the options fit the sources. */
static int build_source_check(const char *url, const struct build_source_values *v, bool with_token)
{
    if (v->files_from && !strcmp(url, "-"))
        return error_set(-EINVAL, "SOURCE '-' is a list of files already; leave out --files-from");
    if ((v->nul || v->ignore_missing) && !v->files_from && strcmp(url, "-") != 0)
        return error_set(-EINVAL, "%s: is about a list of files; name it by --files-from",
                         v->nul ? "-0" : "--ignore-missing");
    if (v->tar_dirs && !build_source_any(url, v, build_source_is_tar))
        return error_set(-EINVAL, "--tar-dirs: no source has tar shards; write tar: before its address");
    for (size_t i = 0; i < v->add.count; i++)
        if (!added_url(v->add.items[i]))
            return error_set(-EINVAL, "--add: '%s' is not DIR=SOURCE; write for example labels=s3://bucket/labels",
                             v->add.items[i]);
    return with_token ? check_token(url, v) : 0;
}

/* Print a word with its length, so that no two choices give the same text. */
static int print_word(struct bytes *out, const char *name, const char *word)
{
    return bytes_printf(out, "%s %zu %s\n", name, word ? strlen(word) : 0, word ? word : "");
}

/* Print every option that decides what a source's files become. The text is part of the keys of tar shards: when the
 * options change, a shard is read again. */
static int print_choice(const struct build_source_values *v, const struct rules *rules, struct bytes *out)
{
    const char *const words[] = {v->prefix_strip, v->uid, v->gid, v->mode, v->dir_mode, v->mtime};
    int rc = 0;
    out->max = 1 << 24;
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(words); i++)
        rc = print_word(out, words[i] ? "given" : "none", words[i]);
    for (size_t i = 0; !rc && i < v->add.count; i++)
        rc = print_word(out, "add", v->add.items[i]);
    if (!rc)
        rc = print_word(out, "skip", v->skip_bad_names ? "bad names" : NULL);
    if (!rc)
        rc = rules_print(rules, out);
    return rc ? error_set(rc, "the options cannot be kept as text: %s", strerror(-rc)) : 0;
}

/* Everything that can be checked without a request is checked first. The overrides come last, so that they hold for all
 * sources. */
int build_source_open(const char *url, const struct build_source_values *v, const struct source_options *options,
                      struct build_source *out)
{
    struct source_options shaped = *options;
    struct source *source = NULL;
    *out = (struct build_source){0};
    int rc = build_source_check(url, v, options->http_token_file);
    if (!rc)
        rc = rules_new(&out->rules);
    if (!rc)
        rc = add_rules(&v->rules, out->rules);
    if (!rc)
        rc = parse_overrides(v, &out->override);
    if (rc)
        return rc == -EINVAL ? CLI_USAGE : rc;
    shaped.rules = v->rules.count ? out->rules : NULL;
    shaped.tar_directories = v->tar_dirs;
    rc = print_choice(v, out->rules, &out->choice);
    shaped.choice = rc ? NULL : bytes_string(&out->choice);
    if (!shaped.choice)
        return rc ? rc : error_no_memory();
    rc = open_all(url, v, &shaped, &source);
    const struct source_overrides *o = &out->override;
    const struct source_shape last = {.override = *o};
    if (!rc && (o->have_uid || o->have_gid || o->have_file_mode || o->have_directory_mode || o->have_mtime))
        rc = source_shape_open(source, &last, &source);
    if (!rc)
        out->source = source;
    return rc;
}

/* The source refers to the rules, so it is closed first. */
void build_source_release(struct build_source *b)
{
    bytes_release(&b->choice);
    source_close(b->source);
    rules_free(b->rules);
}
