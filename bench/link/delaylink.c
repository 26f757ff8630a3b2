/* delaylink: a point-to-point link with latency and a rate between two network namespaces, for kernels without netem.
 *
 * It makes one TUN device in each namespace and carries the packets across, each one DELAY_MS later (per direction)
 * and no faster than RATE_MBIT (per direction; 0: no limit). What would wait longer than QUEUE_MS for its turn is
 * dropped, as a router would. Whole TSO segments cross it, so it costs little CPU. SIGUSR1 prints counters; it ends by
 * itself after MAX_SECONDS. The caller gives the two devices addresses: link.sh does.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_MAX = 128 << 10, VNET_HEADER = 10, BURST = 64 };

struct packet {
    struct packet *next;
    uint64_t due_ns;
    size_t len;
    char bytes[];
};

/* One direction: packets in order of their due time, which is the order they came in. */
struct direction {
    char name;
    int in, out;
    struct packet *head, **tail;
    uint64_t free_at_ns; /* when the last packet accepted will have been sent */
    uint64_t packets, bytes, drops, longest_queue_ns;
};

struct link_config {
    uint64_t delay_ns, queue_ns;
    double ns_per_byte;
};

static volatile sig_atomic_t want_counters;

static void on_usr1(int signal)
{
    (void)signal;
    want_counters = 1;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A TUN device of that name in the namespace; the caller's thread stays there. */
static int open_tun(const char *namespace, const char *device)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        die(path);
    if (setns(ns, CLONE_NEWNET))
        die("setns");
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        die("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request))
        die("TUNSETIFF");
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
        die("TUNSETOFFLOAD");
    return fd;
}

static void deliver_due(struct direction *d, uint64_t now)
{
    while (d->head && d->head->due_ns <= now) {
        struct packet *packet = d->head;
        if (write(d->out, packet->bytes, packet->len) < 0)
            d->drops++;
        d->head = packet->next;
        if (!d->head)
            d->tail = &d->head;
        free(packet);
    }
}

/* When the packet starts to cross: 0 when it is dropped. Advances the queue. */
static uint64_t admit(const struct link_config *config, struct direction *d, uint64_t now, size_t len)
{
    if (config->ns_per_byte <= 0)
        return now;
    uint64_t start = d->free_at_ns > now ? d->free_at_ns : now;
    if (start - now > d->longest_queue_ns)
        d->longest_queue_ns = start - now;
    if (start - now > config->queue_ns)
        return 0;
    size_t payload = len > VNET_HEADER ? len - VNET_HEADER : len;
    d->free_at_ns = start + (uint64_t)((double)payload * config->ns_per_byte);
    return d->free_at_ns;
}

static void take_in(const struct link_config *config, struct direction *d)
{
    static char buffer[PACKET_MAX];
    for (int i = 0; i < BURST; i++) {
        ssize_t n = read(d->in, buffer, sizeof buffer);
        if (n <= 0)
            return;
        uint64_t start = admit(config, d, now_ns(), (size_t)n);
        if (!start) {
            d->drops++;
            continue;
        }
        struct packet *packet = malloc(sizeof *packet + (size_t)n);
        if (!packet)
            die("malloc");
        packet->next = NULL;
        packet->due_ns = start + config->delay_ns;
        packet->len = (size_t)n;
        memcpy(packet->bytes, buffer, (size_t)n);
        *d->tail = packet;
        d->tail = &packet->next;
        d->packets++;
        d->bytes += (uint64_t)n;
    }
}

static void print_counters(const struct direction *d)
{
    printf("%c: %" PRIu64 " packets %" PRIu64 " bytes %" PRIu64 " dropped, longest queue %.2f ms\n", d->name,
           d->packets, d->bytes, d->drops, (double)d->longest_queue_ns / 1e6);
    fflush(stdout);
}

static void carry(const struct link_config *config, struct direction d[2], uint64_t stop_ns)
{
    for (;;) {
        uint64_t now = now_ns(), next = stop_ns;
        if (now >= stop_ns)
            return;
        bool print = want_counters; /* once for both: the signal may come in between */
        if (print)
            want_counters = 0;
        for (int i = 0; i < 2; i++) {
            if (print)
                print_counters(&d[i]);
            deliver_due(&d[i], now);
            if (d[i].head && d[i].head->due_ns < next)
                next = d[i].head->due_ns;
        }
        now = now_ns();
        uint64_t wait = next > now ? next - now : 0;
        struct timespec timeout = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
        struct pollfd fds[2] = {{.fd = d[0].in, .events = POLLIN}, {.fd = d[1].in, .events = POLLIN}};
        if (ppoll(fds, 2, &timeout, NULL) < 0) {
            if (errno != EINTR)
                die("ppoll");
            continue;
        }
        for (int i = 0; i < 2; i++)
            if (fds[i].revents)
                take_in(config, &d[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr, "usage: delaylink NS_A DEV_A NS_B DEV_B DELAY_MS RATE_MBIT QUEUE_MS MAX_SECONDS\n");
        return 2;
    }
    double rate = strtod(argv[6], NULL);
    const struct link_config config = {.delay_ns = (uint64_t)(strtod(argv[5], NULL) * 1e6),
                                       .queue_ns = (uint64_t)(strtod(argv[7], NULL) * 1e6),
                                       .ns_per_byte = rate > 0 ? 8000.0 / rate : 0};
    uint64_t stop_ns = now_ns() + (uint64_t)(strtod(argv[8], NULL) * 1e9);
    int a = open_tun(argv[1], argv[2]), b = open_tun(argv[3], argv[4]);
    struct direction d[2] = {{.name = 'A', .in = a, .out = b}, {.name = 'B', .in = b, .out = a}};
    d[0].tail = &d[0].head;
    d[1].tail = &d[1].head;
    /* a link does not wait for a CPU: next to programs under `chrt -f 1`, packets stood in the device for up to 98 ms,
     * and came to the queue as one burst that it could not hold */
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10}))
        perror("delaylink: note: SCHED_FIFO");
    prctl(PR_SET_TIMERSLACK, 1ul);
    struct sigaction action = {.sa_handler = on_usr1};
    sigaction(SIGUSR1, &action, NULL);
    printf("ready\n");
    fflush(stdout);
    carry(&config, d, stop_ns);
    return 0;
}
