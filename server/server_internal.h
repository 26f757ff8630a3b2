/* What the files of the server share. Only they and their tests include it.
 *
 *    front_end.c --> serving.c --> added_exports.c   exports that come and go; kept_keys.c: their keys
 *                       |--> start_warm.c            metadata, warmed from the start on
 *                       |--> followed_exports.c      images whose tag is followed
 *                       |--> metrics.c               the counters, over TCP and for the control socket
 *                       |--> control.c               the control socket: control_internal.h
 *                       `--> console.c               the console: console_internal.h
 *    reports.c                                       what others report: for metrics.c and /status
 *    server_health.c                                 how well it serves: for metrics.c and /status
 *    takeover.c                                      takes over what nodes that leave have
 *    peers.c, peer_clients.c, peer_tls.c             answers other nodes from the cache
 *    http_daemon.c                                   libmicrohttpd, for metrics.c, peers.c, control.c and console.c
 */
#ifndef GRANARY_SERVER_SERVER_INTERNAL_H
#define GRANARY_SERVER_SERVER_INTERNAL_H

#include "base/bytes.h"
#include "base/digest.h"
#include "base/error.h"
#include "format/image_ref.h"
#include "stack.h"

/* ---- warming at the start: start_warm.c ---- */

/* Fetches the images' metadata into the cache from the start of a server on: in the background, whether or not the
 * store answers. */
struct start_warm;

/* Start a thread that warms the metadata of one export after the other and holds it in the cache, as warm_run does. An
 * export that fails is tried again after a pause of 1 to 60 s; only its first failure is logged. -ENOMEM. */
GR_MUST_CHECK int start_warm_begin(struct stack *stack, struct start_warm **out);
/* Wake the thread for an export that was added. NULL is allowed. Any thread. */
void start_warm_added(struct start_warm *w);
/* End the thread and free it. Waits for the chunks in flight, so cancel the stores first. NULL is allowed. */
void start_warm_end(struct start_warm *w);

/* ---- added exports: added_exports.c ---- */

/* Exports that are added to a running server, and removed again. A file lists them, so that a server that is killed and
 * started again still serves them. The file names each image by the digest that was resolved when the export was added:
 * a tag that has moved since changes nothing. Exports given on the command line are not in this list. */
struct added_exports;

/* Add to the stack the exports that file lists; file need not exist. file NULL: exports are added, but not noted
 * anywhere. The file tells which exports have keys of their own, but not the keys: those come from the memory keys_fd
 * (kept_keys.c), which is written with each change; -1: there is none. An export whose keys are not there waits: it is
 * not served until it is put again with keys. An export is left out with a warning when its image is gone from the
 * store, or when an export given at this start has its name for another image. Returns 0, -EBADMSG (the file is damaged
 * or of a later version), -ENOMEM, or the stack's error. The stack and the string file outlive it. */
GR_MUST_CHECK int added_exports_open(struct stack *stack, const char *file, int keys_fd, struct added_exports **out);
/* Call it when no other call is in progress. NULL is allowed. */
void added_exports_close(struct added_exports *a);
/* Have warm informed of each export added from now on, and of those just restored; NULL stops that. */
void added_exports_warm(struct added_exports *a, struct start_warm *warm);

/* What an export is added for. A user's export stays until the user removes it; one added for mounts goes with the last
 * mount of it. */
enum added_for { ADDED_FOR_USER, ADDED_FOR_MOUNTS };

/* stack_add, then write the file. An export that a user has asked for stays a user's, even if a mount asks for it too.
 * *out: stack_put it. The errors are stack_add's; -EBUSY: the export was removed meanwhile; -EPERM also: it waits for
 * keys, and the image has none. Any thread. */
GR_MUST_CHECK int added_exports_put(struct added_exports *a, const struct stack_image *image, enum added_for purpose,
                                    const volatile int *cancel, struct stack_export **out);
/* stack_remove of an added export, then write the file. With ADDED_FOR_MOUNTS it returns 0 and leaves *out_removed
 * false when the export was not added for mounts, or clients are still connected to it. -ENOENT: no such export;
 * -EPERM: it was given at the start; -EBUSY: clients are connected. Any thread. */
GR_MUST_CHECK int added_exports_remove(struct added_exports *a, const char *name, enum added_for purpose,
                                       bool *out_removed);

