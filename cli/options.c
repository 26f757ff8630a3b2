/* Parsing by table. A value is written straight into the verb's struct of values, at the row's offset and in the row's
 * kind; words of argv are never copied.
 *
 *   word         --NAME[=VALUE]   -LETTERS[VALUE]   --   operand
 *   VALUE        after "=" or the letter, else the next word
 *
 * -h and --help work for every verb and are in no table. Help, `granary help --all` and the completion's test read the
 * same tables, so they cannot disagree with the parser.
 */
#include "cli/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"

void string_list_release(string_list *list)
{
    for (size_t i = 0; i < list->len; i++)
        free(list->items[i]);
    vec_release(list);
}

int string_list_add(string_list *list, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len >= 0 && !vec_push(list, text))
        return 0;
    if (len >= 0)
        free(text);
    return error_no_memory();
}

/* Names are compared in full: abbreviations would become ambiguous when options are added. */
static const struct option_row *find_long(const struct option_row *rows, const char *name, size_t len)
{
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (row->name && strlen(row->name) == len && !memcmp(row->name, name, len))
            return row;
    return NULL;
}

bool options_known(const struct verb *verb, const char *word)
{
    return find_long(verb->options, word, strcspn(word, "="));
}

static const struct option_row *find_letter(const struct verb *verb, char letter)
{
    for (const struct option_row *row = verb->options; row->kind != OPTION_END; row++)
        if (row->letter == letter)
            return row;
    return NULL;
}

/* Return an option's name as messages show it: "--name", or "-l". */
static const char *row_label(const struct option_row *row, char out[64])
{
    if (row->name)
        snprintf(out, 64, "--%s", row->name);
    else
        snprintf(out, 64, "-%c", row->letter);
    return out;
}

/* Find text among the words of row->value, which are separated by '|'. */
static int set_choice(const struct option_row *row, const char *label, const char *text, unsigned *out)
{
    const char *word = row->value;
    for (unsigned i = 0;; i++) {
        size_t len = strcspn(word, "|");
        if (strlen(text) == len && !memcmp(text, word, len)) {
            *out = i;
            return 0;
        }
        if (!word[len])
            return error_set(-EINVAL, "%s: '%s' is not one of %s", label, text, row->value);
        word += len + 1;
    }
}

/* Append text, and the row that it belongs to: rules of --include and --exclude share one list, in the order given. */
static int set_list(struct option_list *list, const struct option_row *row, const char *text)
{
    const char **items = reallocarray(list->items, list->count + 1, sizeof *items);
    if (items)
        list->items = items;
    const struct option_row **rows = items ? reallocarray(list->rows, list->count + 1, sizeof *rows) : NULL;
    if (!rows)
        return error_no_memory();
    list->rows = rows;
    list->rows[list->count] = row;
    list->items[list->count++] = text;
    return 0;
}

/* Parse a size within the row's bounds. */
static int set_size(const struct option_row *row, const char *label, const char *text, uint64_t *out)
{
    int rc = text_parse_size(label, text, out);
    if (!rc && (*out < row->min || (row->max && *out > row->max))) {
        char low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
        text_format_size(row->min, low);
        text_format_size(row->max ? row->max : INT64_MAX, high);
        return error_set(-EINVAL, "%s: '%s' is not between %s and %s", label, text, low, high);
    }
    return rc;
}

/* Parse "yes" or "no". */
static int set_switch(const char *label, const char *text, enum option_switch *out)
{
    bool yes = !strcmp(text, "yes");
    if (!yes && strcmp(text, "no") != 0)
        return error_set(-EINVAL, "%s: '%s' is neither yes nor no", label, text);
    *out = yes ? SWITCH_YES : SWITCH_NO;
    return 0;
}

/* Parse a value by its kind and store it. text: the value; NULL for a flag. */
static int options_set_value(const struct option_row *row, const char *text, void *values)
{
    char label[64];
    void *at = (char *)values + row->offset;
    row_label(row, label);
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_SWITCH:
        return set_switch(label, text, at);
    case OPTION_TEXT:
        if (!*text)
            return error_set(-EINVAL, "%s: needs a value, not an empty word", label);
        *(const char **)at = text;
        return 0;
    case OPTION_URL:
        if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
            return error_set(-EINVAL, "%s: '%s' is no address; write https://HOST or http://HOST:PORT", label, text);
        *(const char **)at = text;
        return 0;
    case OPTION_LIST:
        return set_list(at, row, text);
    case OPTION_SIZE:
        return set_size(row, label, text, at);
    case OPTION_AUTO:
        if (!strcmp(text, "auto")) {
            *(uint64_t *)at = 0;
            return 0;
        }
        /* fall through */
    case OPTION_NUMBER:
        return text_parse_uint(label, text, row->min, row->max ? row->max : INT64_MAX, at);
    case OPTION_DURATION:
        return text_parse_duration(label, text, at);
    case OPTION_CHOICE:
        return set_choice(row, label, text, at);
    case OPTION_END:
        break;
    }
    return error_set(-EINVAL, "%s: unknown option", label);
}

