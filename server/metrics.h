/* Every counter of a server as one document in Prometheus' text form: docs/reference/metrics.md. */
#ifndef GRANARY_SERVER_METRICS_H
#define GRANARY_SERVER_METRICS_H

#include "base/bytes.h"
#include "stack.h"

enum {
    METRICS_EXPORTS_MAX = 10000, /* exports with rows: the first ones added */
    METRICS_DOCUMENT_MAX = 64 << 20,
};

#define METRICS_TYPE "text/plain; version=0.0.4"

/* Append the document to *out; METRICS_DOCUMENT_MAX as its maximum is enough. Never blocks. -ENOMEM. Any thread. */
GR_MUST_CHECK int metrics_write(struct stack *stack, struct bytes *out);

#endif
