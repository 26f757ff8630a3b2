/* Ctrl-C and SIGTERM during long work: the first asks the work to end, the second ends the process
 * with the line of interrupt_end.
 */
#ifndef GRANARY_CLI_INTERRUPT_H
#define GRANARY_CLI_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* Until interrupt_watch the first of them ends the process: with CLI_INTERRUPTED and one line on standard error, of the
 * verb, and what an interrupted run of it keeps (NULL: nothing is said of that). One that whoever started the process
 * had it ignore stays ignored. */
void interrupt_end(const char *verb, const char *kept);

/* Catch SIGINT and SIGTERM from now on. Returns interrupt_flag. */
const volatile int *interrupt_watch(void);

/* The flag that the first one after interrupt_watch sets; it lives as long as the process. */
const volatile int *interrupt_flag(void);

/* Has one come since interrupt_watch? */
bool interrupt_came(void);

/* Sleep until when_ms (on clock_now_ms), or until the first of them has come, be it before the call. Of the main
 * thread, after interrupt_watch. */
void interrupt_pause_until(uint64_t when_ms);

#endif
