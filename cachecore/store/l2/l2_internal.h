/* What the files of the shared cache proxies share (store.h says what these are for):
 *
 *   store_l2.c     a get from the key's proxy, and from the store what the proxy does not send
 *   proxies.c      which proxies there are now, which of them has a key, and how each is
 *   score.c        how well a proxy and a key go together
 *   follow.c       where the proxies come from: URLs, files, names; the thread that follows files and names
 *   names.c        the addresses of a name
 *   members.c      lists of members, and the lines of such a file
 *   self.c         whether a member is this node
 */
#ifndef GRANARY_STORE_L2_L2_INTERNAL_H
#define GRANARY_STORE_L2_L2_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "net/peer_key.h"
#include "store/store_internal.h"

/* ---- who is a member (members.c) ---- */

/* A proxy as a list names it. */
struct member {
    char *url; /* without a slash at its end; owned by the list */
    unsigned
        weight; /* its share of the keys, relative to the others'; at most STORE_WEIGHT_MAX; 0: the list says none */
};

/* A growable array, for vec.h. All zero: empty. */
struct members {
    struct member *items;
    size_t len, cap;
};

/* Append a copy. url: len bytes; slashes at its end are dropped. -ENOMEM. */
GR_MUST_CHECK int members_add(struct members *m, const char *url, size_t len, unsigned weight);
/* Return the member with this URL, or NULL. */
struct member *members_find(const struct members *m, const char *url);
/* Do both name the same members with the same weights in the same order? */
bool members_equal(const struct members *a, const struct members *b);
/* Free everything; the list is empty afterwards. */
void members_release(struct members *m);

/* Parse a file of members (docs/operations/shared-cache.md has its form): len bytes, which a NUL follows and which are
 * changed. name: the file, for sentences, which never show a line, because it may contain a password. -EINVAL:
 * a wrong line, an URL twice, no member at all, more than STORE_L2_MAX; -ENOMEM. *out is complete or empty. */
GR_MUST_CHECK int member_file_parse(const char *name, char *text, size_t len, struct members *out);

/* ---- this node (self.c) ---- */

/* Is it the server that listens at `self` (HOST:PORT) on this machine? The ports must be equal; the URL's host is an
 * address of this machine, its name or "localhost"; and if `self` has an address, it is that one. Asks no name
 * service. */
bool member_is_self(const char *url, const char *self);

/* ---- scores (score.c) ---- */

enum { SCORE_LANES = 4 /* computed at a time */ };
/* The hash of a URL, from which that of URL and name goes on. */
uint64_t score_seed(const char *url);
/* Hash a name with each of the URLs of these seeds. */
void score_of(const uint64_t seeds[SCORE_LANES], const char *name, uint64_t out[SCORE_LANES]);
/* -ln(u)/weight, for u = (score + 1/2) / 2^64: the least wins, and the best score of equal weights has the least. */
double score_cost(uint64_t score, unsigned weight);

/* ---- the proxies (proxies.c) ---- */

/* Counts of one proxy, or of all that ever were. */
struct proxy_counts {
    counter requests, bytes, failures, wrong;
};

/* One proxy. It lives as long as a list or a get refers to it. */
struct proxy {
    _Atomic unsigned refs;
    struct store *store;       /* owned; constant */
    _Atomic bool self;         /* it is this node, as of the list's last change */
    _Atomic bool leaving;      /* a node that has said so */
    _Atomic unsigned weight;   /* where no list gives one: what it says, and before that this node's */
    _Atomic uint64_t heard_ms; /* when what it says changed last, on clock_now_ms; 0: never */
    struct proxy_counts counts;

    /* When it may be asked, on clock_now_ms: 0: now, it is up; UINT64_MAX: not while its trial runs. Written under the
     * lock together with what follows, and read without it. */
    _Atomic uint64_t asked_from_ms;

    /* Guarded by store_proxies.lock. */
    bool down, on_trial;
    unsigned demerits;                           /* below LIMIT while up */
    unsigned lacks;                              /* proxies_lacks in a row, at most LACKS_MAX */
    uint64_t up_since_ms, trial_at_ms, pause_ms; /* on clock_now_ms; pause_ms 0: was never down */
};

/* Opens the store of a proxy. */
typedef int proxy_open(void *arg, const char *url, const struct store_options *options, struct store **out);

struct follow;

/* All proxies of a server. */
struct store_proxies {
    _Atomic unsigned refs;
    proxy_open *open;
    void *open_arg;
    struct store_options options; /* of every proxy */
    struct store_node node;       /* constant */
    _Atomic bool nodes;           /* they are nodes (store.striped); once true, it stays true */
    _Atomic bool weighed;         /* a node's weight is known, this one's or another's */
    _Atomic bool left;            /* this node leaves */
    _Atomic unsigned departures;  /* store_proxies_departures */
    pthread_mutex_t changing;     /* held while the list is replaced; before `lock` */
    unsigned weight;              /* of this node; guarded by changing */
    unsigned numbered;            /* the proxies so far, each of which has a number (store.l2); guarded by changing */
    pthread_mutex_t lock;         /* innermost; never held across a request */
    struct proxy_list *list;      /* guarded by lock; never NULL, and never changed: replaced */
    struct proxy_counts totals;   /* of all proxies, also of those that left, so that they never fall */
    struct follow *follow;        /* follow.c's; constant */
};

/* Without members, and without anything to follow. The caller drops *out with proxies_unref. -ENOMEM. */
GR_MUST_CHECK int proxies_new(proxy_open *open, void *open_arg, const struct store_options *options,
                              const struct store_node *node, struct store_proxies **out);
struct store_proxies *proxies_ref(struct store_proxies *p);
void proxies_unref(struct store_proxies *p); /* frees on the last; no get may be running then */

