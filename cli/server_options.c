/* The options come from the table in stack_options.h, which front ends use too. Here its values are
 *
 *   checked    as the server will parse them, so that a mistake is reported under the option's name before anything
 *              starts
 *   completed  by a default cache, or by GRANARY_CACHE
 *   written    as words again, for a front end (KEY=VALUE) or for granary serve (--KEY=VALUE)
 */
#include "cli/server_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

static const struct option_row rows[] = {SERVER_ROWS{0}};

/* The member of the values that a row sets. */
static const void *value_of(const struct server_values *v, const struct option_row *row)
{
    return (const char *)v + row->offset;
}

/* Return how often an option was given. */
static size_t count_of(const struct server_values *v, const struct option_row *row)
{
    switch (row->kind) {
    case OPTION_FLAG:
        return *(const bool *)value_of(v, row);
    case OPTION_LIST:
        return ((const struct option_list *)value_of(v, row))->count;
    default:
        return *(const char *const *)value_of(v, row) != NULL;
    }
}

/* The endpoint does not count, since the command itself needs it too. */
const char *server_options_given(const struct server_values *v)
{
    for (const struct option_row *row = rows; row->kind; row++)
        if (row->offset != offsetof(struct server_values, endpoint) && count_of(v, row))
            return row->name;
    return NULL;
}

/* Return the i-th value of an option as text; "yes" for a flag. */
static const char *text_of(const struct server_values *v, const struct option_row *row, size_t i)
{
    switch (row->kind) {
    case OPTION_FLAG:
        return "yes";
    case OPTION_LIST:
        return ((const struct option_list *)value_of(v, row))->items[i];
    default:
        return *(const char *const *)value_of(v, row);
    }
}

/* ---- checks ---- */

/* Parse every value as the server will, for the sentence only. */
static int check_words(const struct server_values *v)
{
    struct stack_options parsed;
    int rc = 0;
    stack_options_init(&parsed);
    for (const struct option_row *row = rows; !rc && row->kind; row++)
        for (size_t i = 0; !rc && i < count_of(v, row); i++)
            rc = stack_options_set_option(&parsed, row->name, text_of(v, row, i));
    stack_options_release(&parsed);
    return rc;
}

/* Options of the disk cache without a disk cache are refused, rather than ignored. */
int server_options_check(const struct server_values *v)
{
    bool none = server_options_no_cache(v);
    const char *of_cache = v->quotas.count       ? "quota"
                           : v->watermark        ? "watermark"
                           : v->disk_timeout     ? "disk-timeout"
                           : v->eviction         ? "eviction"
                           : v->cache_compressed ? "cache-compressed"
                                                 : NULL;
    if (v->fence && !strcmp(v->fence, "warmed") && none && !v->memory) {
        (void)error_set(0, "--fence needs --cache DIR:SIZE or --memory SIZE: without a cache nothing can be read");
        return CLI_USAGE;
    }
    if (of_cache && none) {
        (void)error_set(0, "--%s needs --cache DIR:SIZE", of_cache);
        return CLI_USAGE;
    }
    return check_words(v) ? CLI_USAGE : 0;
}

/* ---- the default cache ---- */

/* With --memory and no --cache there is no disk cache: the user has chosen where chunks are kept. */
bool server_options_no_cache(const struct server_values *v)
{
    if (v->caches.count)
        return !strcmp(v->caches.items[0], "none");
    const char *text = default_cache_environment();
    return text ? !strcmp(text, "none") : v->memory != NULL;
}

/* Put a --cache into the values; spec is not copied. */
static int take_cache(struct server_values *v, const char *spec)
{
    v->caches.items = calloc(1, sizeof *v->caches.items);
    if (!v->caches.items)
        return error_no_memory();
    v->caches.items[v->caches.count++] = spec;
    return 0;
}

/* Only parsed here; the values then hold the variable's text. */
int server_options_take_environment(struct server_values *v)
{
    const char *text = default_cache_environment();
    struct stack_options parsed;
    if (v->caches.count || !text)
        return 0;
    stack_options_init(&parsed);
    int rc = stack_options_set(&parsed, "cache", text);
    stack_options_release(&parsed);
    if (!rc)
        return take_cache(v, text);
    (void)error_prefix(0, "GRANARY_CACHE");
    return CLI_USAGE;
}

/* Failing to make a default cache is a warning: the server works without one. */
int server_options_choose_cache(struct server_values *v, struct server_cache *chosen)
{
    if (v->caches.count || server_options_no_cache(v))
        return 0;
    if (default_cache_environment())
        return server_options_take_environment(v);
    if (default_cache_make(chosen->spec, &chosen->claim_fd)) {
        log_warning("no cache on disk: %s; give --cache DIR:SIZE, or --cache none", error_text());
        return 0;
    }
    const char *spec = chosen->spec, *colon = strrchr(spec, ':');
    char size[TEXT_SIZE_MAX];
    log_info(
        "cache: %.*s, %s: half of the space that is free there; --cache DIR:SIZE chooses, --cache none keeps nothing",
        (int)(colon - spec), spec, text_format_size(strtoull(colon + 1, NULL, 10), size));
    if (!v->watermark)
        v->watermark = DEFAULT_CACHE_WATERMARK;
    return take_cache(v, spec);
}

void server_cache_release(struct server_cache *chosen)
{
    if (chosen->claim_fd >= 0)
        close(chosen->claim_fd);
}

/* ---- words ---- */

void server_words_release(server_words *words)
{
    for (size_t i = 0; i < words->len; i++)
        free(words->items[i]);
    vec_release(words);
}

/* Return the front end's name for the option. */
static const char *parameter_of(const struct option_row *row)
{
#define SERVER_KEY(field, how, key, option, ...) {option, key},
    static const struct {
        const char *option, *key;
    } names[] = {STACK_OPTIONS(SERVER_KEY, SERVER_KEY)};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++)
        if (!strcmp(names[i].option, row->name))
            return names[i].key;
    return row->name;
}

/* Add the option as a word in the form that the receiver wants. */
static int add_word(server_words *out, enum server_form form, const struct option_row *row, const char *value)
{
    char *word = NULL;
    bool flag = row->kind == OPTION_FLAG;
    int len = form == SERVER_FOR_FRONT_END ? asprintf(&word, "%s=%s", parameter_of(row), value)
                                           : asprintf(&word, "--%s%s%s", row->name, flag ? "" : "=", flag ? "" : value);
    if (len >= 0 && !vec_push(out, word))
        return 0;
    if (len >= 0)
        free(word);
    return error_no_memory();
}

/* Options in the table's order, not the command line's: mounts with the same options share a server. */
int server_options_words(const struct server_values *v, enum server_form form, server_words *out)
{
    int rc = 0;
    for (const struct option_row *row = rows; row->kind; row++)
        for (size_t i = 0; !rc && i < count_of(v, row); i++)
            rc = add_word(out, form, row, text_of(v, row, i));
    return rc;
}
