/* The supervisor does not wait for the client that asks for an upgrade: it has other things to do. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach/server/server_internal.h"

static int connect_to(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%.100s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void test_upgrade__a_silent_client_delays_nothing(void **state)
{
    char dir[] = "/tmp/granary-upgrade-XXXXXX", control[64], line[256];
    const char *again[] = {NULL, "serve", NULL};
    struct upgrade u = UPGRADE_INIT;
    assert_non_null(mkdtemp(dir));
    snprintf(control, sizeof control, "%s/control", dir);
    upgrade_listen(&u, control);
    assert_true(u.requests_fd >= 0);

    int silent = connect_to(u.path);
    upgrade_take(&u, again); /* comes back though nothing was said */
    assert_true(u.pending_fd >= 0);
    assert_int_equal(upgrade_poll_fd(&u), u.pending_fd);
    upgrade_take(&u, again);
    assert_true(u.pending_fd >= 0);
    close(silent);
    upgrade_take(&u, again);
    assert_int_equal(u.pending_fd, -1);
    assert_int_equal(upgrade_poll_fd(&u), u.requests_fd);

    int other = connect_to(u.path);
    upgrade_take(&u, again);
    assert_int_equal(write(other, "what?\n", 6), 6);
    upgrade_take(&u, again);
    ssize_t n = read(other, line, sizeof line - 1);
    assert_true(n > 0);
    line[n] = 0;
    assert_string_equal(line, UPGRADE_FAILED "the request is not understood\n");
    close(other);

    silent = connect_to(u.path);
    upgrade_take(&u, again);
    u.pending_until_ms = 1; /* long past */
    upgrade_take(&u, again);
    assert_int_equal(u.pending_fd, -1);
    close(silent);
    upgrade_release(&u);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upgrade__a_silent_client_delays_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
