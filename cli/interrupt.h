/* Ctrl-C and SIGTERM during long work. The first one asks the work to end; the second ends the process with the line of
 * interrupt_end. */
#ifndef GRANARY_CLI_INTERRUPT_H
#define GRANARY_CLI_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* Set what ends the process: until interrupt_watch the first signal does, with CLI_INTERRUPTED and one line on standard
 * error. The line names the verb and what an interrupted run keeps (NULL: nothing is added). A signal that the parent
 * process had us ignore stays ignored. */
void interrupt_end(const char *verb, const char *kept);

/* Catch SIGINT and SIGTERM from now on. Returns interrupt_flag. */
const volatile int *interrupt_watch(void);

/* Return the flag that the first signal after interrupt_watch sets; it lives as long as the process. */
const volatile int *interrupt_flag(void);

/* Whether a signal has come since interrupt_watch. */
bool interrupt_came(void);

/* Sleep until when_ms (on clock_now_ms), or until the first signal, also one that came before the call. For the main
 * thread, after interrupt_watch. */
void interrupt_pause_until(uint64_t when_ms);

#endif