/* The words that are still to be parsed. */
struct words {
    int next, count;
    char **argv;
};

/* Take the next word as the option's value. */
static int take_value(const struct option_row *row, struct words *words, const char **out)
{
    char label[64];
    if (words->next >= words->count)
        return error_set(-EINVAL, "%s: needs a value: %s %s", row_label(row, label), label, row->value);
    *out = words->argv[words->next++];
    return 0;
}

/* Report an unknown option, and one of a similar name. */
static int unknown_option(const struct verb *verb, const char *word, size_t len)
{
    for (const struct option_row *row = verb->options; row->kind != OPTION_END; row++)
        if (row->name && text_resembles(word, len, row->name))
            return error_set(-EINVAL, "unknown option --%.*s; did you mean --%s?", (int)len, word, row->name);
    return error_set(-EINVAL, "unknown option --%.*s; 'granary help %s' lists the options", (int)len, word, verb->name);
}

/* Parse "name", "name=value", or "name" with the value as the next word. */
static int parse_long(struct invocation *inv, const char *word, struct words *words)
{
    size_t len = strcspn(word, "=");
    const struct option_row *row = find_long(inv->verb->options, word, len);
    const char *value = word[len] ? word + len + 1 : NULL;
    if (!row && len == 4 && !memcmp(word, "help", 4) && !value) {
        inv->help = true;
        return 0;
    }
    if (!row)
        return unknown_option(inv->verb, word, len);
    if (row->kind == OPTION_FLAG && value)
        return error_set(-EINVAL, "--%s: takes no value", row->name);
    if (row->kind == OPTION_SWITCH && !value)
        value = "yes";
    if (row->kind != OPTION_FLAG && !value) {
        int rc = take_value(row, words, &value);
        if (rc)
            return rc;
    }
    return options_set_value(row, value, inv->values);
}

/* Parse one word of letters: "-lR", "-lvalue", or "-l" with the value as the next word. */
static int parse_letters(struct invocation *inv, const char *letters, struct words *words)
{
    for (; *letters; letters++) {
        const struct option_row *row = find_letter(inv->verb, *letters);
        if (!row && *letters == 'h') {
            inv->help = true;
            return 0;
        }
        if (!row)
            return error_set(-EINVAL, "unknown option -%c; 'granary help %s' lists the options", *letters,
                             inv->verb->name);
        const char *value = NULL;
        if (row->kind != OPTION_FLAG) {
            int rc = 0;
            value = letters + 1;
            if (!*value)
                rc = take_value(row, words, &value);
            return rc ? rc : options_set_value(row, value, inv->values);
        }
        int rc = options_set_value(row, value, inv->values);
        if (rc)
            return rc;
    }
    return 0;
}

/* Options and operands may be mixed. -h ends the parsing, so that help is shown whatever else is wrong. */
int options_parse(const struct verb *verb, int argc, char **argv, struct invocation *out)
{
    *out = (struct invocation){.verb = verb, .words = argv, .word_count = (size_t)argc};
    out->values = calloc(1, verb->values_size + 1);
    out->operands = calloc((size_t)argc + 1, sizeof *out->operands);
    if (!out->values || !out->operands)
        return error_no_memory();
    if (verb->defaults)
        memcpy(out->values, verb->defaults, verb->values_size);
    struct words words = {.count = argc, .argv = argv};
    bool only_operands = false;
    while (words.next < words.count && !out->help) {
        const char *word = words.argv[words.next++];
        int rc = 0;
        if (only_operands || *word != '-' || !word[1])
            out->operands[out->operand_count++] = word;
        else if (!strcmp(word, "--"))
            only_operands = true;
        else if (word[1] == '-')
            rc = parse_long(out, word + 2, &words);
        else
            rc = parse_letters(out, word + 1, &words);
        if (rc)
            return rc;
    }
    if (!out->help && out->operand_count < verb->min_operands)
        return error_set(-EINVAL, "missing operand; usage: granary %s [options] %s", verb->name, verb->operands);
    if (!out->help && out->operand_count > verb->max_operands)
        return error_set(-EINVAL, "unexpected operand '%s'; usage: granary %s [options] %s",
                         out->operands[verb->max_operands], verb->name, verb->operands);
    return 0;
}

/* Sentences of the command line begin with the option's name. */
int options_wrong_in_file(const struct config *c, const struct config_entry *e)
{
    const char *text = error_text();
    (void)config_wrong(c, e, "%s", text + (text_begins_with(text, "--") ? 2 : 0));
    return CLI_USAGE;
}

/* Set an option from a line of the configuration file. */
static int set_from_file(const struct config *c, const struct config_entry *e, const struct option_row *row,
                         void *values)
{
    int rc = row->kind == OPTION_LIST ? 0 : config_check_once(c, e);
    if (rc)
        return rc;
    rc = options_set_value(row, e->value, values);
    return rc ? options_wrong_in_file(c, e) : 0;
}

