/* A store with an image, an NBD server over it, and the client's side of the protocol, byte by byte. */
#ifndef GRANARY_TESTS_UNIT_NBD_WORLD_H
#define GRANARY_TESTS_UNIT_NBD_WORLD_H

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "nbd/server.h"
#include "net/listen.h"
#include "net/nbd_wire.h"
#include "unit/serving_world.h"
#include "unit/threads.h"

enum { WAIT_MS = 120000, THREADS = 8 };

struct world {
    char dir[SCRATCH_MAX], address[SCRATCH_MAX + 8];
    bool tcp; /* listen over TCP, not at a unix path; set before make_store and world_init */
    struct image_fake img;
    struct serving serving;
    struct nbd_server *server;
    struct tls *tls;
    int listen_fd;
};

static struct world w;

/* Make a store with an image, and a socket. */
static inline void make_store(void)
{
    unsigned port = 0;
    serving_make_store(w.dir, &w.img);
    snprintf(w.address, sizeof w.address, "%s/s", w.dir);
    if (w.tcp ? listen_tcp("127.0.0.1:0", &w.listen_fd, &port) : listen_unix(w.address, &w.listen_fd))
        fail_msg("%s", error_text());
    if (w.tcp)
        snprintf(w.address, sizeof w.address, "127.0.0.1:%u", port);
}

static inline void remove_store(void)
{
    close(w.listen_fd);
    image_fake_release(&w.img);
    scratch_remove(w.dir);
}

static inline void world_init(struct nbd_server_config config)
{
    make_store();
    serving_begin(&w.serving, w.dir);
    config.serving = &w.serving;
    config.listen_fd = w.listen_fd;
    if (nbd_server_start(&config, &w.server))
        fail_msg("%s", error_text());
}

static inline struct nbd_server_config at_most(unsigned threads)
{
    return (struct nbd_server_config){.threads = threads};
}

static inline void world_release(void)
{
    nbd_server_stop(w.server, WAIT_MS);
    tls_free(steal_ptr(&w.tls));
    serving_close(&w.serving);
    remove_store();
}

struct cache_range {
    struct image *image;
    uint64_t off, len;
};

static inline void *cache_range_run(void *arg)
{
    const struct cache_range *r = arg;
    uint64_t until = clock_now_ms() + WAIT_MS;
    must(!image_prefetch(r->image, r->off, r->len), "%s", error_text());
    while (!image_is_cached(r->image, r->off, r->len) && clock_now_ms() < until)
        sleep_ms(1);
    must(image_is_cached(r->image, r->off, r->len), "it is not cached");
    return NULL;
}

/* Cache a range of the image. This takes a thread of its own: io_uring's work would interrupt the test's waits for
 * sockets. */
static inline void cache_range(uint64_t off, uint64_t len)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(w.serving.stack, "faces");
    struct cache_range range = {.image = stack_export_image(e), .off = off, .len = len};
    pthread_t thread;
    must(!pthread_create(&thread, NULL, cache_range_run, &range), "no thread");
    pthread_join(thread, NULL);
}

static inline void cache_all(void)
{
    cache_range(0, SIZE);
}

static inline struct nbd_server_stats stats(void)
{
    struct nbd_server_stats s;
    nbd_server_stats(w.server, &s);
    return s;
}

static inline void wait_for_clients(unsigned n)
{
    uint64_t until = clock_now_ms() + WAIT_MS;
    while (stats().clients != n && clock_now_ms() < until)
        sleep_ms(1);
    assert_int_equal(stats().clients, n);
}

/* ---- a client ---- */

static inline int dial(void)
{
    int fd;
    must(!listen_connect(w.address, WAIT_MS / 1000, &fd), "%s", error_text());
    return fd;
}

static inline void transmit(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        must(n > 0, "%s", strerror(errno));
        done += (size_t)n;
    }
}

static inline void receive(int fd, void *out, size_t len)
{
    ssize_t n = io_read_full(fd, out, len);
    must(n == (ssize_t)len, "%zd of %zu bytes", n, len);
}

