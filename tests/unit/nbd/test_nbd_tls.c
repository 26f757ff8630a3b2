/* TLS of the NBD server: plaintext where none is allowed, handshakes that stop, garbage, and clients that speak TLS.
 * Certificates are in flow/serve-tls. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <pthread.h>

#include "unit/nbd_world.h"

#define KEY "00112233445566778899aabbccddeeff"

static char key_dir[SCRATCH_MAX];

/* A server that requires TLS with alice's key; over TCP, whose sockets accept a part of a record. */
static void tls_world_init(unsigned handshake_ms)
{
    static const char key[] = "alice:" KEY "\n";
    char path[SCRATCH_MAX + 8];
    struct nbd_server_config config = {.threads = THREADS, .handshake_ms = handshake_ms, .slow_ms = WAIT_MS};
    scratch_make(key_dir);
    snprintf(path, sizeof path, "%s/keys", key_dir);
    assert_int_equal(io_write_file_atomic(path, key, sizeof key - 1, false), 0);
    if (tls_new(&(struct tls_config){.psk = path}, &w.tls))
        fail_msg("%s", error_text());
    config.tls = w.tls;
    w.tcp = true;
    world_init(config);
}

static void tls_world_release(void)
{
    world_release();
    scratch_remove(key_dir);
}

static void test_nbd_tls__where_tls_is_required_plaintext_learns_nothing(void **state)
{
    static const uint32_t options[] = {NBD_WIRE_OPT_LIST, NBD_WIRE_OPT_INFO, NBD_WIRE_OPT_GO, 77};
    static char zeros[70000];
    tls_world_init(0);
    int fd = greet(NBD_WIRE_FIXED_NEWSTYLE);
    for (size_t i = 0; i < GR_ARRAY_SIZE(options); i++) {
        send_option(fd, options[i], "", 0);
        assert_int_equal(receive_reply(fd, NULL), NBD_WIRE_REP_ERR_TLS_REQD);
    }
    send_option(fd, 77, zeros, sizeof zeros);
    assert_int_equal(receive_reply(fd, NULL), NBD_WIRE_REP_ERR_TLS_REQD);
    send_option(fd, NBD_WIRE_OPT_STARTTLS, "x", 1);
    assert_int_equal(receive_reply(fd, NULL), NBD_WIRE_REP_ERR_INVALID);
    send_option(fd, NBD_WIRE_OPT_EXPORT_NAME, "faces", 5);
    assert_int_equal(recv(fd, zeros, 1, 0), 0);
    close(fd);
    tls_world_release();
}

/* Behind STARTTLS the server takes no plaintext, whether it comes with STARTTLS or later, nor anything else but TLS. */
static void test_nbd_tls__plaintext_behind_starttls_ends_it(void **state)
{
    static const char both[] = "IHAVEOPT\0\0\0\5\0\0\0\0IHAVEOPT\0\0\0\3\0\0\0\0";
    char rest[4096];
    tls_world_init(0);
    int fd = greet(NBD_WIRE_FIXED_NEWSTYLE);
    transmit(fd, both, sizeof both - 1);
    assert_int_equal(recv(fd, rest, sizeof rest, 0), 0);
    close(fd);
    for (int i = 0; i < 2; i++) {
        fd = greet(NBD_WIRE_FIXED_NEWSTYLE);
        send_option(fd, NBD_WIRE_OPT_STARTTLS, "", 0);
        assert_int_equal(receive_reply(fd, NULL), NBD_WIRE_REP_ACK);
        transmit(fd, i ? "\x16\3\1\2\0garbage in a record of TLS, as long as it likes to be" : both, 32);
        if (i)
            shutdown(fd, SHUT_WR); /* the record is not whole */
        ssize_t n = recv(fd, rest, sizeof rest, 0);
        assert_true(n <= 0 || rest[0] == 21); /* an alert */
        expect_end(fd);
    }
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    tls_world_release();
}

static void test_nbd_tls__a_client_that_begins_tls_and_stops_is_disconnected(void **state)
{
    tls_world_init(1000);
    int fd = greet(NBD_WIRE_FIXED_NEWSTYLE);
    send_option(fd, NBD_WIRE_OPT_STARTTLS, "", 0);
    assert_int_equal(receive_reply(fd, NULL), NBD_WIRE_REP_ACK);
    transmit(fd, "\x16\3\1\2\0", 5);
    expect_end(fd);
    wait_for_clients(0);
    tls_world_release();
}

/* ---- a client that speaks TLS ---- */

struct secure_client {
    gnutls_psk_client_credentials_t keys;
    gnutls_session_t session; /* NULL: refused */
    int fd;
};

static int complete(gnutls_session_t session)
{
    int code;
    do
        code = gnutls_handshake(session);
    while (code < 0 && !gnutls_error_is_fatal(code));
    return code;
}

