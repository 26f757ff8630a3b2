/* Shared by the store implementations; private to this folder. */
#ifndef GRANARY_STORE_STORE_IMPL_H
#define GRANARY_STORE_STORE_IMPL_H

#include "net/http.h"
#include "store/store.h"

/* A caller's sink and how many bytes it has received, so that a get can continue elsewhere after them. */
struct store_resume {
    store_sink *sink;
    void *arg;
    uint64_t done; /* bytes passed on */
    int stopped;   /* what the caller's sink returned */
};
/* The sink to pass to the lower store. arg is the struct store_resume. */
int store_pass_on(void *arg, const void *data, size_t len);

/* Fill in the HTTP client's configuration from the store options: connections, timeouts, rate, cancel. */
void store_http_config(const struct store_options *options, struct http_config *out);

#endif
