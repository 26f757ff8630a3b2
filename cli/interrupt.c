#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/options.h"

/* A signal handler can be given nothing but static storage. */
static volatile int interrupted;

static void on_signal(int signal_number)
{
    if (interrupted)
        _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

const volatile int *interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &interrupted;
}

bool interrupt_came(void)
{
    return interrupted;
}

/* They are let in only while it sleeps: one that came between the look at the flag and the sleep would not end that. */
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
