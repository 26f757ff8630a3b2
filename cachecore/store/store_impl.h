/* What the store implementations share; nobody else includes it. */
#ifndef GRANARY_STORE_STORE_IMPL_H
#define GRANARY_STORE_STORE_IMPL_H

#include "net/http.h"
#include "store/store.h"

/* A caller's sink with what it has got so far: for a get that goes on elsewhere behind the bytes handed on. */
struct store_resume {
    store_sink *sink;
    void *arg;
    uint64_t done;
    int stopped; /* what the caller's sink returned */
};
/* The sink to hand down; arg is the struct store_resume. */
int store_pass_on(void *arg, const void *data, size_t len);

/* What the options say about connections. */
void store_http_config(const struct store_options *options, struct http_config *out);

#endif
