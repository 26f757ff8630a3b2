/* The options of a server, in one table: the parameters (KEY=VALUE) of the nbdkit plugin, granary-nbd and
 * granary-fuse, and the options (--KEY VALUE) of `granary serve` and `granary mount`. Names, types, ranges, defaults
 * and help texts are here and nowhere else. Knows neither nbdkit nor the command line. */
#ifndef GRANARY_STACK_OPTIONS_H
#define GRANARY_STACK_OPTIONS_H

#include "base/vec.h"
#include "stack.h"

/* The parsed options. Used by one thread until stack_options_complete; must outlive a stack opened from it. */
struct stack_options {
    VEC(struct stack_image) images, followed;
    struct stack_config stack; /* points into this struct's strings */
    char *endpoint;            /* NULL: not given */
    bool warm_metadata;        /* warm metadata from the start */
    bool no_cache;             /* "cache=none" was given, so no directory may be */
    char *control;             /* absolute path of the control socket; NULL: none */
    char *metrics;             /* HOST:PORT; NULL: not given */
    char *peer_listen;         /* the same */
    bool open_to_peers;        /* "peer-key=none" was given */
    char *console;             /* HOST:PORT; NULL: not given */
    char *console_token;       /* absolute paths of files; NULL: not given */
    char *console_admin_token;
    char *exports;       /* absolute path of the file of added exports; NULL: none */
    char *hook;          /* program to run after each switch; NULL: none */
    uint64_t poll_ms;    /* how often the tags of followed images are read */
    unsigned keep;       /* versions of a followed image that are alive, at most */
    VEC(char *) strings; /* owns every string above */
};

/* How a value is parsed. */
enum stack_option_type {
    STACK_OPTION_OWN,   /* has its own parser */
    STACK_OPTION_SIZE,  /* bytes: 64M */
    STACK_OPTION_TIME,  /* 90s, 5m; kept in milliseconds */
    STACK_OPTION_COUNT, /* a number */
    STACK_OPTION_WORD,  /* index of one of the words of SHAPE */
};

/* Each row is one of
 *
 *   OWN(field, how, KEY, OPTION, SHAPE, parser, help)
 *   VALUE(field, how, KEY, OPTION, SHAPE, TYPE, low, high, zero, default, place in struct stack_options, help)
 *
 *   field       a unique C name
 *   how         LIST (repeatable), TEXT, URL, FLAG (no value on the command line; as a parameter "yes"), or NONE:
 *               only a parameter
 *   OPTION      the name on the command line
 *   low, high   the limits, written as a user would; "" for none
 *   zero        0 is allowed below low
 *
 * A new row needs a line in both man pages, the completion, docs/reference/options.md (tests/style/docs.sh checks) and
 * deploy/granary.conf (tests/flow/config.sh). */