/* Does an export of that name wait for its keys? */
bool added_exports_waits(struct added_exports *a, const char *name);
/* The i-th export that waits for its keys, and its image by digest. false: there are no more, or a is NULL. */
bool added_exports_waiting(struct added_exports *a, size_t i, char name[STACK_EXPORT_NAME_MAX + 1],
                           char image[IMAGE_REF_MAX]);

/* ---- keys for the process after this one: kept_keys.c ---- */

/* The keys of exports that have their own are on no disk. The supervisor holds them in memory without a name (memfd),
 * which each front end inherits and writes; so a front end that is killed, or an upgrade, loses none. Its descriptor is
 * in the environment variable KEPT_KEYS_FD; when the supervisor ends, they are gone. */
#define KEPT_KEYS_FD "GRANARY_KEYS_FD"

/* Bytes of room, at most, that kept_keys_add needs. */
size_t kept_keys_size(const struct stack_export *e);
/* Append an export that has keys. *kept has room for it: bytes_wipe it. */
GR_MUST_CHECK int kept_keys_add(struct bytes *kept, const struct stack_export *e);
/* Replace what the memory holds. */
GR_MUST_CHECK int kept_keys_write(int fd, const struct bytes *kept);
/* Append what it holds to *out, which is empty: bytes_wipe it. -EBADMSG: nothing whole. */
GR_MUST_CHECK int kept_keys_read(int fd, struct bytes *out);
/* Find the keys of an export and its proof (stack_export_proof), which points into *kept. -ENOENT. */
GR_MUST_CHECK int kept_keys_find(const struct bytes *kept, const char *name, struct s3_keys **out,
                                 struct bytes *out_proof);

/* ---- what other processes report: reports.c ---- */

/* The server does not see followers (granary mount --follow) and reconnect daemons; they report to it. In memory only.
 */
struct reports;

enum report_kind { REPORT_FOLLOWED, REPORT_KEPT, REPORT_KINDS };

/* By its follower, of a directory, which is the report's name; or of a followed image (followed_exports.c), by its
 * export's name. image, shown and reason are set for exports only; a directory's are in its state file. */
struct followed_report {
    uint64_t versions;           /* that are alive */
    uint64_t switches;           /* since the directory was made */
    uint64_t behind_s;           /* seconds for which the directory has not shown what its tag names; 0: it does */
    struct digest shown;         /* zero: nothing yet */
    char image[IMAGE_REF_MAX];   /* by tag; "": a directory */
    char reason[ERROR_TEXT_MAX]; /* why the tag's version is not shown; "": it is, or it is being fetched */
};

/* By its reconnect daemon, of a device. */
struct kept_report {
    uint64_t pid, reconnects;   /* the daemon's process; connections that it has replaced */
    uint64_t failed_s;          /* seconds since its last failure */
    char error[ERROR_TEXT_MAX]; /* that failure's sentence; "": there was none */
};

union report {
    struct followed_report followed;
    struct kept_report kept;
};

enum { REPORTS_MAX = 256 }; /* of a kind */

/* -ENOMEM. */
GR_MUST_CHECK int reports_new(struct reports **out);
/* NULL is allowed. */
void reports_free(struct reports *r);
/* Take a report, as of now_ms (clock_now_ms). It replaces the one before of that kind and name; of more than
 * REPORTS_MAX names, the one with the oldest report is forgotten. -ENOMEM. Any thread. */
GR_MUST_CHECK int reports_put(struct reports *r, enum report_kind kind, const char *name, const union report *report,
                              uint64_t now_ms);
/* Forget a name, if it is there. Any thread. */
void reports_remove(struct reports *r, enum report_kind kind, const char *name);
/* Visit every report of a kind, in no order, and return the visitor's non-zero result. age_s is the time since the
 * report, of which its seconds are. The visitor must not block, nor call this module. r NULL: there are none. Any
 * thread. */
typedef int reports_visit(void *arg, const char *name, const union report *report, uint64_t age_s);
GR_MUST_CHECK int reports_each(struct reports *r, enum report_kind kind, uint64_t now_ms, reports_visit *visit,
                               void *arg);

/* ---- other nodes: peers.c ---- */

struct peers;

/* Listen at node->address. Clients must have node->key and a certificate of node->tls; either is not asked for when it
 * is NULL. Errors of listen_tcp; -ENOMEM. */
