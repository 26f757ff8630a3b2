/* NBD's handshake with servers that say all kinds of things: each is a text of bytes that a child sends, whatever it is
 * asked. */
#include "unit/cmocka_all.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "base/bytes.h"
#include "base/error.h"
#include "net/listen.h"
#include "unit/scratch.h"

enum { ACK = 1, SERVER = 2, INFO = 3, ERROR = (int)0x80000000u };

static char scratch[SCRATCH_MAX], address[SCRATCH_MAX + 8];
static struct bytes script = BYTES_INIT(1 << 20); /* what the server sends */
static struct bytes heard = BYTES_INIT(1 << 16);  /* what it was asked */

static int begin(void **state)
{
    scratch_make(scratch);
    snprintf(address, sizeof address, "%s/s", scratch);
    bytes_clear(&script);
    return 0;
}

static int end(void **state)
{
    bytes_release(&script);
    bytes_release(&heard);
    scratch_remove(scratch);
    return 0;
}

static void say(const void *data, size_t len)
{
    assert_int_equal(bytes_append(&script, data, len), 0);
}

static void say32(uint32_t v)
{
    v = htobe32(v);
    say(&v, sizeof v);
}

static void say_greeting(void)
{
    say("NBDMAGICIHAVEOPT\0\3", 18);
}

static void say_reply(uint32_t type, const void *data, uint32_t len)
{
    say("\0\3\xe8\x89\x04\x55\x65\xa9", 8);
    say32(7);
    say32(type);
    say32(len);
    say(data, len);
}

static void say_export(void)
{
    say_reply(INFO, "\0\0\0\0\0\0\0\0\x10\0\1\3", 12); /* 4096 bytes; has flags, read-only, several connections */
}

static void say_description(const char *text)
{
    char data[512];
    int n = snprintf(data, sizeof data, "%c%c%s", 0, SERVER, text);
    say_reply(INFO, data, (uint32_t)n);
}