static inline void expect_end(int fd)
{
    uint8_t rest[4096];
    while (recv(fd, rest, sizeof rest, 0) > 0)
        ;
    close(fd);
}

static inline struct nbd_wire_option_head option_head(uint32_t option, uint32_t len)
{
    struct nbd_wire_option_head head = {.option = htobe32(option), .len = htobe32(len)};
    memcpy(head.magic, NBD_WIRE_OPTION_MAGIC, sizeof head.magic);
    return head;
}

static inline void send_option(int fd, uint32_t option, const void *data, uint32_t len)
{
    struct nbd_wire_option_head head = option_head(option, len);
    transmit(fd, &head, sizeof head);
    transmit(fd, data, len);
}

/* Receive a reply to an option. Returns its type; its data go to `text`, if that is given. */
static inline uint32_t receive_reply(int fd, char text[4096])
{
    struct nbd_wire_reply_head head;
    char data[4096];
    receive(fd, &head, sizeof head);
    must(be64toh(head.magic) == NBD_WIRE_REPLY_MAGIC && be32toh(head.len) < sizeof data, "no reply");
    receive(fd, data, be32toh(head.len));
    data[be32toh(head.len)] = 0;
    if (text)
        memcpy(text, data, sizeof data);
    return be32toh(head.type);
}

/* Receive all replies to an option. Returns the type of the last. */
static inline uint32_t outcome(int fd, char text[4096])
{
    uint32_t type;
    do
        type = receive_reply(fd, text);
    while (type == NBD_WIRE_REP_INFO || type == NBD_WIRE_REP_SERVER);
    return type;
}

static inline int greet(uint32_t flags)
{
    struct nbd_wire_greeting hello;
    int fd = dial();
    receive(fd, &hello, sizeof hello);
    must(!memcmp(hello.magic, NBD_WIRE_GREETING, sizeof hello.magic), "no greeting");
    flags = htobe32(flags);
    transmit(fd, &flags, sizeof flags);
    return fd;
}

static inline uint32_t go(int fd, const char *name, char text[4096])
{
    uint8_t data[256] = {0};
    uint32_t len = (uint32_t)strlen(name), sent = htobe32(len);
    memcpy(data, &sent, sizeof sent);
    memcpy(data + sizeof sent, name, len);
    send_option(fd, NBD_WIRE_OPT_GO, data, len + 6);
    return outcome(fd, text);
}

static inline int attach(void)
{
    int fd = greet(NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES);
    must(go(fd, "faces", NULL) == NBD_WIRE_REP_ACK, "no export");
    return fd;
}

static inline struct nbd_wire_request wire_request(uint16_t command, uint64_t cookie, uint64_t off, uint32_t len)
{
    return (struct nbd_wire_request){.magic = htobe32(NBD_WIRE_REQUEST_MAGIC),
                                     .command = htobe16(command),
                                     .cookie = cookie,
                                     .offset = htobe64(off),
                                     .len = htobe32(len)};
}

static inline void ask(int fd, uint16_t command, uint64_t cookie, uint64_t off, uint32_t len)
{
    const struct nbd_wire_request r = wire_request(command, cookie, off, len);
    transmit(fd, &r, sizeof r);
}

/* Wait until replies fill the sockets: nothing more has come for a while. */
static inline void wait_until_sockets_are_full(int fd)
{
    enum { QUIET_MS = 50 };
    int before = 0, now = 0;
    do {
        before = now;
        sleep_ms(QUIET_MS);
        must(!ioctl(fd, FIONREAD, &now), "%s", strerror(errno));
    } while (!now || now != before);
}

/* Receive the head of the next reply, which must be to that request. Returns its error. */
static inline uint32_t receive_error(int fd, uint64_t cookie)
{
    struct nbd_wire_simple_reply r;
    receive(fd, &r, sizeof r);
    must(be32toh(r.magic) == NBD_WIRE_SIMPLE_MAGIC && r.cookie == cookie, "the reply is to %llu",
         (unsigned long long)r.cookie);
    return be32toh(r.error);
}

#endif