GR_MUST_CHECK int peers_open(const struct store_node *node, struct stack *stack, struct peers **out);
/* Start the threads; once, after any fork. Errors of peer_tls_begin; -EIO; errors of thread_start. Call peers_close
 * also after a failure. */
GR_MUST_CHECK int peers_start(struct peers *p);
/* The port, which is another than was given if that was 0. */
unsigned peers_port(const struct peers *p);
/* For tests: an answer that is not taken in within this time, in milliseconds, is cut off when the next request comes.
 */
void peers_send_within(struct peers *p, uint64_t ms);
/* Answers what has come, and ends. Requests that wait for a store end when the stores are cancelled. NULL is allowed.
 */
void peers_close(struct peers *p);

/* ---- nodes that leave: takeover.c ---- */

struct takeover;

/* Start the thread that takes over what belongs to this node since others leave. -ENOMEM; errors of thread_start. */
GR_MUST_CHECK int takeover_begin(struct stack *stack, struct takeover **out);
/* Ends when the chunks in flight have come or failed. NULL is allowed. */
void takeover_end(struct takeover *t);

/* ---- health: server_health.c ---- */

/* How well a server serves, as its readers feel it. Only these functions decide it: /status, the exit status of
 * `granary status`, the metrics and the report of each store all use them. In ascending order: the worst part decides.
 */
enum server_health {
    SERVER_HEALTHY,
    SERVER_DEGRADED, /* reads are served, some of them late or at a higher cost */
    SERVER_FAILING,  /* reads of uncached data fail or hang now */
};

enum {
    SERVER_READ_SLOW_MS = 5000,   /* a read that waits this long for a store makes it degraded */
    SERVER_READ_STUCK_MS = 30000, /* and this long, failing */
    /* A store that refuses this number of different objects in a row is failing; fewer, degraded. It may refuse access
     * (-EACCES) to single objects, archived or forbidden ones, so that takes more; wrong credentials (-ENOKEY) concern
     * all objects, so one is enough. */
    SERVER_REFUSALS_FAILING = 3,
    SERVER_FORBIDDEN_FAILING = STORE_REFUSED_MAX,
    /* When its last failure or refusal is as old as this, a store is only degraded: nothing was tried since, and it may
     * have recovered. Kubernetes starts a failed job again after 5 minutes at most, so one that always fails keeps the
     * server failing. */
    SERVER_OLD_MS = 600000,
};

/* Return "healthy", "degraded" or "failing". */
const char *server_health_word(enum server_health health);

/* What a store does. */
struct server_store_state {
    /* "answering"; "slow" or "stuck": a read has been waiting long for it; "failing": its last answers were failures;
     * "refusing": it refused the last requests, for a reason that lasts; "silent": it answers nothing, and the breaker
     * lets one request at a time through. */
    const char *word;
    bool refuses;      /* the rest is about its refusals, not its failures */
    uint64_t for_ms;   /* since the first of them in a row */
    const char *error; /* the sentence of the last; "": there is none; lives as long as the struct store_health */
};

/* Judge one store. */
enum server_health server_health_of_store(const struct store_health *store, struct server_store_state *out);
/* Judge one cache directory, and one shared cache proxy. Neither makes a server worse than degraded. */
enum server_health server_health_of_dir(const struct cache_dir_report *dir);
enum server_health server_health_of_l2(const struct store_l2_report *proxy);

/* Bytes of server_health's sentence, with its NUL. */
enum { SERVER_HEALTH_WHY_MAX = ERROR_TEXT_MAX + 256 };
/* Return the worst health of all stores, cache directories and proxies; an export that waits for its keys (added; may
 * be NULL) is failing. why becomes a sentence about the first one that bad, or "" when healthy. */
enum server_health server_health(struct stack *stack, struct added_exports *added, char why[SERVER_HEALTH_WHY_MAX]);

/* ---- images whose tag is followed: followed_exports.c ---- */

/* One thread, which asks for the tags; see docs/internals/follow.md. */
struct followed_exports;
struct stack_options;

/* Add the version that each followed tag names now, and have the image's name lead to it. Makes no thread. *out NULL:
 * no image is followed. The options, stack, added and reports outlive it. Errors of added_exports_put. */