int options_read_section(const struct config *c, const char *section, const struct option_row *rows, void *values)
{
    for (size_t i = 0; i < c->entries.len; i++) {
        const struct config_entry *e = &c->entries.items[i];
        if (strcmp(e->section, section) != 0)
            continue;
        const struct option_row *row = find_long(rows, e->key, strlen(e->key)), *meant = rows;
        while (!row && meant->kind != OPTION_END && !text_resembles(e->key, strlen(e->key), meant->name))
            meant++;
        if (!row)
            (void)config_wrong(c, e, "[%s] has no setting '%s'%s%s%s", section, e->key,
                               meant->kind ? "; did you mean '" : "", meant->kind ? meant->name : "",
                               meant->kind ? "'?" : "; 'granary config show' lists them");
        if (!row || set_from_file(c, e, row, values))
            return CLI_USAGE;
    }
    return 0;
}

/* Rows may share a list. */
void options_release_lists(const struct option_row *rows, void *values)
{
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_LIST) {
            struct option_list *list = (struct option_list *)((char *)values + row->offset);
            free(list->items);
            free(list->rows);
            *list = (struct option_list){0};
        }
}

/* Lists are the only values that own memory. */
void options_release(struct invocation *inv)
{
    if (inv->values)
        options_release_lists(inv->verb->options, inv->values);
    free(inv->values);
    free(inv->operands);
    *inv = (struct invocation){0};
}

int options_wrong(const char *fmt, ...)
{
    char sentence[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    (void)error_set(0, "%s", sentence);
    return CLI_USAGE;
}

int options_exclude(const char *a, const char *b, const char *why)
{
    return options_wrong("%s and %s exclude each other: %s", a, b, why);
}

/* Return the last word of a command's name, "VERB COMMAND". */
static const char *command_word(const struct verb *verb, const struct verb *command)
{
    return command->name + strlen(verb->name) + 1;
}

/* The first command that resembles the word wins. */
int options_no_command(const struct verb *verb, const char *word)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    for (size_t i = 0; verb->commands[i]; i++) {
        const char *name = command_word(verb, verb->commands[i]);
        if (word && text_resembles(word, strlen(word), name))
            return options_wrong("'%s' is no command of '%s'; did you mean 'granary %s'?", word, verb->name,
                                 verb->commands[i]->name);
        if (bytes_printf(&known, "%s %s", i ? "," : "", name))
            break;
    }
    const int len = (int)known.len;
    const char *there = (const char *)known.data;
    return word ? options_wrong("'%s' is no command; there are%.*s", word, len, there)
                : options_wrong("name a command; there are%.*s", len, there);
}

int options_need_command(const struct invocation *inv)
{
    return options_no_command(inv->verb, inv->operand_count ? inv->operands[0] : NULL);
}

const struct verb *options_command(const struct verb *verb, const char *word)
{
    for (size_t i = 0; verb->commands && verb->commands[i]; i++)
        if (!strcmp(command_word(verb, verb->commands[i]), word))
            return verb->commands[i];
    return NULL;
}

void options_help(const struct verb *verb, FILE *to)
{
    fprintf(to, "usage: granary %s%s%s%s\n\n%s.\n", verb->name, verb->options->kind ? " [options]" : "",
            *verb->operands ? " " : "", verb->operands, verb->summary);
    if (verb->details)
        fprintf(to, "\n%s\n", verb->details);
    if (verb->commands)
        fprintf(to, "\ncommands ('granary %s COMMAND --help' shows the options):\n", verb->name);
    for (size_t i = 0; verb->commands && verb->commands[i]; i++)
        fprintf(to, "  %-26s %s\n", command_word(verb, verb->commands[i]), verb->commands[i]->summary);
    fprintf(to, "\noptions:\n");
    for (const struct option_row *row = verb->options; row->kind != OPTION_END; row++) {
        char letter[8] = "", left[96]; /* "-l, --long", "--jobs N" */
        if (row->letter)
            snprintf(letter, sizeof letter, "-%c%s", row->letter, row->name ? ", " : "");
        snprintf(left, sizeof left, "%s%s%s%s%s", letter, row->name ? "--" : "", row->name ? row->name : "",
                 row->value ? " " : "",
                 row->value                   ? row->value
                 : row->kind == OPTION_SWITCH ? "[=no]"
                                              : "");
        fprintf(to, "  %-26s %s\n", left, row->help);
    }
    fprintf(to, "  %-26s %s\n", "-h, --help", "show this text");
}

void options_list(const struct verb *verb, FILE *to)
{
    for (const struct option_row *row = verb->options; row->kind != OPTION_END; row++) {
        if (row->name)
            fprintf(to, "%s --%s%s%s\n", verb->name, row->name, row->value ? " " : "", row->value ? row->value : "");
        if (row->letter)
            fprintf(to, "%s -%c%s%s\n", verb->name, row->letter, row->value ? " " : "", row->value ? row->value : "");
    }
    for (size_t i = 0; verb->commands && verb->commands[i]; i++)
        options_list(verb->commands[i], to);
}