/* Connect and begin TLS as alice, with that key. */
static struct secure_client secure(const char *hex)
{
    struct secure_client c = {.fd = greet(NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES)};
    const gnutls_datum_t key = {.data = (unsigned char *)(uintptr_t)hex, .size = (unsigned)strlen(hex)};
    send_option(c.fd, NBD_WIRE_OPT_STARTTLS, "", 0);
    must(receive_reply(c.fd, NULL) == NBD_WIRE_REP_ACK, "no TLS");
    must(!gnutls_psk_allocate_client_credentials(&c.keys), "no credentials");
    must(!gnutls_psk_set_client_credentials(c.keys, "alice", &key, GNUTLS_PSK_KEY_HEX), "the key");
    must(!gnutls_init(&c.session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), "no session");
    must(!gnutls_priority_set_direct(c.session, "NORMAL:-KX-ALL:+ECDHE-PSK:+DHE-PSK", NULL), "the priority");
    must(!gnutls_credentials_set(c.session, GNUTLS_CRD_PSK, c.keys), "the credentials");
    gnutls_transport_set_int(c.session, c.fd);
    if (complete(c.session) < 0)
        gnutls_deinit(steal_ptr(&c.session));
    return c;
}

static void disconnect(struct secure_client *c)
{
    if (c->session)
        gnutls_deinit(c->session);
    gnutls_psk_free_client_credentials(c->keys);
    close(c->fd);
}

static void say(gnutls_session_t session, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = gnutls_record_send(session, (const char *)data + done, len - done);
        must(n > 0, "%s", gnutls_strerror((int)n));
        done += (size_t)n;
    }
}

/* After a record without data, such as a KeyUpdate, GnuTLS says GNUTLS_E_AGAIN. */
static void hear(gnutls_session_t session, void *out, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = gnutls_record_recv(session, (char *)out + done, len - done);
        must(n > 0 || n == GNUTLS_E_AGAIN, "%s", gnutls_strerror((int)n));
        done += n > 0 ? (size_t)n : 0;
    }
}

/* Receive the head of the next reply. */
static struct nbd_wire_simple_reply hear_head(gnutls_session_t session)
{
    struct nbd_wire_simple_reply r;
    hear(session, &r, sizeof r);
    must(be32toh(r.magic) == NBD_WIRE_SIMPLE_MAGIC, "no reply");
    return r;
}

/* Receive and check the data of the reply to read n, of len bytes at n * 4096. */
static void hear_data(gnutls_session_t session, uint64_t n, uint32_t len)
{
    CLEANUP_FREE uint8_t *got = malloc(len), *want = malloc(len);
    hear(session, got, len);
    image_fake_bytes(&w.img, n * 4096, want, len);
    must(!memcmp(got, want, len), "wrong byte in the reply to %llu", (unsigned long long)n);
}

/* Receive and check the next reply, which is to one of `reads` reads. Returns its cookie. */
static uint64_t hear_reply(gnutls_session_t session, uint64_t reads, uint32_t len)
{
    struct nbd_wire_simple_reply r = hear_head(session);
    must(!r.error && r.cookie < reads, "no reply");
    hear_data(session, r.cookie, len);
    return r.cookie;
}

static void say_request(gnutls_session_t session, uint16_t command, uint64_t n, uint32_t len)
{
    const struct nbd_wire_request r = {.magic = htobe32(NBD_WIRE_REQUEST_MAGIC),
                                       .command = htobe16(command),
                                       .cookie = n,
                                       .offset = htobe64(n * 4096),
                                       .len = htobe32(len)};
    say(session, &r, sizeof r);
}

static void say_read(gnutls_session_t session, uint64_t n, uint32_t len)
{
    say_request(session, NBD_WIRE_READ, n, len);
}

/* Open the export as alice. */
static struct secure_client attach_securely(void)
{
    static const char option[] = "IHAVEOPT\0\0\0\1\0\0\0\5faces";
    uint8_t export[10];
    struct secure_client c = secure(KEY);
    assert_non_null(c.session);
    say(c.session, option, sizeof option - 1);
    hear(c.session, export, sizeof export);
    return c;
}

enum { READS = 400, READ = 100000 };

static void *ask_for_all(void *arg)
{
    for (uint64_t i = 0; i < READS; i++)
        say_read(arg, i, READ);
    return NULL;
}

/* The server receives requests while it sends replies. Of both there is more than the buffers hold. */
static void test_nbd_tls__requests_and_replies_pass_each_other(void **state)
{
    pthread_t asker;
    tls_world_init(0);
    struct secure_client c = secure("ff112233445566778899aabbccddeeff");
    assert_null(c.session);
    disconnect(&c);
    c = attach_securely();
    assert_int_equal(pthread_create(&asker, NULL, ask_for_all, c.session), 0);
    for (int i = 0; i < READS; i++)
        hear_reply(c.session, READS, READ);
    pthread_join(asker, NULL);
    disconnect(&c);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    tls_world_release();
}