/* Replace the members. One that stays keeps its health and its counts. One that left is asked no more; it is freed when
 * its last request has ended. At most STORE_L2_MAX, no URL twice. Errors of `open`, -ENOMEM: nothing has changed then.
 */
GR_MUST_CHECK int proxies_set(struct store_proxies *p, const struct members *members);
/* A node has said its weight in an answer; -1: no node answered. */
void proxies_heard(struct store_proxies *p, struct proxy *proxy, int64_t weight);

/* Whether a proxy may be asked at `now` (clock_now_ms): one that is down gets one trial request when its pause is over.
 */
bool proxy_may_be_asked(struct proxy *proxy, uint64_t now);
/* Take a reference to the proxy that was found for a get. false: its trial began, or it went down, since it was found.
 */
bool proxy_take(struct store_proxies *p, struct proxy *proxy, uint64_t now, bool *trial);

/* Choose the proxy for a get at off, and return a reference, or NULL if there is none or all are down. *trial: the
 * proxy is down and this request is its trial. proxies_complete or proxies_call_off must follow unless it is this node,
 * then proxy_unref. Nodes that leave are passed over. */
struct proxy *proxies_choose(struct store_proxies *p, const char *key, uint64_t off, bool *trial);
/* The same if it were another node's but for its leaving: that node; else NULL. */
struct proxy *proxies_choose_leaving(struct store_proxies *p, const char *key, uint64_t off, bool *trial);
/* Would it be this node? */
bool proxies_own(struct store_proxies *p, const char *key, uint64_t off);
void proxy_unref(struct proxy *proxy);

/* Record a request's outcome. For a failure the thread's error holds its sentence, which the log then quotes. */
void proxies_complete(struct store_proxies *p, struct proxy *proxy, bool good, bool trial);
/* End a trial that decides nothing, because the reader stopped or the store failed too: another request may try. */
void proxies_call_off(struct store_proxies *p, struct proxy *proxy, bool trial);
/* A node has answered that it does not have the range, and whether the store has it may not be known before the
 * deadline. So a trial ends here, and the node is up, unless it is down for what it lacks. Return whether the trial
 * goes on. */
bool proxies_answered(struct store_proxies *p, struct proxy *proxy, bool trial);
/* Record that a node answered that it does not have what the store has. That is no failure, but a node that has
 * nothing, LACKS_MAX times in a row, is down like one that fails: or its share of the keys would be fetched by every
 * other node.
 */
enum { LACKS_MAX = 64 };
void proxies_lacks(struct store_proxies *p, struct proxy *proxy, bool trial);
/* Count an answer with wrong bytes of key against the proxy of this number, which sent it. One that has left the list
 * since then counts in the totals alone. */
void proxies_report_bad(struct store_proxies *p, unsigned number, const char *key);

/* Fill in items and len of out, and the list that it then refers to. Without memory there are no items. */
void proxies_reports(struct store_proxies *p, struct store_l2_reports *out);

/* ---- the addresses of a name (names.c) ---- */

#define NAME_SCHEME "dns+"

/* "dns+http://HOST:PORT/PATH": the host, and what stands before and behind it. */
struct name_url {
    const char *scheme; /* "http://" or "https://" */
    char *host, *rest;  /* owned */
};
/* -EINVAL: another form, or https without any_name: certificates are for names, and the members are addresses; -ENOMEM.
 */
GR_MUST_CHECK int name_url_parse(const char *text, bool any_name, struct name_url *out);
void name_url_release(struct name_url *n);

/* An address as an URL has it: "10.0.0.1", "[fd00::1]". */
struct address {
    char text[48];
};
/* A growable array, for vec.h. */
struct addresses {
    struct address *items;
    size_t len, cap;
};

/* Append a host's addresses, in any order. Blocks for as long as it likes; any thread. Any negative errno with a
 * sentence. */
typedef int name_look_up(void *arg, const char *host, struct addresses *out);
/* By the system's name service; arg is not used. */
int name_look_up_system(void *arg, const char *host, struct addresses *out);

/* Make the addresses the members, in an order that depends on them alone; sorts `found`. -ENOENT: there is none;
 * -EINVAL: too many; -ENOMEM. *out is to be released also then. */
GR_MUST_CHECK int name_members(const struct name_url *name, struct addresses *found, struct members *out);

/* A look-up that runs in a thread of its own. One of the two must follow: look_up_end, or look_up_abandon. arg lives as
 * long as the look-up may run. -ENOMEM, errors of thread_start. */
struct look_up;
GR_MUST_CHECK int look_up_start(name_look_up *look, void *arg, const char *host, struct look_up **out);
bool look_up_ended(const struct look_up *l);
/* Take the result of a look-up that has ended, and free it. *out is the caller's, also on failure. */
GR_MUST_CHECK int look_up_end(struct look_up *l, struct addresses *out);
/* Leave it to itself; does not wait. */
void look_up_abandon(struct look_up *l);

/* ---- where they come from (follow.c) ---- */

/* store_proxies_open with what the tests replace. */
struct follow_config {
    const char *const *lists;
    size_t n;
    struct store_options options; /* of every proxy */
    struct store_node node;
    proxy_open *open;            /* NULL: store_http_open */
    void *open_arg;              /* lives as long as the proxies */
    name_look_up *look_up;       /* NULL: name_look_up_system */
    void *look_up_arg;           /* lives as long as a look-up may run */
    unsigned file_ms;            /* between two looks at a file; 0: 1 s */
    unsigned name_ms, answer_ms; /* from a look-up's end to the next one; how long one may take until the list is
                                    failing; 0: 5 s */
};
GR_MUST_CHECK int follow_open(const struct follow_config *config, struct store_proxies **out);

#endif
