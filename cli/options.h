/* The command line as tables: every verb has one table of options, and parsing, --help, `granary
 * help` and the completion test all read that table. Long options are written `--name=value` or
 * `--name value`, letters may be joined (`-lR`), `--` ends the options, operands may stand between
 * options.
 */
#ifndef GRANARY_CLI_OPTIONS_H
#define GRANARY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"

enum option_kind {
    OPTION_END = 0,
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char *, never empty */
    OPTION_URL,      /* const char *, http:// or https:// */
    OPTION_LIST,     /* struct option_list: may be given several times */
    OPTION_SIZE,     /* uint64_t bytes: 4096, 128K, 10G */
    OPTION_NUMBER,   /* uint64_t within [min, max] */
    OPTION_AUTO,     /* the same, or the word auto: 0 */
    OPTION_DURATION, /* uint64_t seconds: 90, 90s, 30m, 12h, 14d */
    OPTION_CHOICE,   /* unsigned: which of the words of `value` ("zstd|none") was given, from 0 */
};

struct option_row;
struct option_list {
    const char **items;             /* the words belong to argv */
    const struct option_row **rows; /* the option each came by: rows of one offset share a list, in the order given */
    size_t count;
};

/* One option. `offset` says where in the verb's struct of values it goes. */
struct option_row {
    enum option_kind kind;
    char letter;       /* 0: none */
    const char *name;  /* without dashes; NULL: only the letter */
    const char *value; /* how help names the value; NULL for flags */
    size_t offset;
    uint64_t min, max; /* OPTION_NUMBER, OPTION_AUTO and OPTION_SIZE; max 0: no limit */
    const char *help;
};

struct invocation;

/* One verb: its file defines one of these. */
struct verb {
    const char *name;
    const char *operands; /* "SOURCE IMAGE", for help */
    unsigned min_operands, max_operands;
    const char *summary;              /* one line, no full stop */
    const char *details;              /* paragraphs for --help; NULL: none */
    const struct option_row *options; /* ends with OPTION_END */
    /* Commands below this verb, ended by NULL, each named "VERB COMMAND"; NULL: none. A verb with
     * commands has no options of its own, and its run is called only for a word that is none. */
    const struct verb *const *commands;
    const char *interrupted; /* what is said of what an interrupted run kept; NULL: nothing */
    bool service;            /* it runs for long: what it says is a log (attach/server/service_log.h) */
    size_t values_size;
    const void *defaults; /* values_size bytes to start from; NULL: zero */
    /* 0, a negative errno with a sentence (exit 1), CLI_USAGE with a sentence (exit 2), or an exit status whose reason
     * was printed: CLI_FAILED, CLI_DIFFERENT. */
    int (*run)(const struct invocation *inv);
};

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130, /* by SIGINT or SIGTERM, which the verb heeded; main's */
    CLI_DIFFERENT = 3,     /* nothing failed: two things are not the same; without a sentence */
};

struct invocation {
    const struct verb *verb;
    void *values; /* the verb's struct */
    char **words; /* all of them behind the verb, as they were given */
    size_t word_count;
    const char **operands; /* those of them */
    size_t operand_count;
    bool help; /* -h or --help was given; nothing else was checked */
};

/* Parse argv[0..argc), the words behind the verb. 0 or -EINVAL with a sentence. In both cases
 * options_release. The words stay argv's. */
GR_MUST_CHECK int options_parse(const struct verb *verb, int argc, char **argv, struct invocation *out);
void options_release(struct invocation *inv);

/* Has the verb an option of that long name? A value may stand behind it: "cache=/ssd:20G". */
bool options_known(const struct verb *verb, const char *word);

/* CLI_USAGE, with the sentence "A and B exclude each other: WHY": nothing that was asked for is passed over silently.
 */
GR_MUST_CHECK int options_exclude(const char *a, const char *b, const char *why);

/* CLI_USAGE, with the sentence that names the command of verb that was meant by word, else all of them. */
GR_MUST_CHECK int options_no_command(const struct verb *verb, const char *word);

/* The run of every verb with commands, which is called for what is none: the same, also where there is no word. */
GR_MUST_CHECK int options_need_command(const struct invocation *inv);

/* The command of that name below a verb; NULL: none. */
const struct verb *options_command(const struct verb *verb, const char *word);

/* The text of `granary VERB --help`. */
void options_help(const struct verb *verb, FILE *to);
/* One line an option, for tests and tools: "VERB --name VALUE", "VERB -l"; also of the commands below
 * the verb. */
void options_list(const struct verb *verb, FILE *to);

#endif
