/* Ctrl-C and SIGTERM during long work: the first asks the work to end, the second ends the process.
 */
#ifndef GRANARY_CLI_INTERRUPT_H
#define GRANARY_CLI_INTERRUPT_H

/* Catch SIGINT and SIGTERM from now on. Returns the flag that the first one sets; it lives as long
 * as the process. */
const volatile int *interrupt_watch(void);

#endif