GR_MUST_CHECK int followed_exports_open(const struct stack_options *options, struct stack *stack,
                                        struct added_exports *added, struct reports *reports,
                                        struct followed_exports **out);
GR_MUST_CHECK int followed_exports_start(struct followed_exports *f);
/* End the thread and free it. Waits for the chunks in flight, so cancel the stores first. NULL is allowed. */
void followed_exports_end(struct followed_exports *f);

/* ---- metrics: metrics.c ---- */

enum {
    METRICS_EXPORTS_MAX = 10000, /* exports with rows: the first ones added */
    METRICS_DOCUMENT_MAX = 64 << 20,
};

#define METRICS_TYPE "text/plain; version=0.0.4"

/* Append every counter of a server to *out, as one document in Prometheus' text form (docs/reference/metrics.md);
 * METRICS_DOCUMENT_MAX as the maximum of *out is enough. added: for the health; it and reports may be NULL. Never
 * blocks. -ENOMEM. Any thread. */
GR_MUST_CHECK int metrics_write(struct stack *stack, struct added_exports *added, struct reports *reports,
                                struct bytes *out);

/* GET /metrics over TCP and nothing else. It serves this document to a Prometheus on another machine, which must not
 * reach the control socket. */
struct metrics_server;

/* Bind and listen at HOST:PORT ([v6]:PORT; port 0 takes a free one). Makes no thread. The stack, added
 * and reports (these may be NULL) are not owned and outlive the server. -EADDRINUSE: another process listens there;
 * -EINVAL: no such address; -ENOMEM, or the errno of the socket calls. */
GR_MUST_CHECK int metrics_server_open(const char *address, struct stack *stack, struct added_exports *added,
                                      struct reports *reports, struct metrics_server **out);
/* The port it listens at. */
unsigned metrics_server_port(const struct metrics_server *m);
/* Start the thread that answers. Call it in the process that serves, after any fork. -EIO. */
GR_MUST_CHECK int metrics_server_start(struct metrics_server *m);
/* NULL is allowed. */
void metrics_server_close(struct metrics_server *m);

/* ---- the control socket: control.c, control_status.c ---- */

struct control;

/* Bind and listen at path (mode 0600). A socket that no process listens on is replaced. Makes no thread. added NULL:
 * exports cannot be changed. reports NULL: reports are refused. The stack, added and reports are not owned and
 * outlive the control. -EADDRINUSE: another process listens there; -EEXIST: path is something other than a socket;
 * -ENOMEM, or the errno of the socket calls. */
GR_MUST_CHECK int control_open(const char *path, struct stack *stack, struct added_exports *added,
                               struct reports *reports, struct control **out);
/* Start the thread that answers requests. Call it in the process that serves, after any fork. */
GR_MUST_CHECK int control_start(struct control *c);
/* Stop answering, cancel the jobs, and remove the socket unless another server has replaced it. NULL is allowed. */
void control_close(struct control *c);

/* ---- the console: console.c ---- */

struct console;

/* All are borrowed, and outlive nothing. */
struct console_config {
    const char *address;          /* HOST:PORT, as metrics_server_open has it */
    const char *token_file;       /* who looks needs this token; NULL: none, on a loopback address only */
    const char *admin_token_file; /* who acts needs this one; NULL: nobody acts */
};

/* Read the tokens, as console_open does, and nothing else. Errors of console_open. */
GR_MUST_CHECK int console_check(const struct console_config *config);
/* Bind and listen, and read the tokens. Makes no thread. The stack, added and reports (these may be NULL) are not owned
 * and outlive the console. -EINVAL: a token is unfit, or missing where other machines reach the address; or the errors
 * of metrics_server_open and io_read_file. */
GR_MUST_CHECK int console_open(const struct console_config *config, struct stack *stack, struct added_exports *added,
                               struct reports *reports, struct console **out);
/* The port it listens at. */
unsigned console_port(const struct console *c);
/* Start its threads. Call it in the process that serves, after any fork. -EIO, or the errors of thread_start. */
GR_MUST_CHECK int console_start(struct console *c);
/* Cancel the actions and stop answering. NULL is allowed. */
void console_close(struct console *c);

/* Return hits / (hits + misses) since the start; 0 before the first hit. */
double control_hit_ratio(struct stack *stack);

#endif
