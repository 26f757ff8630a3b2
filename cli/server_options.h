/* What `granary serve` and `granary mount` share: the options of the server that they start, its default cache, and its
 * images, named by digest. */
#ifndef GRANARY_CLI_SERVER_OPTIONS_H
#define GRANARY_CLI_SERVER_OPTIONS_H

#include <limits.h>

#include "cli/options.h"
#include "repository/resolver.h"
#include "repository/trust.h"
#include "stack_options.h"

/* The values of the options in stack_options.h, the table that front ends share: a verb with SERVER_ROWS has this as
 * the first member of its values. */
#define SERVER_FIELD_NONE(field)
#define SERVER_FIELD_LIST(field) struct option_list field;
#define SERVER_FIELD_FLAG(field) enum option_switch field;
#define SERVER_FIELD_TEXT(field) const char *field;
#define SERVER_FIELD_URL(field) const char *field;
#define SERVER_FIELD(field, how, ...) SERVER_FIELD_##how(field)
struct server_values {
    STACK_OPTIONS(SERVER_FIELD, SERVER_FIELD)
};

/* clang-format off */
#define SERVER_ROW_NONE(field, option, shape, text)
#define SERVER_ROW_LIST(field, option, shape, text) {OPTION_LIST, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_FLAG(field, option, shape, text) {OPTION_SWITCH, 0, option, NULL, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_TEXT(field, option, shape, text) {OPTION_TEXT, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_ROW_URL(field, option, shape, text) {OPTION_URL, 0, option, shape, offsetof(struct server_values, field), 0, 0, text},
#define SERVER_OWN(field, how, key, option, shape, set, help) SERVER_ROW_##how(field, option, shape, help)
#define SERVER_VALUE(field, how, key, option, shape, type, low, high, zero, standard, place, help)                     \
    SERVER_ROW_##how(field, option, shape, STACK_OPTION_HELP(help, standard))
/* clang-format on */
/* The rows, each followed by a comma. */
#define SERVER_ROWS STACK_OPTIONS(SERVER_OWN, SERVER_VALUE)

/* Whether nothing is to be kept on disk: --cache none, GRANARY_CACHE=none, or --memory alone. */
bool server_options_no_cache(const struct server_values *v);

/* The options as rows, ended by OPTION_END, with offsets into struct server_values. */
extern const struct option_row server_option_rows[];

/* Let the [server] section of the configuration file fill in what was not given; GRANARY_CACHE goes before its cache.
 * Call it before anything else here. CLI_USAGE, with a sentence: the file is wrong. */
GR_MUST_CHECK int server_options_take_config(struct server_values *v);
/* Read the [server] section of a file, and parse each value as the server will. out: all zero; release it by
 * options_release_lists in any case. CLI_USAGE, with a sentence. */
GR_MUST_CHECK int server_options_read_config(const struct config *c, struct server_values *out);
/* Whether [server] may have that option. */
bool server_options_in_config(const struct option_row *row);
/* Add public keys; what: as for trust_add. 0, or CLI_USAGE with a sentence. */
GR_MUST_CHECK int server_options_add_trust(const char *what, const struct option_list *keys, struct trust *out);
/* Fill in the keys that --trust names, else those of the [server] section. 0, or CLI_USAGE with a sentence. */
GR_MUST_CHECK int server_options_trust(const struct option_list *given, struct trust *out);
/* Return an option's default as a user would write it; NULL: it has none. */
const char *server_options_default(const struct option_row *row);

/* Let GRANARY_CACHE, if set, stand in for a missing --cache. CLI_USAGE, with a sentence: its value is wrong. */
GR_MUST_CHECK int server_options_take_environment(struct server_values *v);

/* The directory of the default cache: /var/cache/granary for root; for others $XDG_CACHE_HOME/granary or
 * ~/.cache/granary. false: neither variable is set. XDG_CACHE_HOME counts only if it is absolute, as the XDG
 * specification requires. */
bool server_options_default_cache(char out[PATH_MAX]);

/* Add every cache directory that the server has, or would have; they need not exist. CLI_USAGE, with a sentence;
 * -ENOMEM. */
GR_MUST_CHECK int server_options_cache_dirs(const struct server_values *v, string_list *out);

/* The cache of a server that was started without --cache: choose it before the server starts, release it
 * (server_cache_release) after its end. */
struct server_cache {
    char spec[PATH_MAX + 32]; /* "DIR:SIZE" */
    int claim_fd; /* held as long as the server lives, so that another one finds the directory in use; -1: none */
};
#define SERVER_CACHE_NONE                                                                                              \
    {                                                                                                                  \
        .claim_fd = -1                                                                                                 \
    }
GR_MUST_CHECK int server_options_choose_cache(struct server_values *v, struct server_cache *chosen);
void server_cache_release(struct server_cache *chosen);
#define CLEANUP_SERVER_CACHE CLEANUP(server_cache_release) struct server_cache

/* Return CLI_USAGE, with a sentence, for values that the front end would refuse later under its parameters' names. */
GR_MUST_CHECK int server_options_check(const struct server_values *v);
/* Return the name of an option that was given; NULL: none. The endpoint does not count, since the command needs it too.
 * joins: neither does --trust, by which a mount that joins a running server checks the image itself. */
const char *server_options_given(const struct server_values *v, bool joins);

/* The options as words: for a front end "cache=DIR:SIZE", "cache-compressed=yes"; for granary serve "--cache=DIR:SIZE",
 * "--cache-compressed=yes". --store-connections is the front end's connections=, since mount has a --connections for
 * nbd. A front end gets the key of a --trust FILE.
 */
enum server_form { SERVER_FOR_FRONT_END, SERVER_FOR_SERVE };
GR_MUST_CHECK int server_options_words(const struct server_values *v, enum server_form form, string_list *out);

/* ---- images by digest ---- */

/* An operand, resolved to a digest, so that a server that is restarted serves the same bytes whatever its tags say by
 * then. */
struct pin {
    const char *given; /* the operand */
    struct image_ref ref;
    char text[IMAGE_REF_MAX]; /* the reference by digest, with its tag if the store confirmed that */
};

/* Resolves the operands of one command. It also uses the export tables in the cache directories, whether or not a
 * server runs on them. */
struct pinner {
    struct resolver_config config;
    struct resolver *resolver;
    struct trust trust;
    string_list dirs;
};

/* Prepare. server: the server's options; without a cache among them, the default cache is used, without --trust the
 * keys of the configuration file. handed: resolver_config's, which outlives the pinner. own: read with these S3 keys
 * and no others, and without the tables in the cache directories; NULL: none. pinner_release it in any case. Returns 0,
 * -errno, or CLI_USAGE. */
GR_MUST_CHECK int pinner_init(struct pinner *p, const struct server_values *server, const char *handed,
                              struct s3_keys *own);
void pinner_release(struct pinner *p);
#define CLEANUP_PINNER CLEANUP(pinner_release) struct pinner

/* Resolve the tag of a reference. A reference by digest is taken as it is, without contacting the store. Returns 0,
 * -errno, or CLI_USAGE. */
GR_MUST_CHECK int pin_resolve(struct pinner *p, const char *given, struct pin *out);

#endif
