/* What SIGINT and SIGTERM do depends on how far a verb is:
 *
 *   before interrupt_watch   the first signal ends the process
 *   after it                 the first signal sets a flag, which the work polls; the second ends the process
 *
 * The line that the end prints is made in advance, since a signal handler may call only async-signal-safe functions
 * such as write and _exit.
 */
#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "cli/options.h"

/* Static, because a signal handler gets no pointer. */
static volatile int interrupted;
static char last_words[256];
static size_t last_words_len;

/* Print the line and end the process. */
static void on_signal_end(int signal_number)
{
    ssize_t written = write(STDERR_FILENO, last_words, last_words_len);
    (void)written; /* the process ends anyway */
    _exit(CLI_INTERRUPTED);
}

/* Set the flag; at the second signal end the process. */
static void on_signal(int signal_number)
{
    if (interrupted)
        on_signal_end(signal_number);
    interrupted = 1;
}

/* A signal that the parent had us ignore (nohup) stays ignored. */
void interrupt_end(const char *verb, const char *kept)
{
    const struct sigaction action = {.sa_handler = on_signal_end};
    const int signals[] = {SIGINT, SIGTERM};
    int len = snprintf(last_words, sizeof last_words, "%sgranary: %s: interrupted%s%s\n",
                       isatty(STDERR_FILENO) ? "\r\033[K" : "", verb, kept ? ": " : "", kept ? kept : "");
    last_words_len = GR_MIN((size_t)len, sizeof last_words - 1);
    for (size_t i = 0; i < GR_ARRAY_SIZE(signals); i++) {
        struct sigaction before;
        if (!sigaction(signals[i], NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
    }
}

/* The handler only sets a flag, which the work polls. */
const volatile int *interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &interrupted;
}

const volatile int *interrupt_flag(void)
{
    return &interrupted;
}

bool interrupt_came(void)
{
    return interrupted;
}

/* The signals are blocked except within ppoll: one that came between the look at the flag and the sleep would otherwise
 * not end the sleep. */
void interrupt_pause_until(uint64_t when_ms)
{
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    for (uint64_t now; !interrupted && (now = clock_now_ms()) < when_ms;) {
        const struct timespec left = {.tv_sec = (time_t)((when_ms - now) / 1000),
                                      .tv_nsec = (long)((when_ms - now) % 1000) * 1000000};
        (void)ppoll(NULL, 0, &left, &before);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