/* The child says its text at once and hangs up when it has heard the question, or the client is gone. */
static int dial(struct nbd_export *out)
{
    int listener, fd = -1, report[2];
    assert_int_equal(listen_unix(address, &listener), 0);
    assert_int_equal(pipe(report), 0);
    pid_t child = fork();
    if (!child) {
        char asked[256];
        int client = accept(listener, NULL, NULL);
        ssize_t n = send(client, script.data, script.len, MSG_NOSIGNAL);
        shutdown(client, SHUT_WR);
        while ((n = read(client, asked, sizeof asked)) > 0)
            if (write(report[1], asked, (size_t)n) != n)
                _exit(1);
        _exit(0);
    }
    close(report[1]);
    int rc = nbd_dial(address, "faces", 60, out, &fd);
    if (!rc) { /* what the kernel gets has no limits, by which it is told from those it took */
        struct timeval limit = {.tv_sec = 1};
        socklen_t len = sizeof limit;
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, &len), 0);
        assert_int_equal(limit.tv_sec + limit.tv_usec, 0);
        close(fd);
    }
    close(listener);
    uint8_t block[256];
    bytes_clear(&heard);
    for (ssize_t n; (n = read(report[0], block, sizeof block)) > 0;)
        assert_int_equal(bytes_append(&heard, block, (size_t)n), 0);
    close(report[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return rc;
}

static void assert_refused(int code, const char *words)
{
    struct nbd_export got;
    assert_int_equal(dial(&got), code);
    if (!strstr(error_text(), words) || !strstr(error_text(), address))
        fail_msg("the sentence is: %s", error_text());
}

static void test_dial__size_flags_and_content_root_are_taken(void **state)
{
    static const char hex[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char text[128], root[DIGEST_HEX_SIZE];
    struct nbd_export got;
    snprintf(text, sizeof text, "granary content-root sha256:%s metadata 1+2", hex);
    say_greeting();
    say_export();
    say_description(text);
    say_reply(INFO, "\0\3........", 10); /* not asked for */
    say_reply(ACK, "", 0);
    assert_int_equal(dial(&got), 0);
    assert_int_equal(got.size, 4096);
    assert_int_equal(got.flags, 0x103);
    assert_true(got.rooted);
    assert_string_equal(digest_hex(&got.content_root, root), hex);
    static const char question[] = "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\x0d\0\0\0\5faces\0\1\0\2";
    assert_int_equal(heard.len, sizeof question - 1);
    assert_memory_equal(heard.data, question, heard.len);

    struct digest other = got.content_root;
    assert_int_equal(nbd_export_check(address, "faces", &got, 4096, &other), 0);
    assert_int_equal(nbd_export_check(address, "faces", &got, 8192, &other), -ESTALE);
    other.b[31] ^= 1;
    assert_int_equal(nbd_export_check(address, "faces", &got, 4096, &other), -ESTALE);
    assert_non_null(strstr(error_text(), "another image"));
    got.rooted = false;
    assert_int_equal(nbd_export_check(address, "faces", &got, 4096, &other), -ESTALE);
}

static void test_dial__any_servers_export_without_a_content_root(void **state)
{
    struct nbd_export got;
    say_greeting();
    say_export();
    say_reply(ACK, "", 0);
    assert_int_equal(dial(&got), 0);
    assert_false(got.rooted);
}

static void test_dial__no_such_export(void **state)
{
    say_greeting();
    say_reply((uint32_t)ERROR + 6, "gone", 4);
    assert_refused(-ENOENT, "no export 'faces'");
}

static void test_dial__tls(void **state)
{
    say_greeting();
    say_reply((uint32_t)ERROR + 5, "", 0);
    assert_refused(-EACCES, "TLS");
}

static void test_dial__refused_with_its_words(void **state)
{
    say_greeting();
    say_reply((uint32_t)ERROR + 9, "not today", 9);
    assert_refused(-EIO, "not today");
}

static void test_dial__not_nbd(void **state)
{
    say("HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    assert_refused(-EPROTO, "does not speak");
}

static void test_dial__a_reply_too_large_is_not_read(void **state)
{
    say_greeting();
    say("\0\3\xe8\x89\x04\x55\x65\xa9", 8);
    say32(7);
    say32(INFO);
    say32(0x7fffffff);
    assert_refused(-EPROTO, "does not speak");
}

static void test_dial__replies_without_end_do_end(void **state)
{
    say_greeting();
    for (int i = 0; i < 1000; i++)
        say_export();
    assert_refused(-EPROTO, "does not speak");
}

static void test_dial__yes_without_a_size(void **state)
{
    say_greeting();
    say_reply(ACK, "", 0);
    assert_refused(-EPROTO, "does not speak");
}

static void test_dial__hung_up_at_every_byte(void **state)
{
    struct nbd_export got;
    say_greeting();
    say_export();
    say_reply(ACK, "", 0);
    while (script.len--)
        assert_int_equal(dial(&got), -ECONNRESET);
    script.len = 0;
}

static void test_dial__nobody_there(void **state)
{
    struct nbd_export got;
    int fd;
    assert_int_equal(nbd_dial("/nowhere/s", "faces", 60, &got, &fd), -ENOENT);
    assert_int_equal(nbd_dial("no-port", "faces", 60, &got, &fd), -EINVAL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_dial__size_flags_and_content_root_are_taken),
        CASE(test_dial__any_servers_export_without_a_content_root),
        CASE(test_dial__no_such_export),
        CASE(test_dial__tls),
        CASE(test_dial__refused_with_its_words),
        CASE(test_dial__not_nbd),
        CASE(test_dial__a_reply_too_large_is_not_read),
        CASE(test_dial__replies_without_end_do_end),
        CASE(test_dial__yes_without_a_size),
        CASE(test_dial__hung_up_at_every_byte),
        CASE(test_dial__nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
