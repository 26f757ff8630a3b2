/* What is asked of a server that is started, by `granary serve` itself or by `granary mount`. */
#ifndef GRANARY_CLI_SERVER_OPTIONS_H
#define GRANARY_CLI_SERVER_OPTIONS_H

#include "base/vec.h"
#include "cli/default_cache.h"
#include "cli/open.h"
#include "cli/options.h"
#include "stack_options.h"

/* What was given of the options in the table that the plugin has too (stack_options.h): the first member of the values
 * of a verb that has SERVER_ROWS. */
#define SERVER_FIELD_NONE(field)
#define SERVER_FIELD_LIST(field) struct option_list field;
#define SERVER_FIELD_FLAG(field) bool field;
#define SERVER_FIELD_TEXT(field) const char *field;
#define SERVER_FIELD_URL(field) const char *field;
#define SERVER_FIELD(field, how, ...) SERVER_FIELD_##how(field)
struct server_values {
    STACK_OPTIONS(SERVER_FIELD, SERVER_FIELD)
};

/* clang-format off */
#define SERVER_ROW_NONE(field, option, shape, text)
#define SERVER_ROW_LIST(field, option, shape, text) {OPTION_LIST, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_FLAG(field, option, shape, text) {OPTION_FLAG, 0, option, NULL, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_TEXT(field, option, shape, text) {OPTION_TEXT, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_URL(field, option, shape, text) {OPTION_URL, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_OWN(field, how, key, option, shape, set, help) SERVER_ROW_##how(field, option, shape, help)
#define SERVER_VALUE(field, how, key, option, shape, type, low, high, zero, standard, place, help)                     \
    SERVER_ROW_##how(field, option, shape, STACK_OPTION_HELP(help, standard))
/* clang-format on */
/* The rows, each with a comma behind it. */
#define SERVER_ROWS STACK_OPTIONS(SERVER_OWN, SERVER_VALUE)

/* Nothing is to be kept on disk: --cache none, or GRANARY_CACHE=none, or --memory alone. */
bool server_options_no_cache(const struct server_values *v);

/* Without --cache, and where GRANARY_CACHE is set: put it in --cache's place. CLI_USAGE with a sentence: it is wrong.
 */
GR_MUST_CHECK int server_options_take_environment(struct server_values *v);

/* For a server about to start: without --cache, and unless server_options_no_cache, put GRANARY_CACHE or the default
 * cache in its place, with a line on stderr that says what the default is, or why there is none. `chosen` is to live as
 * long as the server; server_cache_release. */
struct server_cache {
    char spec[DEFAULT_CACHE_SPEC_MAX];
    int claim_fd; /* default_cache_make's */
};
#define SERVER_CACHE_NONE                                                                                              \
    {                                                                                                                  \
        .claim_fd = -1                                                                                                 \
    }
GR_MUST_CHECK int server_options_choose_cache(struct server_values *v, struct server_cache *chosen);
void server_cache_release(struct server_cache *chosen);
#define CLEANUP_SERVER_CACHE CLEANUP(server_cache_release) struct server_cache

/* CLI_USAGE, with a sentence, for what the plugin would refuse by its parameters' names once it has been started. */
GR_MUST_CHECK int server_options_check(const struct server_values *v);
/* The name of one that was given; NULL: none. The endpoint is the command's too, and does not count. */
const char *server_options_given(const struct server_values *v);

/* Words that say the same: to a front "cache=DIR:SIZE", "cache-compressed=yes"; to granary serve "--cache=DIR:SIZE",
 * "--cache-compressed". --store-connections is the plugin's connections=: mount has --connections of its own. */
enum server_form { SERVER_FOR_FRONT_END, SERVER_FOR_SERVE };
typedef VEC(char *) server_words;
GR_MUST_CHECK int server_options_words(const struct server_values *v, enum server_form form, server_words *out);
void server_words_release(server_words *words);
#define CLEANUP_SERVER_WORDS CLEANUP(server_words_release) server_words

#endif
