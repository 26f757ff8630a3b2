/* The program that a supervisor starts: granary-nbd, or granary-fuse. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_CHILD_H
#define GRANARY_ATTACH_SERVER_SERVER_CHILD_H

#include "attach/server/server.h"
#include "base/vec.h"

typedef VEC(char *) server_child_words;

/* Make its command line, ended by NULL. server_child_release it, also after a failure. -ENOMEM. */
GR_MUST_CHECK int server_child_argv(const struct server_config *config, server_child_words *out);
void server_child_release(server_child_words *argv);

/* Return its name for sentences. */
const char *server_child_name(const struct server_config *config);

#endif
