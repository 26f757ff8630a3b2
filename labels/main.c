/* granary-node-labels: labels of a Kubernetes node that say what its server has cached (granary-node-labels(8)).
 *
 *   granary-node-labels --node NAME [OPTION...] SOCKET    by Kubernetes' API
 *   granary-node-labels --nfd FILE [OPTION...] SOCKET     a feature file of node-feature-discovery
 *
 * One round after the other: ask the server, make the labels, write what has changed. At SIGTERM the labels are
 * removed.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "labels/labels.h"

enum {
    EXIT_USAGE = 2,
    SILENT_MS = 60000,           /* a server that is silent for longer loses its labels; a restart takes less */
    COUNT_SHARE = 10,            /* the server counts chunks for a tenth of the time at most */
    LOOK_MS = 300000,            /* the node's labels are read again after this time; others may change them */
    FILE_LASTS_S = 3600,         /* a feature file expires when it was not written for this long */
    RETRY_MAX_S = 300,           /* the longest Retry-After that is obeyed */
    FEATURE_FILE_MAX = 64 << 10, /* NFD's own limit */
};

struct labeller {
    struct label_api api; /* node NULL: a feature file */
    const char *nfd;      /* its path */
    char control[PATH_MAX];
    struct label_rules rules;
    uint64_t interval_ms;
    struct label_facts facts;
    uint64_t count_ms;    /* how long the server took the last time */
    bool silent;          /* the server does not answer */
    uint64_t answered_ms; /* when the server last answered, on clock_now_ms */
    json_t *now;          /* the node's labels, or those in the file; NULL: not known */
    uint64_t now_ms;      /* when they were read or written */
};

static void print_usage(FILE *out)
{
    fprintf(out,
            "usage: granary-node-labels --node NAME|--nfd FILE [OPTION...] SOCKET\n\n"
            "Keeps labels of a Kubernetes node that say what the server at SOCKET has cached.\n\n"
            "  --node NAME          label this node, by Kubernetes' API, with the pod's service account\n"
            "  --nfd FILE           write a feature file of node-feature-discovery instead\n"
            "  --min-share PERCENT  label images of which at least this much is cached (default 50)\n"
            "  --max-images N       label at most this many images, 1 to %d (default 20)\n"
            "  --measured FILE      take disk and link from the output of 'granary bench --json'; may be repeated\n"
            "  --interval TIME      how long to wait between two looks, 1s to 10m (default 10s)\n"
            "  --credentials DIR    where the service account's token and ca.crt are\n"
            "                       (default /var/run/secrets/kubernetes.io/serviceaccount)\n"
            "  --help, --version\n",
            LABEL_IMAGES_MAX);
}

/* ---- where labels go ---- */

/* NFD reads every file in the directory whose name does not begin with a dot, even while it is being written. */
static int write_file(struct labeller *l, const json_t *wanted)
{
    const char *slash = strrchr(l->nfd, '/'), *name = slash ? slash + 1 : l->nfd;
    CLEANUP_BYTES text = BYTES_INIT(FEATURE_FILE_MAX), hidden = BYTES_INIT(PATH_MAX);
    int rc = labels_feature_file(wanted, time(NULL) + FILE_LASTS_S, &text);
    if (!rc)
        rc = bytes_printf(&hidden, "%.*s.%s", (int)(name - l->nfd), l->nfd, name);
    if (!rc && !bytes_string(&hidden))
        rc = -EMSGSIZE;
    if (!rc)
        rc = io_write_file_owned((const char *)hidden.data, text.data, text.len);
    if (!rc && rename((const char *)hidden.data, l->nfd))
        rc = error_set(-errno, "%s: %s", l->nfd, strerror(errno));
    return rc;
}

static int write_node(struct labeller *l, const json_t *wanted)
{
    bool none;
    int rc = l->now ? 0 : label_api_get(&l->api, &l->now);
    if (rc)
        return rc;
    CLEANUP_JSON json_t *patch = labels_patch(l->now, wanted, &none);
    if (!patch)
        return error_no_memory();
    if (none)
        return 0;
    json_decref(l->now);
    rc = label_api_patch(&l->api, patch, &l->now);
    if (!rc)
        log_info("node %s has %zu labels of its cache", l->api.node, json_object_size(wanted));
    return rc;
}

/* Write the labels to the node or the file, if they differ from what is there. */
static int apply(struct labeller *l, json_t *wanted)
{
    if (!l->now || clock_now_ms() - l->now_ms > LOOK_MS) {
        json_decref(l->now);
        l->now = NULL;
        l->now_ms = clock_now_ms();
    }
    if (l->api.node)
        return write_node(l, wanted);
    if (l->now && json_equal(l->now, wanted))
        return 0;
    int rc = write_file(l, wanted);
    json_decref(l->now);
    l->now = rc ? NULL : json_incref(wanted);
    return rc;
}

/* At the end, since nothing else would remove them later. */
static int remove_all(struct labeller *l)
{
    if (!l->api.node)
        return unlink(l->nfd) && errno != ENOENT ? error_set(-errno, "%s: %s", l->nfd, strerror(errno)) : 0;
    CLEANUP_JSON json_t *none = json_object();
    return none ? write_node(l, none) : error_no_memory();
}

/* ---- rounds ---- */

