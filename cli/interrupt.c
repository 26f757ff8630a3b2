#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "cli/options.h"

/* A signal handler can be given nothing but static storage. */
static volatile int interrupted;

static void on_signal(int signal_number)
{
    if (interrupted)
        _exit(CLI_FAILED);
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
