/* Front ends are started by `granary serve`, which has checked the parameters already: the usage text is for a
 * developer who starts one by hand. Parameters are the same KEY=VALUE words that nbdkit passes to the plugin, so one
 * table (stack_options.h) serves all front ends. */
#include "server/front_end.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

enum { EXIT_USAGE = 2, THREADS_MAX = 4096 };

/* Set one KEY=VALUE. */
static int set_parameter(struct stack_options *o, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals)
        return error_set(-EINVAL, "'%s' is no KEY=VALUE", word);
    CLEANUP_FREE char *key = strndup(word, (size_t)(equals - word));
    return key ? stack_options_set(o, key, equals + 1) : error_no_memory();
}

/* Take the options and the descriptor; optind is left at the descriptor, and the parameters follow. */
static int front_end_parse(int argc, char **argv, const struct front_end *front_end, struct front_end_arguments *w)
{
    char letters[32];
    uint64_t threads = front_end->threads, fd;
    snprintf(letters, sizeof letters, "t:v%s", front_end->own);
    for (int c; (c = getopt(argc, argv, letters)) != -1;)
        if (c == 't' && text_parse_uint("-t", optarg, 1, THREADS_MAX, &threads))
            return -EINVAL;
        else if (c == 'v')
            log_to(NULL, LOG_LEVEL_DEBUG);
        else if (c == '?')
            return -EINVAL;
        else if (c != 't')
            front_end->take(front_end->arg, c, optarg);
    if (optind >= argc)
        return error_set(-EINVAL, "no descriptor");
    int rc = text_parse_uint("the descriptor", argv[optind], 0, INT_MAX, &fd);
    *w = (struct front_end_arguments){.threads = (unsigned)threads, .fd = (int)fd};
    return rc;
}

static void print_usage(FILE *out, const char *program, const struct front_end *front_end)
{
    const char *slash = strrchr(program, '/');
    fprintf(out,
            "usage: %s [-t THREADS] [-v] %sFD KEY=VALUE...\n"
            "'granary serve' starts it. The keys:\n\n%s",
            slash ? slash + 1 : program, front_end->own_help, STACK_OPTIONS_HELP);
}

/* getopt has reported an unknown option itself. serving_close follows every failure too: it accepts any state after
 * serving_init. */
int front_end_main(int argc, char **argv, const struct front_end *front_end)
{
    static struct serving serving;
    struct front_end_arguments words;
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        print_usage(stdout, argv[0], front_end);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("granary %s\n", GRANARY_VERSION);
        return 0;
    }
    serving_init(&serving);
    log_to(NULL, LOG_LEVEL_WARNING);
    if (front_end_parse(argc, argv, front_end, &words)) {
        if (error_count())
            log_error("%s", error_text());
        print_usage(stderr, argv[0], front_end);
        serving_close(&serving);
        return EXIT_USAGE;
    }
    int rc = 0;
    for (int i = optind + 1; !rc && i < argc; i++)
        rc = set_parameter(&serving.options, argv[i]);
    if (!rc)
        rc = stack_options_complete(&serving.options);
    if (!rc)
        rc = front_end->serve(front_end->arg, &serving, &words);
    if (rc)
        log_error("%s", error_text());
    serving_close(&serving);
    return rc ? EXIT_FAILURE : 0;
}
