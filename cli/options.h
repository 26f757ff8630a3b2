/* The command line as tables. Every verb has one table of options; parsing, --help, `granary help` and the completion's
 * test all read it. Long options are written `--name=value` or `--name value`, letters may be joined (`-lR`), `--` ends
 * the options, and operands may stand between options. */
#ifndef GRANARY_CLI_OPTIONS_H
#define GRANARY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/config.h"
#include "base/vec.h"

enum option_kind {
    OPTION_END = 0,
    OPTION_FLAG,     /* bool */
    OPTION_SWITCH,   /* enum option_switch: a flag that the configuration file may set too, so it can be turned off */
    OPTION_TEXT,     /* const char *, never empty */
    OPTION_URL,      /* const char *, http:// or https:// */
    OPTION_LIST,     /* struct option_list: may be given several times */
    OPTION_SIZE,     /* uint64_t bytes: 4096, 128K, 10G */
    OPTION_NUMBER,   /* uint64_t within [min, max] */
    OPTION_AUTO,     /* uint64_t as OPTION_NUMBER, or the word auto: 0 */
    OPTION_DURATION, /* uint64_t seconds: 90, 90s, 30m, 12h, 14d */
    OPTION_CHOICE,   /* unsigned: the index of the given word in `value` ("zstd|none") */
};

/* "--name" and "--name=yes" say yes, "--name=no" undoes a yes of the configuration file. */
enum option_switch { SWITCH_UNSET, SWITCH_YES, SWITCH_NO };

/* Strings that the list owns. */
typedef VEC(char *) string_list;
void string_list_release(string_list *list);
#define CLEANUP_STRING_LIST CLEANUP(string_list_release) string_list
/* Append the formatted text. -ENOMEM, with a sentence. */
GR_MUST_CHECK int string_list_add(string_list *list, const char *fmt, ...) GR_PRINTF(2, 3);

struct option_row;
/* The values of an OPTION_LIST. Rows with the same offset share one list, in the order given. */
struct option_list {
    const char **items;             /* the words belong to argv */
    const struct option_row **rows; /* the option by which each came */
    size_t count;
};

/* One option; offset says which member of the verb's values it sets. */
struct option_row {
    enum option_kind kind;
    char letter;       /* 0: none */
    const char *name;  /* without dashes; NULL: only the letter */
    const char *value; /* how help names the value; NULL for flags and switches */
    size_t offset;
    uint64_t min, max; /* OPTION_NUMBER, OPTION_AUTO and OPTION_SIZE; max 0: no limit */
    const char *help;
};

struct invocation;

/* One verb. Its file defines one of these. */
struct verb {
    const char *name;
    const char *operands; /* "SOURCE IMAGE", for help */
    unsigned min_operands, max_operands;
    const char *summary;              /* one line, no full stop */
    const char *details;              /* paragraphs for --help; NULL: none */
    const struct option_row *options; /* ends with OPTION_END */
    /* Commands below this verb, ended by NULL, each named "VERB COMMAND"; NULL: none. A verb with commands has no
     * options, and its run is called only when no command matches. */
    const struct verb *const *commands;
    const char *interrupted; /* what an interrupted run keeps, for the last line; NULL: nothing to tell */
    bool service;            /* long-lived: its messages are a log (attach/server/service.h) */
    size_t values_size;
    const void *defaults; /* values_size bytes to start from; NULL: zero */
    /* Returns 0, a negative errno with a sentence (exit 1), CLI_USAGE with a sentence (exit 2), or an exit status
     * after printing the reason: CLI_FAILED, CLI_DIFFERENT. */
    int (*run)(const struct invocation *inv);
};

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130, /* ended by SIGINT or SIGTERM; only main.c returns it */
    CLI_DIFFERENT = 3,     /* nothing failed, but two things are not the same; no sentence */
};

/* A parsed command line. */
struct invocation {
    const struct verb *verb;
    void *values; /* the verb's struct */
    char **words; /* every word after the verb, as given */
    size_t word_count;
    const char **operands; /* the operands among them */
    size_t operand_count;
    bool help; /* -h or --help was given; the rest is not checked */
};

/* Parse argv[0..argc), the words after the verb, which stay argv's. Returns 0, or -EINVAL with a sentence.
 * options_release it in both cases. */
GR_MUST_CHECK int options_parse(const struct verb *verb, int argc, char **argv, struct invocation *out);
void options_release(struct invocation *inv);

/* Fill values with a section of the configuration file (base/config.h): a key is the name of an option, a switch is yes
 * or no. rows: the options that may be there, ended by OPTION_END. The strings are the file's; options_release_lists
 * frees the rest. Returns 0, or CLI_USAGE with a sentence that names file and line. */
GR_MUST_CHECK int options_read_section(const struct config *c, const char *section, const struct option_row *rows,
                                       void *values);
/* Put file and line before the thread's sentence about an option; returns CLI_USAGE. */
int options_wrong_in_file(const struct config *c, const struct config_entry *e);
/* Free the lists among values. */
void options_release_lists(const struct option_row *rows, void *values);

/* Whether the verb has a long option of that name; a value may follow it: "cache=/ssd:20G". */
bool options_known(const struct verb *verb, const char *word);

/* Set the sentence; returns CLI_USAGE. */
GR_MUST_CHECK int options_wrong(const char *fmt, ...) GR_PRINTF(1, 2);

/* Return CLI_USAGE with the sentence "A and B exclude each other: WHY". An option that has no effect is refused, not
 * ignored. */
GR_MUST_CHECK int options_exclude(const char *a, const char *b, const char *why);

/* Return CLI_USAGE with a sentence that names the command that word resembles, or else all commands of verb. */
GR_MUST_CHECK int options_no_command(const struct verb *verb, const char *word);

/* The run of every verb with commands: options_no_command for its first operand, or without a word. */
GR_MUST_CHECK int options_need_command(const struct invocation *inv);

/* Return the command of that name below a verb; NULL: none. */
const struct verb *options_command(const struct verb *verb, const char *word);

/* Print the text of `granary VERB --help`. */
void options_help(const struct verb *verb, FILE *to);
/* Print one line for each option, for tests and tools: "VERB --name VALUE", "VERB -l"; also those of the verb's
 * commands. */
void options_list(const struct verb *verb, FILE *to);

#endif