/* clang-format off */
#define STACK_OPTIONS(OWN, VALUE)                                                                                      \
    OWN(image, NONE, "image", "", "[NAME=]STORE/IMAGE[:TAG]", set_image,                                               \
        "(repeatable; required unless exports= is given) an image to export, e.g. s3://bucket/prefix/faces:latest\n"   \
        "    or /srv/store/faces, under NAME, else under the image's own name; \"image=\" may be left out")            \
    OWN(caches, LIST, "cache", "cache", "DIR:SIZE[:ssd|hdd]|none", set_cache,                                          \
        "keep chunks in DIR, at most SIZE bytes, e.g. 200G, or a share of the free space there, e.g. 90%; may be repeated")                                   \
    VALUE(cache_compressed, FLAG, "cache-compressed", "cache-compressed", "no|yes",                                    \
          STACK_OPTION_WORD, "", "", false, "no", stack.cache.compressed,                                              \
        "keep compressed chunks compressed there: more fit, each read decodes")                                        \
    OWN(quotas, LIST, "quota", "quota", "NAME:SIZE", set_quota,                                                        \
        "chunks first kept for the image NAME take at most SIZE bytes of it; may be repeated")                         \
    VALUE(memory, TEXT, "memory", "memory", "SIZE",                                                                    \
          STACK_OPTION_SIZE, "16M", "", true, "0", stack.cache.memory,                                                 \
        "keep what is read most in memory too, at most SIZE bytes")                                                    \
    OWN(watermark, TEXT, "watermark", "watermark", "HIGH:LOW", set_watermark,                                          \
        "free space while the caches' filesystem is more than HIGH percent full, until LOW, e.g. 90:85")               \
    VALUE(disk_timeout, TEXT, "disk-timeout", "disk-timeout", "TIME",                                                  \
          STACK_OPTION_TIME, "1s", "10m", false, "2s", stack.cache.disk_timeout_ms,                                    \
        "a read waits this long for the caches' disks, then its chunks are fetched")                                   \
    OWN(eviction, TEXT, "eviction", "eviction", "POLICY", set_eviction,                                                \
        "eviction policy: auto, lru, s3fifo or sticky (default auto)")                                                 \
    VALUE(fence, TEXT, "fence", "fence", "none|warmed",                                                                \
          STACK_OPTION_WORD, "", "", false, "none", stack.cache.fenced,                                                \
        "cache-only mode (warmed): reads of what is not cached fail with EIO; only warming fetches")                   \
    OWN(warm, TEXT, "warm", "warm", "none|metadata", set_warm,                                                         \
        "metadata: cache and pin the filesystems' metadata from the start, in the background (the default of "         \
        "granary serve and mount); none (that of the nbdkit plugin)")                                                  \
    OWN(metrics, TEXT, "metrics", "metrics", "HOST:PORT", set_metrics,                                                 \
        "answer GET /metrics there, over TCP, to any client")                                                          \
    OWN(console, TEXT, "console", "console", "HOST:PORT", set_console,                                                 \
        "show the server in a browser there, at http://HOST:PORT/; an address that other machines reach needs "        \
        "console-token")                                                                                               \
    OWN(console_token, TEXT, "console-token", "console-token", "FILE", set_console_token,                              \
        "the file with the token that the console asks for: openssl rand -hex 32 >FILE")                               \
    OWN(console_admin_token, TEXT, "console-admin-token", "console-admin-token", "FILE", set_console_admin_token,      \
        "the file with the token for actions at the console (warm, pin, evict, drain); without it there are none")     \
    OWN(l2, LIST, "l2", "l2", "URL|FILE", set_l2,                                                                      \
        "a shared cache proxy in front of the store, asked first for packs and index nodes; dns+URL: a proxy at each " \
        "address of the name; or a file of URLs; may be repeated")                                                     \
    OWN(peer_listen, TEXT, "peer-listen", "peer-listen", "HOST:PORT", set_peer_listen,                                 \
        "answer other nodes there from the cache, and keep this node's share of the chunks; l2 lists all nodes")         \
    OWN(peer_key, TEXT, "peer-key", "peer-key", "FILE|none", set_peer_key,                                             \
        "the file with the key by which nodes know each other, and who asks them; none: answer anyone who can reach "  \
        "the port")                                                                                                    \
    OWN(peer_tls, TEXT, "peer-tls", "peer-tls", "DIR", set_peer_tls,                                                   \
        "nodes speak TLS and show each other certificates of one authority: tls.crt, tls.key and ca.crt in DIR")       \
    VALUE(peer_keep, TEXT, "peer-keep", "peer-keep", "all|hot|none",                                                   \
          STACK_OPTION_WORD, "", "", false, "all", stack.cache.others,                                                 \
        "which of the chunks that belong to other nodes this node also keeps")                                         \
    OWN(bwlimit, TEXT, "bwlimit", "bwlimit", "RATE", set_bwlimit,                                                      \
        "bytes a second from the stores and their proxies together, e.g. 100M (default: no limit)")                    \
    VALUE(timeout, TEXT, "timeout", "timeout", "TIME",                                                                 \
          STACK_OPTION_TIME, "1s", "7d", false, "5m", stack.store.timeout_ms,                                          \
        "failing requests are repeated for this long; then the read fails with EIO")                                   \
    VALUE(slow_read, TEXT, "slow-read", "slow-read", "TIME",                                                           \
          STACK_OPTION_TIME, "1s", "7d", true, "10s", stack.slow_read_ms,                                              \
        "log reads that take this long, and where the time went; 0: none")                                             \
    VALUE(readahead, TEXT, "readahead", "readahead", "SIZE",                                                           \
          STACK_OPTION_SIZE, "", "32M", true, "1M", stack.readahead,                                                   \
        "fetched ahead of a sequential reader, at most; 0: none")                                                      \
    VALUE(fill, TEXT, "fill", "fill", "auto|off",                                                                      \
          STACK_OPTION_WORD, "", "", false, "auto", stack.no_completion,                                               \
        "complete regions read in random order, in the background, where the cache can hold the image")                \
    VALUE(hedge, TEXT, "hedge", "hedge", "PERCENT",                                                                    \
          STACK_OPTION_COUNT, "0", "50", true, "5", stack.cache.fetch.hedge_percent,                                   \
        "hedged requests, in percent of demand GETs: a second GET when the first is slower than 95 % of "              \
        "recent ones; 0: none")                                                                                        \
    VALUE(connections, TEXT, "connections", "store-connections", "N",                                                  \
          STACK_OPTION_COUNT, "1", "256", false, "64", stack.cache.fetch.workers,                                      \
        "requests to stores at a time, at most")                                                                       \
    VALUE(index_memory, TEXT, "index-memory", "index-memory", "SIZE",                                                  \
          STACK_OPTION_SIZE, "1M", "", false, "64M", stack.index_memory,                                               \
        "memory for index nodes, shared evenly among the images of the server")                                        \
    OWN(trust, LIST, "trust", "trust", "KEY", set_trust,                                                               \
        "only images that this key has signed (granary sign): a public key file of minisign, or the key itself; may "  \
        "be repeated")                                                                                                 \
    OWN(endpoint, URL, "endpoint", "endpoint", "URL", set_endpoint,                                                    \
        "S3 server to use (default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, then /etc/granary.conf, then AWS)")                                                      \
    OWN(control, NONE, "control", "", "PATH", set_control,                                                             \
        "a unix socket that answers GET /metrics and GET /status, for granary status, cache, warm and trace")          \
    OWN(exports, NONE, "exports", "", "FILE", set_exports,                                                             \
        "keep there the exports that the control socket adds, and serve them from the start when FILE exists")         \
    OWN(follow, NONE, "follow", "", "[NAME=]STORE/IMAGE:TAG", set_follow,                                              \
        "(repeatable) an image whose tag is followed: new connections get the version that it names, once its "        \
        "changes are cached; those that are open keep theirs")                                                         \
    VALUE(poll, NONE, "poll", "", "TIME",                                                                              \
          STACK_OPTION_TIME, "1s", "1d", false, "30s", poll_ms,                                                        \
        "with follow: how often the tag is read")                                                                      \
    VALUE(keep_versions, NONE, "keep-versions", "", "N",                                                               \
          STACK_OPTION_COUNT, "2", "16", false, "3", keep,                                                             \
        "with follow: at most this many versions are alive at once")                                                   \
    OWN(hook, NONE, "hook", "", "PROGRAM", set_hook,                                                                   \
        "with follow: run it after each switch, with the version in its environment")
