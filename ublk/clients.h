/* The socket by which mounts ask for devices. docs/internals/ublk.md has its protocol. */
#ifndef GRANARY_UBLK_CLIENTS_H
#define GRANARY_UBLK_CLIENTS_H

#include "ublk/devices.h"

/* Answer one client and return when it is done; close fd. control: this thread's. Failures are the client's, who is
 * told. Any thread. */
void client_serve(struct devices *d, struct ublk_control *control, int fd);

/* Start the threads that accept clients on listen_fd, which is borrowed; they never end. -errno of a thread, or those
 * of ublk_control_open. */
GR_MUST_CHECK int clients_start(struct devices *d, int listen_fd);

#endif
