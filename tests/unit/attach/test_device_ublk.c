/* The mount's side of ublk, with servers that say all kinds of things: each is a child that answers whatever it is
 * asked with the same text. And names of devices as a damaged state could have them. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "base/error.h"
#include "net/listen.h"
#include "unit/scratch.h"

#define ROOT "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char scratch[SCRATCH_MAX], address[SCRATCH_MAX + 8];
static pid_t server;
static int heard; /* what the server was asked */

static int begin(void **state)
{
    scratch_make(scratch);
    snprintf(address, sizeof address, "%s/s", scratch);
    server = 0;
    return 0;
}

static void end_server(void)
{
    if (!server)
        return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(heard);
    server = 0;
}

static int end(void **state)
{
    end_server();
    scratch_remove(scratch);
    return 0;
}

/* Answer each piece that comes with the text, for one client after another; len 0: hang up. */
static void serve(int listener, int report, const char *text, size_t len)
{
    char asked[256];
    for (;;) {
        int client = accept(listener, NULL, NULL);
        for (ssize_t n; (n = read(client, asked, sizeof asked)) > 0;)
            if (write(report, asked, (size_t)n) != n || !len || send(client, text, len, MSG_NOSIGNAL) < 0)
                break;
        close(client);
    }
}

static void start_server(const char *text, size_t len)
{
    int listener, report[2];
    end_server();
    assert_int_equal(listen_unix(address, &listener), 0);
    assert_int_equal(pipe(report), 0);
    server = fork();
    if (!server)
        serve(listener, report[1], text, len);
    close(listener);
    close(report[1]);
    heard = report[0];
}

static void assert_heard(const char *words)
{
    char asked[256];
    ssize_t n = read(heard, asked, sizeof asked - 1);
    assert_true(n > 0);
    asked[n] = 0;
    assert_string_equal(asked, words);
}

static struct export_check the_check(void)
{
    struct export_check check = {.socket = address, .name = "faces", .size = 4096};
    assert_int_equal(digest_parse(ROOT, strlen(ROOT), &check.content_root), 0);
    return check;
}

/* What an attach says of a server with that answer. */
static int attach(const char *text, char out[DEVICE_NAME_MAX], char out_mark[DEVICE_MARK_MAX], int *out_fd)
{
    const struct export_check check = the_check();
    start_server(text, strlen(text));
    return device_ublk_attach(&check, out, out_mark, out_fd);
}

static void assert_refused(const char *text, int code, const char *words)
{
    char device[DEVICE_NAME_MAX], mark[DEVICE_MARK_MAX];
    int fd = -1;
    assert_int_equal(attach(text, device, mark, &fd), code);
    assert_int_equal(fd, -1);
    if (!strstr(error_text(), words))
        fail_msg("the sentence is: %s", error_text());
}

static void test_attach__takes_the_device_and_its_mark(void **state)
{
    char device[DEVICE_NAME_MAX], mark[DEVICE_MARK_MAX];
    int fd = -1;
    assert_int_equal(attach("device 1048575 18446744073709551615 4096 " ROOT "\n", device, mark, &fd), 0);
    assert_heard("attach faces\n");
    assert_string_equal(device, "/dev/ublkb1048575");
    assert_string_equal(mark, "18446744073709551615");
    assert_true(fd >= 0);
    close(fd);
}

static void test_attach__another_image_is_refused(void **state)
{
    assert_refused("device 0 17 8192 " ROOT "\n", -ESTALE, "another image");
    assert_refused("device 0 17 4096 f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", -ESTALE,
                   "another image");
}

static void test_attach__what_is_no_device_is_refused(void **state)
{
    static const char *const answers[] = {
        "kept\n",
        "\n",
        "device\n",
        "device 0 17 4096\n",
        "device 0 17 4096 0123\n",
        "device 0 17 4096 " ROOT "0\n",
        "device 0 17 4096 " ROOT " more\n",
        "device -1 17 4096 " ROOT "\n",
        "device 1048576 17 4096 " ROOT "\n",    /* no such number */
        "device 4294967296 17 4096 " ROOT "\n", /* 0 in 32 bits */
        "device 0x10 17 4096 " ROOT "\n",
        "device ../sda 17 4096 " ROOT "\n",
        "device 0 0 4096 " ROOT "\n", /* the kernel begins with 1 */
        "device 0 -17 4096 " ROOT "\n",
        "device 0 18446744073709551616 4096 " ROOT "\n",
        "device 0 17 -4096 " ROOT "\n",
        "device 0 17 18446744073709551615 " ROOT "\n",
        "HTTP/1.1 400 Bad Request\n",
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(answers); i++)
        assert_refused(answers[i], -EPROTO, "no granary-ublk");
}

