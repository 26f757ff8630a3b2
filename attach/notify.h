/* Telling systemd that a service is ready (sd_notify's protocol). */
#ifndef GRANARY_ATTACH_NOTIFY_H
#define GRANARY_ATTACH_NOTIFY_H

/* Send e.g. "READY=1" to NOTIFY_SOCKET; nothing where there is none. Failures are warned of. */
void notify(const char *state);

#endif
