/* What is asked of a server that is started, by `granary serve` itself or by `granary mount`: options that are named as
 * the plugin's parameters are, in one table. */
#ifndef GRANARY_CLI_SERVER_OPTIONS_H
#define GRANARY_CLI_SERVER_OPTIONS_H

#include "base/vec.h"
#include "cli/open.h"
#include "cli/options.h"

/* The first member of the values of a verb that has SERVER_ROWS. */
struct server_values {
    struct option_list caches, quotas, tiers;
    bool cache_compressed;
    const char *memory, *watermark, *disk_timeout, *eviction, *fence, *warm, *metrics, *bwlimit, *timeout, *slow_read,
        *readahead, *fill, *hedge, *store_connections, *endpoint;
};

#define SERVER_AT(field) offsetof(struct server_values, field), 0, 0

/* clang-format off */
#define SERVER_ROWS                                                                                                    \
    {OPTION_LIST, 0, "cache", "DIR:SIZE[:ssd|hdd]", SERVER_AT(caches),                                                 \
     "keep chunks in DIR, at most SIZE bytes; may be repeated (default: nothing is kept)"},                            \
    {OPTION_FLAG, 0, "cache-compressed", NULL, SERVER_AT(cache_compressed),                                            \
     "keep compressed chunks compressed there: more fit, each read decodes"},                                          \
    {OPTION_LIST, 0, "quota", "NAME:SIZE", SERVER_AT(quotas),                                                          \
     "chunks first kept for the image NAME take at most SIZE bytes of it; may be repeated"},                           \
    {OPTION_TEXT, 0, "memory", "SIZE", SERVER_AT(memory),                                                              \
     "keep what is read most in memory too, at most SIZE bytes"},                                                      \
    {OPTION_TEXT, 0, "watermark", "HIGH:LOW", SERVER_AT(watermark),                                                    \
     "give room back while the caches' filesystem is more than HIGH percent full, until LOW"},                         \
    {OPTION_TEXT, 0, "disk-timeout", "TIME", SERVER_AT(disk_timeout),                                                  \
     "a read waits so long for the caches' disks (default 2s), then its chunks are fetched"},                          \
    {OPTION_TEXT, 0, "eviction", "POLICY", SERVER_AT(eviction),                                                        \
     "what makes room there: auto (default), lru, s3fifo or sticky"},                                                  \
    {OPTION_TEXT, 0, "fence", "warmed", SERVER_AT(fence),                                                              \
     "readers get what is cached and EIO for the rest; only warming fetches"},                                         \
    {OPTION_TEXT, 0, "warm", "metadata|none", SERVER_AT(warm),                                                         \
     "cached and pinned from the start on, in the background (default: metadata)"},                                    \
    {OPTION_TEXT, 0, "metrics", "HOST:PORT", SERVER_AT(metrics),                                                       \
     "answer GET /metrics there, over TCP, to whoever asks"},                                                          \
    {OPTION_LIST, 0, "l2", "URL", SERVER_AT(tiers),                                                                    \
     "a caching HTTP proxy in front of the store, asked for packs first; may be repeated"},                            \
    {OPTION_TEXT, 0, "bwlimit", "RATE", SERVER_AT(bwlimit),                                                            \
     "bytes a second from the stores and tiers together, e.g. 100M (default: no limit)"},                              \
    {OPTION_TEXT, 0, "timeout", "TIME", SERVER_AT(timeout),                                                            \
     "a read of what is not cached fails when the store gave nothing for so long (default 5m)"},                       \
    {OPTION_TEXT, 0, "slow-read", "TIME", SERVER_AT(slow_read),                                                        \
     "log reads that take so long, and where the time went (default 10s; 0: none)"},                                   \
    {OPTION_TEXT, 0, "readahead", "SIZE", SERVER_AT(readahead),                                                        \
     "fetched ahead of a sequential reader, at most (default 1M; 0: none)"},                                           \
    {OPTION_TEXT, 0, "fill", "auto|off", SERVER_AT(fill),                                                              \
     "complete what shuffled reads touch in the background, where the cache can hold it (default: auto)"},             \
    {OPTION_TEXT, 0, "hedge", "PERCENT", SERVER_AT(hedge),                                                             \
     "second gets for what is silent for long, in a hundred gets (default 5; 0: none)"},                               \
    {OPTION_TEXT, 0, "store-connections", "N", SERVER_AT(store_connections),                                           \
     "requests to stores at a time, at most (default 64)"},                                                            \
    ENDPOINT_ROW(struct server_values)
/* clang-format on */

/* CLI_USAGE, with a sentence, for what the plugin would refuse by its parameters' names once it has been started. */
GR_MUST_CHECK int server_options_check(const struct server_values *v);
/* The name of one that was given; NULL: none. The endpoint is the command's too, and does not count. */
const char *server_options_given(const struct server_values *v);

/* Words that say the same: to nbdkit "cache=DIR:SIZE", "cache-compressed=yes"; to granary serve "--cache=DIR:SIZE",
 * "--cache-compressed". --store-connections is the plugin's connections=: mount has --connections of its own. */
enum server_form { SERVER_FOR_NBDKIT, SERVER_FOR_SERVE };
typedef VEC(char *) server_words;
GR_MUST_CHECK int server_options_words(const struct server_values *v, enum server_form form, server_words *out);
void server_words_release(server_words *words);
#define CLEANUP_SERVER_WORDS CLEANUP(server_words_release) server_words

#endif