/* clang-format on */

/* The help text of a VALUE row. */
#define STACK_OPTION_HELP(text, standard) text " (default " standard ")"

/* Set every default; stack_options_release undoes it. */
void stack_options_init(struct stack_options *o);
void stack_options_release(struct stack_options *o);

/* Set one parameter. Relative paths are made absolute, because nbdkit changes its directory. -EINVAL: the sentence
 * names the key and shows the right form; -ENOMEM. */
GR_MUST_CHECK int stack_options_set(struct stack_options *o, const char *key, const char *value);
/* The same by the option's name on the command line, which the sentence then shows ("--key value"). A FLAG's value is
 * "yes". */
GR_MUST_CHECK int stack_options_set_option(struct stack_options *o, const char *option, const char *value);
/* Parse the size of a quota. what, value: its name and all of it, for the sentence. -EINVAL. */
GR_MUST_CHECK int stack_options_parse_quota(const char *what, const char *value, const char *size, uint64_t *out);

/* Check, after the last parameter, that they fit together, and complete o->stack. -EINVAL. */
GR_MUST_CHECK int stack_options_complete(struct stack_options *o);

/* A cache directory as a user writes it. */
struct cache_spec {
    size_t dir_len;   /* the first dir_len bytes of the text are the directory */
    uint64_t size;    /* bytes; 0: percent is set instead */
    unsigned percent; /* 1 to 99, of the space on its filesystem that is free or already the cache's */
    bool hdd;         /* marked as slow by ":hdd" */
};

/* Parse "DIR:SIZE" or "DIR:PERCENT%", then ":ssd", ":hdd" or nothing. DIR may contain colons. what: the option as the
 * user writes it, with its separator: "cache=" or "--cache ". -EINVAL, with a sentence that shows the right form;
 * -ENOMEM. */
GR_MUST_CHECK int cache_spec_parse(const char *what, const char *text, struct cache_spec *out);

/* Return the default of a VALUE row by its key, written as a user would; NULL: none. */
const char *stack_options_default(const char *key);

/* The help text, a paragraph for each key: a string literal. */
#define STACK_OPTION_OWN_HELP(field, how, key, option, shape, set, help) key "=" shape "\n    " help "\n"
#define STACK_OPTION_VALUE_HELP(field, how, key, option, shape, type, low, high, zero, standard, place, help)          \
    key "=" shape "\n    " STACK_OPTION_HELP(help, standard) "\n"
#define STACK_OPTIONS_HELP STACK_OPTIONS(STACK_OPTION_OWN_HELP, STACK_OPTION_VALUE_HELP)

#endif