static void test_attach__the_servers_refusal_is_quoted(void **state)
{
    assert_refused("failed there is no export 'faces'\n", -EIO, "there is no export 'faces'");
}

static void test_attach__an_answer_without_an_end_is_not_read_for_ever(void **state)
{
    char text[4096];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    assert_refused(text, -EPROTO, "longer than");
}

static void test_attach__a_server_that_hangs_up(void **state)
{
    const struct export_check check = the_check();
    char device[DEVICE_NAME_MAX], mark[DEVICE_MARK_MAX];
    int fd = -1;
    start_server("", 0);
    assert_int_equal(device_ublk_attach(&check, device, mark, &fd), -EIO);
    assert_int_equal(fd, -1);
}

static void test_attach__can_be_cancelled(void **state)
{
    const volatile int cancel = 1;
    struct export_check check = the_check();
    char device[DEVICE_NAME_MAX], mark[DEVICE_MARK_MAX];
    int fd = -1;
    check.cancel = &cancel;
    start_server("device", 6); /* and no more */
    assert_int_equal(device_ublk_attach(&check, device, mark, &fd), -ECANCELED);
    assert_int_equal(fd, -1);
}

/* What keeping a device says of a server with that answer. */
static int keep(const char *text)
{
    const struct export_check check = the_check();
    int fd;
    start_server(text, strlen(text));
    assert_int_equal(listen_connect_unix(address, 60, &fd), 0);
    int rc = device_ublk_keep(&check, fd);
    close(fd);
    return rc;
}

static void test_keep__only_its_own_word_will_do(void **state)
{
    assert_int_equal(keep("kept\n"), 0);
    assert_heard("keep\n");
    assert_int_equal(keep("failed the device is gone\n"), -EIO);
    assert_non_null(strstr(error_text(), "the device is gone"));
    assert_int_equal(keep("kept it\n"), -EPROTO);
    assert_int_equal(keep("device 0 17 4096 " ROOT "\n"), -EPROTO);
}

static void test_fail__asks_by_number(void **state)
{
    start_server("failing\n", 8);
    assert_int_equal(device_ublk_fail(address, "/dev/ublkb17", 0), 0);
    assert_heard("fail 17\n");
    start_server("failed this server has no ublk device 17\n", 41);
    assert_int_equal(device_ublk_fail(address, "/dev/ublkb17", 0), -EIO);
    start_server("kept\n", 5);
    assert_int_equal(device_ublk_fail(address, "/dev/ublkb17", 0), -EPROTO);
    end_server();
    assert_true(device_ublk_fail(address, "/dev/ublkb17", 0) < 0);
}

static void test_device__a_name_of_another_kind_is_never_used(void **state)
{
    static const char *const names[] = {"",
                                        "/",
                                        "/dev/sda",
                                        "/dev/nbd0",
                                        "/dev/loop0",
                                        "/dev/vda",
                                        "/dev/ublkb",
                                        "/dev/ublkb-1",
                                        "/dev/ublkb1p1",
                                        "/dev/ublkb1048576",
                                        "/dev/ublkb0/../../sda",
                                        "/dev/../sys/ublkb0"};
    char mark[DEVICE_MARK_MAX];
    setenv("GRANARY_UBLK", "/nonexistent/granary-ublk", 1);
    start_server("failing\n", 8);
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        device_ublk_mark(names[i], mark);
        assert_string_equal(mark, "");
        assert_int_equal(device_ublk_remove(names[i], ""), -EINVAL);
        assert_int_equal(device_ublk_fail(address, names[i], 0), -EINVAL);
    }
    /* a disk that is gone, or another one by now: the program that removes it is not called */
    device_ublk_mark("/dev/ublkb1048575", mark);
    assert_string_equal(mark, "");
    assert_int_equal(device_ublk_remove("/dev/ublkb1048575", "17"), 0);
    unsetenv("GRANARY_UBLK");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_attach__takes_the_device_and_its_mark),
        TEST(test_attach__another_image_is_refused),
        TEST(test_attach__what_is_no_device_is_refused),
        TEST(test_attach__the_servers_refusal_is_quoted),
        TEST(test_attach__an_answer_without_an_end_is_not_read_for_ever),
        TEST(test_attach__a_server_that_hangs_up),
        TEST(test_attach__can_be_cancelled),
        TEST(test_keep__only_its_own_word_will_do),
        TEST(test_fail__asks_by_number),
        TEST(test_device__a_name_of_another_kind_is_never_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
