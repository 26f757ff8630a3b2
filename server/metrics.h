/* Everything that is counted, as one document in Prometheus' text form: docs/reference/metrics.md. */
#ifndef GRANARY_SERVER_METRICS_H
#define GRANARY_SERVER_METRICS_H

#include "base/bytes.h"
#include "stack.h"

enum {
    METRICS_EXPORTS_MAX = 10000, /* exports with rows of their own, the first ones */
    METRICS_DOCUMENT_MAX = 64 << 20,
};

#define METRICS_TYPE "text/plain; version=0.0.4"

/* Appended to *out; max METRICS_DOCUMENT_MAX holds it. Waits for nothing. */
GR_MUST_CHECK int metrics_write(struct stack *stack, struct bytes *out);

#endif