/* Replies are dropped while a record is half sent. What the client takes in the end is right all the same. */
static void test_nbd_tls__replies_that_were_dropped_are_whole(void **state)
{
    enum { CLIENTS = 9, READER = 8, ASKED = 16, LEN = 1 << 20, PLACES = 60 };
    struct secure_client clients[CLIENTS];
    tls_world_init(0);
    cache_all();
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = attach_securely();
        for (uint64_t n = 0; i != READER && n < ASKED; n++)
            say_read(clients[i].session, n, LEN);
    }
    for (uint64_t n = 0; n < PLACES; n++) {
        say_read(clients[READER].session, n, LEN);
        assert_int_equal(hear_reply(clients[READER].session, PLACES, LEN), n);
    }
    for (int i = 0; i < READER; i++)
        for (uint64_t n = 0; n < ASKED; n++)
            hear_reply(clients[i].session, ASKED, LEN);
    for (int i = 0; i < CLIENTS; i++)
        disconnect(&clients[i]);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    tls_world_release();
}

/* ---- new keys ---- */

static unsigned updates_heard;

static int count_update(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                        const gnutls_datum_t *message)
{
    updates_heard += incoming;
    return 0;
}

/* A client changes its keys and asks for new ones of the server while a record is half sent. The server takes that, and
 * a write larger than all buffers, before the client takes any reply: so neither waits for the other. */
static void test_nbd_tls__keys_change_while_a_record_is_half_sent(void **state)
{
    enum { ROUNDS = 3, ASKED = 24, LEN = 1 << 20, REFUSED = 32 << 20 };
    static uint8_t payload[REFUSED];
    const int room = 64 << 10;
    tls_world_init(0);
    cache_all();
    struct secure_client c = attach_securely();
    assert_int_equal(setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    gnutls_handshake_set_hook_function(c.session, GNUTLS_HANDSHAKE_KEY_UPDATE, GNUTLS_HOOK_POST, count_update);
    updates_heard = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t n = 0; n < ASKED; n++)
            say_read(c.session, n, LEN);
        wait_until_sockets_are_full(c.fd);
        must(!gnutls_session_key_update(c.session, GNUTLS_KU_PEER), "no new keys");
        say_request(c.session, NBD_WIRE_WRITE, ASKED, sizeof payload);
        say(c.session, payload, sizeof payload);
        for (int i = 0; i < ASKED + 1; i++) {
            struct nbd_wire_simple_reply r = hear_head(c.session);
            if (r.cookie == ASKED)
                assert_int_equal(be32toh(r.error), EPERM);
            else
                hear_data(c.session, r.cookie, LEN);
        }
    }
    assert_int_equal(updates_heard, ROUNDS);
    disconnect(&c);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    tls_world_release();
}

/* tls.c relies on this: an answer that GnuTLS sent by itself could wait for ever in a session without a reply. */
static void test_nbd_tls__new_keys_are_answered_with_the_next_reply(void **state)
{
    enum { ANSWER_MS = 100 };
    int come;
    tls_world_init(0);
    struct secure_client c = attach_securely();
    gnutls_handshake_set_hook_function(c.session, GNUTLS_HANDSHAKE_KEY_UPDATE, GNUTLS_HOOK_POST, count_update);
    updates_heard = 0;
    must(!gnutls_session_key_update(c.session, GNUTLS_KU_PEER), "no new keys");
    sleep_ms(ANSWER_MS);
    assert_int_equal(ioctl(c.fd, FIONREAD, &come), 0);
    assert_int_equal(come, 0);
    say_read(c.session, 0, READ);
    hear_reply(c.session, 1, READ);
    assert_int_equal(updates_heard, 1);
    disconnect(&c);
    tls_world_release();
}

/* A client that sends nothing else is disconnected, and another one reads on. */
static void test_nbd_tls__a_flood_of_key_updates_ends_the_session(void **state)
{
    enum { MANY = 1000000 };
    int code = 0;
    tls_world_init(0);
    struct secure_client flooding = attach_securely(), other = attach_securely();
    for (int i = 0; i < MANY && !code; i++)
        code = gnutls_session_key_update(flooding.session, i % 2 ? GNUTLS_KU_PEER : 0);
    assert_true(code < 0);
    wait_for_clients(1);
    say_read(other.session, 0, READ);
    hear_reply(other.session, 1, READ);
    disconnect(&flooding);
    disconnect(&other);
    tls_world_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_tls__where_tls_is_required_plaintext_learns_nothing),
        cmocka_unit_test(test_nbd_tls__plaintext_behind_starttls_ends_it),
        cmocka_unit_test(test_nbd_tls__a_client_that_begins_tls_and_stops_is_disconnected),
        cmocka_unit_test(test_nbd_tls__requests_and_replies_pass_each_other),
        cmocka_unit_test(test_nbd_tls__replies_that_were_dropped_are_whole),
        cmocka_unit_test(test_nbd_tls__keys_change_while_a_record_is_half_sent),
        cmocka_unit_test(test_nbd_tls__new_keys_are_answered_with_the_next_reply),
        cmocka_unit_test(test_nbd_tls__a_flood_of_key_updates_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
