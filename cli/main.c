/* granary: one binary, one file per verb. main finds the verb, parses its options by its table, runs it, and turns the
 * result into an exit status. Only this file prints errors.
 *
 *     run returns             printed                      exit status
 *     0                       -                            0
 *     -errno                  granary: VERB: SENTENCE      1, or 130 after SIGINT or SIGTERM
 *     CLI_USAGE               granary: VERB: SENTENCE      2
 *     CLI_FAILED, DIFFERENT   nothing: the verb has        1, 3
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/verbs/verbs.h"

/* Report a verb that does not exist, and the one that was probably meant. */
static int unknown_verb(const char *name)
{
    (void)error_set(0, "%s", name);
    const struct verb *meant = verb_resembling(name);
    if (meant) {
        fprintf(stderr, "granary: unknown verb '%s'; did you mean 'granary %s'?\n", error_text(), meant->name);
        return CLI_USAGE;
    }
    fprintf(stderr, "granary: unknown verb '%s'; there are", error_text());
    for (size_t i = 0; verbs[i]; i++)
        fprintf(stderr, "%s %s", i ? "," : "", verbs[i]->name);
    fprintf(stderr, "\n");
    return CLI_USAGE;
}

/* Whether the reading end of a pipe on standard output was closed. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

/* Report output that could not be written. If the reader has closed the pipe (`granary ls | head`), the exit status
 * says enough. */
static int flush_output(const struct verb *verb)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return CLI_DONE;
    if (errno != EPIPE && (errno || !reader_is_gone()))
        fprintf(stderr, "granary: %s: cannot write the output: %s\n", verb->name,
                errno ? strerror(errno) : "an earlier write failed");
    return CLI_FAILED;
}

/* Print the thread's sentence with the verb in front, unless it begins with the verb's name already: some parts of the
 * library are named like the verb they serve. */
static void complain(const struct verb *verb, int rc)
{
    const char *sentence = error_text();
    size_t len = strlen(verb->name);
    bool named = !strncmp(sentence, verb->name, len) && !strncmp(sentence + len, ": ", 2);
    if (verb->service && rc != CLI_USAGE)
        log_error("%s%s%s", named ? "" : verb->name, named ? "" : ": ", sentence);
    else
        fprintf(stderr, "granary: %s%s%s\n", named ? "" : verb->name, named ? "" : ": ", sentence);
}

/* Run a verb and return the exit status. */
static int run_verb(const struct verb *verb, const struct invocation *inv)
{
    if (inv->help) {
        options_help(verb, stdout);
        return flush_output(verb);
    }
    if (verb->service)
        service_log_begin();
    else
        interrupt_end(verb->name, verb->interrupted);
    int rc = verb->run(inv);
    int flushed = flush_output(verb);
    if (rc == CLI_DIFFERENT || rc == CLI_FAILED)
        return flushed ? flushed : rc;
    bool reported = rc == -ECANCELED && interrupt_came(); /* the line about the interrupt below replaces it */
    if (rc && !reported)
        complain(verb, rc);
    if (rc < 0 && interrupt_came() && (reported || verb->interrupted))
        fprintf(stderr, "granary: %s: interrupted%s%s\n", verb->name, verb->interrupted ? ": " : "",
                verb->interrupted ? verb->interrupted : "");
    if (rc && rc != CLI_USAGE)
        return interrupt_came() ? CLI_INTERRUPTED : CLI_FAILED;
    return rc ? CLI_USAGE : flushed;
}

/* Open those of descriptors 0 to 2 that are closed. Otherwise the next file opened would get such a number, and
 * messages would be written into a pack. The stand-ins cannot be used in the expected direction, so using them still
 * fails. */
static void occupy_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_FAILED);
}

/* Find the verb or the command below it, and run it. */
static int run_words(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("granary %s\n", GRANARY_VERSION);
        return flush_output(&verb_help);
    }
    if (!*name) {
        help_list_verbs(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        name = "help";
    const struct verb *verb = verb_find(name);
    if (!verb)
        return unknown_verb(name);
    struct invocation inv;
    int skip = verb_find(argv[1]) ? 2 : argc;
    const struct verb *command = skip < argc ? options_command(verb, argv[skip]) : NULL;
    if (command) {
        verb = command;
        skip++;
    } else if (verb->commands && skip < argc) {
        argc = skip + 1; /* report the unknown command, not an option after it */
    }
    int rc = options_parse(verb, argc - skip, argv + skip, &inv);
    if (rc)
        complain(verb, CLI_USAGE);
    rc = rc ? CLI_USAGE : run_verb(verb, &inv);
    options_release(&inv);
    return rc;
}

/* Run as mount.granary or umount.granary. */
static int run_helper(int argc, char **argv)
{
    CLEANUP_STRING_LIST words = {0};
    bool nothing = false;
    int rc = mount_helper_words(argc, argv, &words, &nothing);
    if (rc)
        fprintf(stderr, "granary: %s: %s\n", argv[0], error_text());
    if (rc || nothing)
        return rc;
    rc = run_words((int)words.len - 1, words.items);
    return rc == CLI_DONE ? HELPER_DONE : rc == CLI_USAGE ? HELPER_USAGE : HELPER_FAILED;
}

/* SIGPIPE would end a verb silently in the middle of its work. */
int main(int argc, char **argv)
{
    occupy_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* sockets and stdout report EPIPE instead */
    return mount_helper_called(argv[0]) ? run_helper(argc, argv) : run_words(argc, argv);
}
