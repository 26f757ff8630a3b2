/* granary-csi: the volume driver of Kubernetes on a node (docs/operations/kubernetes.md).
 *
 *   granary-csi [--kubelet-dir DIR] [--node-id NAME] [--inline-stores STORE]...
 *   granary-csi --controller SOCKET
 *
 * It serves one socket, SOCKET or DIR/plugins_registry/csi.granary.io-reg.sock, until SIGTERM. Calls that run then are
 * left to their children: kubelet asks the next driver again. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/log.h"
#include "csi/driver.h"
#include "csi/place.h"
#include "csi/request.h"
#include "format/image_ref.h"
#include "net/listen.h"

enum { EXIT_USAGE = 2, NODE_ID_MAX = 256 }; /* as CSI limits it */

static void print_usage(FILE *out)
{
    fprintf(out,
            "usage: granary-csi [--kubelet-dir DIR] [--node-id NAME] [--inline-stores STORE]...\n"
            "       granary-csi --controller SOCKET\n\n"
            "The volume driver " DRIVER_NAME " of Kubernetes, on a node. Runs granary, which is in PATH, as root.\n"
            "With --controller: the part for StorageClasses, beside external-provisioner; needs neither.\n\n"
            "  --kubelet-dir DIR      kubelet's --root-dir (default /var/lib/kubelet)\n"
            "  --node-id NAME         the node's name in Kubernetes (default: the host's name)\n"
            "  --inline-stores STORE  let pods have inline volumes with images of STORE or below it; may be repeated\n"
            "  --controller SOCKET    serve there, for external-provisioner, and not kubelet\n"
            "  --help, --version\n");
}

/* Allow the images of a store, and of those below it, to inline volumes. */
static int allow_store(struct driver *d, word_list *stores, const char *text)
{
    struct image_ref ref;
    int rc = image_ref_parse_store(text, &ref);
    char *store = rc ? NULL : strdup(ref.store);
    if (!rc && (!store || vec_push(stores, store)))
        rc = error_no_memory();
    d->inline_stores = (const char *const *)stores->items;
    d->inline_store_count = stores->len;
    return rc;
}

/* Wait for SIGTERM or SIGINT. Each call's thread waits for its own children. */
static void wait_for_end(int signals)
{
    struct signalfd_siginfo info = {0};
    struct pollfd p = {.fd = signals, .events = POLLIN};
    while (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT)
        if (poll(&p, 1, -1) > 0 && read(signals, &info, sizeof info) != sizeof info)
            info.ssi_signo = 0;
}

static int serve(struct driver *d)
{
    static char path[PATH_MAX]; /* threads read it until the process ends */
    int signals = -1;
    struct grpc_config config = {.listen_fd = -1, .answer = calls_answer, .arg = d};
    struct grpc_server *server;
    if (!d->socket && (size_t)snprintf(path, sizeof path, "%s/plugins_registry/%s-reg.sock", d->kubelet_dir,
                                       DRIVER_NAME) >= sizeof path)
        return error_set(-EINVAL, "--kubelet-dir is too long");
    if (!d->socket)
        d->socket = path;
    int rc = service_signals(&signals);
    if (!rc)
        rc = listen_unix(d->socket, &config.listen_fd);
    if (!rc)
        rc = grpc_server_start(&config, &server);
    if (rc)
        return rc;
    log_info("serving %s on node %s, version %s", d->socket, d->node_id, GRANARY_VERSION);
    notify("READY=1");
    wait_for_end(signals);
    unlink(d->socket);
    _exit(0); /* calls may run for minutes */
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"kubelet-dir", required_argument, NULL, 'k'},
                                            {"node-id", required_argument, NULL, 'n'},
                                            {"inline-stores", required_argument, NULL, 'i'},
                                            {"controller", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {0}};
    static struct driver driver = {.kubelet_dir = "/var/lib/kubelet", .lock = PTHREAD_MUTEX_INITIALIZER};
    static word_list stores;
    static char host[HOST_NAME_MAX + 1];
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'k':
            driver.kubelet_dir = optarg;
            break;
        case 'n':
            driver.node_id = optarg;
            break;
        case 'i':
            if (!allow_store(&driver, &stores, optarg))
                break;
            fprintf(stderr, "granary-csi: --inline-stores: %s\n", error_text());
            return EXIT_USAGE;
        case 'c':
            driver.socket = optarg;
            driver.is_controller = true;
            break;
        case 'h':
            print_usage(stdout);
            return 0;
        case 'v':
            printf("granary %s\n", GRANARY_VERSION);
            return 0;
        default:
            print_usage(stderr);
            return EXIT_USAGE;
        }
    }
    digest_stay_small();
    mallopt(M_ARENA_MAX, 1); /* each call has a thread: many at once would leave memory in an arena for each */
    size_t len = strlen(driver.kubelet_dir);
    if (!driver.node_id && !gethostname(host, sizeof host))
        driver.node_id = host;
    if (optind < argc || !driver.node_id || !*driver.node_id || strlen(driver.node_id) > NODE_ID_MAX ||
        *driver.kubelet_dir != '/' || driver.kubelet_dir[len - 1] == '/') {
        fprintf(stderr, "granary-csi: DIR is absolute, without a slash at its end; NAME has 1 to %d bytes\n",
                NODE_ID_MAX);
        print_usage(stderr);
        return EXIT_USAGE;
    }
    service_log_begin();
    if (serve(&driver))
        log_error("%s", error_text());
    return EXIT_FAILURE;
}
