/* granary-nbd: serves exports to NBD clients over a listening socket. `granary serve` makes the socket, passes it on
 * as descriptor FD, and starts this program again when it dies.
 *
 *   granary-nbd [-t THREADS] [-v] [-c DIR [-p] | -k FILE] FD KEY=VALUE...
 *
 * The keys are those of the nbdkit plugin (granary-nbd --help). With -c (certificates) or -k (keys made by psktool)
 * clients must use TLS; with -p they need certificates too.
 *
 * Under a supervisor SIGTERM ends it at once, like SIGKILL: clients lose their connection, which mounts survive.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "nbd/server.h"
#include "server/front_end.h"

/* Each client needs a descriptor. Fewer are no error: clients wait then. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Block the signals that end the server; sigwait takes them. Under a supervisor they kill it. */
static void block_signals(sigset_t *out)
{
    sigemptyset(out);
    signal(SIGPIPE, SIG_IGN);
    if (getenv("GRANARY_SUPERVISOR"))
        return;
    sigaddset(out, SIGTERM);
    sigaddset(out, SIGINT);
    sigprocmask(SIG_BLOCK, out, NULL);
}

/* front_end.take: an option of TLS. */
static void take_tls(void *arg, int option, const char *value)
{
    struct tls_config *tls = arg;
    if (option == 'c')
        tls->certificates = value;
    else if (option == 'k')
        tls->psk = value;
    else
        tls->verify_peer = true;
}

/* front_end.serve: serve until a signal, then drain. */
static int nbd_serve(void *arg, struct serving *s, const struct front_end_arguments *w)
{
    const struct tls_config *tls = arg;
    struct nbd_server_config config = {.serving = s, .listen_fd = w->fd, .threads = w->threads};
    struct nbd_server *server = NULL;
    sigset_t ends;
    int number;
    block_signals(&ends);
    allow_descriptors();
    int rc = tls->certificates || tls->psk ? tls_new(tls, &config.tls) : 0;
    if (!rc)
        rc = serving_open(s);
    if (!rc)
        rc = serving_start(s);
    if (!rc)
        rc = nbd_server_start(&config, &server);
    while (!rc && sigwait(&ends, &number))
        ;
    nbd_server_stop(server, NBD_SERVER_DRAIN_MS);
    tls_free(config.tls);
    serving_stop_fetching(s);
    return rc;
}

int main(int argc, char **argv)
{
    struct tls_config tls = {0};
    const struct front_end front_end = {.threads = NBD_SERVER_THREADS,
                                        .own = "c:k:p",
                                        .own_help = "[-c DIR [-p] | -k FILE] ",
                                        .take = take_tls,
                                        .serve = nbd_serve,
                                        .arg = &tls};
    return front_end_main(argc, argv, &front_end);
}
