/* The plugin's parameters: KEY=VALUE as nbdkit hands them over, parsed by a table into what
 * stack_open takes. Knows nothing of nbdkit. */
#ifndef GRANARY_PLUGIN_OPTIONS_H
#define GRANARY_PLUGIN_OPTIONS_H

#include "base/vec.h"
#include "stack.h"

enum {
    OPTIONS_READAHEAD_DEFAULT = 1 << 20,
    OPTIONS_CONNECTIONS_DEFAULT = 64,
    OPTIONS_HEDGE_DEFAULT = 5,
    OPTIONS_TIMEOUT_DEFAULT_S = 5 * 60,
    OPTIONS_SLOW_READ_DEFAULT_S = 10,
    OPTIONS_INDEX_MEMORY_DEFAULT = 64 << 20,
};

struct options {
    VEC(struct stack_image) images;
    struct stack_config stack; /* points into this struct's strings */
    char *endpoint;            /* NULL: not given */
    bool warm_metadata;        /* from the start on */
    char *control;             /* absolute path of the control socket; NULL: none */
    char *metrics;             /* HOST:PORT; NULL: not given */
    char *exports;             /* absolute path of the file of added exports; NULL: none */
    VEC(char *) strings;       /* everything the pointers above lead to */
};

/* Set every default; options_release undoes it. */
void options_init(struct options *o);
void options_release(struct options *o);

/* One parameter. Relative paths are made absolute: nbdkit changes its directory. -EINVAL: a
 * sentence that names the key and shows the right form. */
GR_MUST_CHECK int options_set(struct options *o, const char *key, const char *value);

/* After the last parameter: check that they suit each other and fill in o->stack. */
GR_MUST_CHECK int options_complete(struct options *o);

/* One paragraph a key, for nbdkit granary --help. */
extern const char options_help[];

#endif
