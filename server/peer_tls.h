/* TLS of the port for other nodes. A node shows a certificate of the nodes' own authority, whatever name is in it, and
 * requires one of its clients. The files are read at each handshake, so a certificate that is renewed in time needs no
 * restart. Used by the thread of the one daemon that serves the port. */
#ifndef GRANARY_SERVER_PEER_TLS_H
#define GRANARY_SERVER_PEER_TLS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "base/compiler.h"

enum { PEER_TLS_OPTIONS = 3 }; /* that peer_tls_begin adds */

/* Read the files in the directory: ca.crt, tls.crt, tls.key. It outlives the daemon. -EINVAL: one cannot be used, or
 * they do not belong together; errors of io_read_file; -ENOMEM. Sentences name the file and show nothing of it. */
GR_MUST_CHECK int peer_tls_begin(const char *directory, struct MHD_OptionItem out[PEER_TLS_OPTIONS]);
/* After the daemon has ended; also without a begin. */
void peer_tls_end(void);

/* Has the client of this connection shown a certificate of the authority, for clients, that is valid now? Reads a file:
 * remember the answer for the connection. */
bool peer_tls_is_node(struct MHD_Connection *connection);

#endif
