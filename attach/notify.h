/* Reports a service's state to systemd (the protocol of sd_notify). */
#ifndef GRANARY_ATTACH_NOTIFY_H
#define GRANARY_ATTACH_NOTIFY_H

/* Send for example "READY=1" to NOTIFY_SOCKET; do nothing where that is not set. A failure is logged as a warning. */
void notify(const char *state);

#endif