/* -EBUSY counts as an answer: the server's jobs may run for hours, and what is known of its images stays true. A silent
 * server is logged once and is no failure, so that it is asked again after the usual interval. */
static int run_round(struct labeller *l)
{
    uint64_t began = clock_now_ms();
    int rc = label_facts_read(l->control, &l->facts);
    l->count_ms = clock_now_ms() - began;
    if (!rc || rc == -EBUSY)
        l->answered_ms = clock_now_ms();
    else if (!l->silent)
        log_warning("%s", error_text());
    l->silent = rc && rc != -EBUSY;
    if (l->silent && clock_now_ms() - l->answered_ms < SILENT_MS)
        return 0;
    if (l->silent)
        label_facts_silent(&l->facts);
    CLEANUP_JSON json_t *wanted = labels_make(&l->facts, &l->rules);
    return wanted ? apply(l, wanted) : error_no_memory();
}

/* Return whether a signal ended the wait. */
static bool wait_ms(int signals, uint64_t ms)
{
    struct signalfd_siginfo info = {0};
    struct pollfd p = {.fd = signals, .events = POLLIN};
    uint64_t until = clock_now_ms() + ms;
    for (uint64_t now; (now = clock_now_ms()) < until;)
        if (poll(&p, 1, (int)(until - now)) > 0 && read(signals, &info, sizeof info) == sizeof info &&
            (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT))
            return true;
    return false;
}

static int run(struct labeller *l)
{
    CLEANUP_FD int signals = -1;
    unsigned failures = 0;
    uint32_t random = 0;
    uint64_t wait;
    int rc = service_signals(&signals);
    if (rc)
        return rc;
    l->answered_ms = clock_now_ms();
    do {
        rc = run_round(l);
        if (rc)
            log_warning("%s", error_text());
        failures = rc ? failures + 1 : 0;
        if (io_random(&random, sizeof random))
            random = 0;
        wait = labels_wait_ms(l->interval_ms, failures, random);
        wait = GR_MAX(wait, COUNT_SHARE * l->count_ms);
        if (rc)
            wait = GR_MAX(wait, 1000 * (uint64_t)GR_MIN(error_retry_after_s(), RETRY_MAX_S));
    } while (!wait_ms(signals, wait));
    return remove_all(l);
}

/* ---- the command line ---- */

static int set_number(const char *option, const char *text, unsigned max, unsigned *out)
{
    uint64_t n;
    int rc = text_parse_uint(option, text, 1, max, &n);
    if (!rc)
        *out = (unsigned)n;
    return rc;
}

static int set_interval(const char *text, uint64_t *out_ms)
{
    uint64_t s;
    int rc = text_parse_duration("--interval", text, &s);
    if (!rc && (s < 1 || s > 600))
        return error_set(-EINVAL, "--interval: from 1s to 10m");
    if (!rc)
        *out_ms = s * 1000;
    return rc;
}

static int take_option(struct labeller *l, int option, const char *text)
{
    switch (option) {
    case 'n':
        l->api.node = text;
        return 0;
    case 'f':
        l->nfd = text;
        return 0;
    case 'c':
        l->api.credentials = text;
        return 0;
    case 's':
        return set_number("--min-share", text, 100, &l->rules.min_share);
    case 'm':
        return set_number("--max-images", text, LABEL_IMAGES_MAX, &l->rules.max_images);
    case 'i':
        return set_interval(text, &l->interval_ms);
    default: /* 'b': without the figures, there are the other labels */
        if (label_facts_measured(text, &l->facts))
            log_warning("%s", error_text());
        return 0;
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"node", required_argument, NULL, 'n'},        {"nfd", required_argument, NULL, 'f'},
        {"credentials", required_argument, NULL, 'c'}, {"min-share", required_argument, NULL, 's'},
        {"max-images", required_argument, NULL, 'm'},  {"interval", required_argument, NULL, 'i'},
        {"measured", required_argument, NULL, 'b'},    {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},           {0}};
    static struct labeller l = {.api.credentials = "/var/run/secrets/kubernetes.io/serviceaccount",
                                .rules = {.min_share = 50, .max_images = 20},
                                .interval_ms = 10000};
    service_log_begin();
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'h') {
            print_usage(stdout);
            return 0;
        }
        if (c == 'v') {
            printf("granary %s\n", GRANARY_VERSION);
            return 0;
        }
        if (c == '?') {
            print_usage(stderr);
            return EXIT_USAGE;
        }
        if (take_option(&l, c, optarg)) {
            fprintf(stderr, "granary-node-labels: %s\n", error_text());
            return EXIT_USAGE;
        }
    }
    if (optind != argc - 1 || !l.api.node == !l.nfd || (l.api.node && !*l.api.node) ||
        (size_t)snprintf(l.control, sizeof l.control, "%s.control", argv[optind]) >= sizeof l.control) {
        fprintf(stderr, "granary-node-labels: give SOCKET, and either --node or --nfd\n");
        print_usage(stderr);
        return EXIT_USAGE;
    }
    log_info("labels of the server at %s, version %s", argv[optind], GRANARY_VERSION);
    int rc = run(&l);
    if (rc)
        log_error("%s", error_text());
    json_decref(l.now);
    label_facts_release(&l.facts);
    return rc ? EXIT_FAILURE : 0;
}
