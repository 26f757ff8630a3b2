/* What a mount is made of, without a device: its state, its sockets, the programs it runs. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/control_client.h"
#include "attach/device/device_internal.h"
#include "attach/keeper/keeper.h"
#include "attach/mount/mount_internal.h"
#include "attach/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/process.h"
#include "net/listen.h"
#include "unit/scratch.h"

static char scratch[SCRATCH_MAX];

static int make_scratch(void **state)
{
    scratch_make(scratch);
    return 0;
}

static int remove_scratch(void **state)
{
    scratch_remove(scratch);
    return 0;
}

static const char *path_of(const char *name)
{
    static char path[SCRATCH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

/* ---- state ---- */

static struct mount_state example(void)
{
    struct mount_state s = {
        .server = {.pid = 12, .started = 1ull << 40}, .mounted = true, .noexec = true, .method = "fuse", .fs = "ext4"};
    state_name("/mnt/a\xff\xc3(\n\"b", &s);
    snprintf(s.run_dir, sizeof s.run_dir, "%.60s", scratch);
    snprintf(s.image, sizeof s.image, "file:///store/x");
    snprintf(s.device, sizeof s.device, "/dev/loop7");
    memset(&s.digest, 0xab, sizeof s.digest);
    memset(&s.content_root, 0xcd, sizeof s.content_root);
    return s;
}

static void test_state__what_is_saved_is_read_whatever_the_bytes(void **state)
{
    struct mount_state saved = example(), got = {.id = ""};
    assert_int_equal(state_save(&saved), 0);
    snprintf(got.run_dir, sizeof got.run_dir, "%.60s", scratch);
    snprintf(got.dir, sizeof got.dir, "%s", saved.dir);
    assert_int_equal(state_read(&got), 0);
    assert_string_equal(got.dir, saved.dir);
    assert_string_equal(got.image, saved.image);
    assert_string_equal(got.device, saved.device);
    assert_string_equal(got.control, ""); /* an empty text stays one */
    assert_string_equal(got.method, "fuse");
    assert_string_equal(got.fs, "ext4");
    assert_true(got.noexec);
    assert_true(digest_equal(&got.digest, &saved.digest));
    assert_true(digest_equal(&got.content_root, &saved.content_root));
    assert_int_equal(got.server.pid, 12);
    assert_int_equal(got.server.started, 1ull << 40);
    assert_true(got.mounted);
    assert_false(got.fenced);
    saved.fenced = true;
    assert_int_equal(state_save(&saved), 0);
    assert_int_equal(state_read(&got), 0);
    assert_true(got.fenced);
}

static void test_state__damage_and_absence_are_told_apart(void **state)
{
    struct mount_state saved = example(), got = example();
    (void)remove(path_of("state.json"));
    assert_int_equal(state_read(&got), -ENOENT);
    assert_int_equal(state_save(&saved), 0);
    snprintf(got.dir, sizeof got.dir, "/mnt/other"); /* the state of another mount point */
    assert_int_equal(state_read(&got), -EBADMSG);
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "{\"version\":2}",
        "{\"version\":1,\"digest\":\"x\",\"content_root\":\"y\",\"server\":{},\"mounted\":true}"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++) {
        got = example();
        assert_int_equal(io_write_file_atomic(path_of("state.json"), bad[i], strlen(bad[i]), false), 0);
        assert_int_equal(state_read(&got), -EBADMSG);
    }
}

static void test_state__who_may_not_read_it_is_told_who_may(void **state)
{
    struct mount_state saved = example(), got = example();
    assert_int_equal(state_save(&saved), 0);
    assert_int_equal(chmod(path_of("state.json"), 0), 0);
    uid_t user = geteuid();
    if (!user && seteuid(65534))
        skip();
    int rc = state_read(&got);
    if (!user)
        assert_int_equal(seteuid(user), 0);
    assert_int_equal(rc, -EACCES);
    assert_non_null(strstr(error_text(), "the mount on /mnt/a"));
    assert_non_null(strstr(error_text(), "run this as root"));
}

static void test_state__every_cut_of_the_file_is_damage(void **state)
{
    struct mount_state saved = example();
    assert_int_equal(state_save(&saved), 0);
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    assert_int_equal(io_read_file(path_of("state.json"), &text), 0);
    for (size_t len = 0; len + 1 < text.len; len += 7) {
        struct mount_state got = example();
        assert_int_equal(io_write_file_atomic(path_of("state.json"), text.data, len, false), 0);
        assert_int_equal(state_read(&got), -EBADMSG);
    }
}

/* ---- keeper ---- */

static pid_t start_holder(const char *device)
{
    int ends[2], claim;
    char ready = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        if (keep_claim(device, &claim) || io_write_full(ends[1], "x", 1))
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(io_read_full(ends[0], &ready, 1), 1);
    close(ends[0]);
    return pid;
}

static void test_keep_holder__is_known_as_long_as_it_lives(void **state)
{
    struct keep_state s = {.address = "/s.sock", .timeout_s = 1};
    int claim;
    if (geteuid())
        skip(); /* it is kept in /run */
    snprintf(s.device, sizeof s.device, "/dev/test%d", (int)getpid());
    assert_int_equal(keep_holder(s.device), 0);
    assert_int_equal(keep_state_save(&s), 0);
    assert_int_equal(keep_holder(s.device), 0);
    pid_t holder = start_holder(s.device);
    assert_int_equal(keep_holder(s.device), holder);
    assert_int_equal(keep_claim(s.device, &claim), -EBUSY);
    kill(holder, SIGKILL);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_int_equal(keep_holder(s.device), 0);
    keep_state_remove(s.device);
}

/* Is the device's state, or what a write of it with that suffix has left, there after a look for such? */
static bool stays(const char *device, const char *suffix)
{
    char path[128];
    CLEANUP_FD int lock = -1;
    snprintf(path, sizeof path, "%s/%s.json%s", STATE_ROOT, device + strlen("/dev/"), suffix);
    assert_int_equal(node_lock(&lock), 0);
    if (*suffix)
        assert_int_equal(io_write_file_atomic(path, "{", 1, false), 0);
    keep_states_sweep_locked();
    return !access(path, F_OK);
}

static void test_keep_states_sweep__takes_what_is_of_no_attachment(void **state)
{
    struct keep_state s = {.address = "/s.sock", .timeout_s = 1};
    if (geteuid())
        skip();                                                                         /* it is kept in /run */
    snprintf(s.device, sizeof s.device, "/dev/nbd%d", 900000 + (int)getpid() % 100000); /* nobody has so many */
    assert_int_equal(keep_state_save(&s), 0);
    assert_false(stays(s.device, ".Xu12ab"));
    assert_true(stays(s.device, ""));
    snprintf(s.mark, sizeof s.mark, "1"); /* of an attachment that is no more */
    assert_int_equal(keep_state_save(&s), 0);
    assert_false(stays(s.device, ""));
}

/* ---- listen ---- */

static void test_listen_unix__a_stale_socket_is_replaced_a_live_one_never(void **state)
{
    char path[SCRATCH_MAX + 64];
    int first = -1, second = -1;
    snprintf(path, sizeof path, "%s", path_of("s.sock"));
    assert_int_equal(listen_answered(path), 0);
    assert_int_equal(listen_unix(path, &first), 0);
    assert_int_equal(listen_answered(path), 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(listen_unix(path, &second), -EADDRINUSE);
    assert_non_null(strstr(error_text(), path));
    close(first);
    assert_int_equal(listen_answered(path), 0);
    assert_int_equal(listen_unix(path, &second), 0);
    close(second);
}

static void test_listen_answered__is_told_at_once_of_who_accepts_nobody(void **state)
{
    enum { MORE_THAN_WAIT = 200 };
    char path[SCRATCH_MAX + 64];
    int fd = -1;
    snprintf(path, sizeof path, "%s", path_of("full.sock"));
    assert_int_equal(listen_unix(path, &fd), 0);
    for (int i = 0; i < MORE_THAN_WAIT; i++)
        assert_int_equal(listen_answered(path), 1);
    close(fd);
}

static void test_listen_unix__what_is_no_socket_is_left_alone(void **state)
{
    int fd = -1;
    assert_int_equal(io_write_file_atomic(path_of("file"), "x", 1, false), 0);
    assert_int_equal(listen_unix(path_of("file"), &fd), -EEXIST);
    assert_int_equal(access(path_of("file"), F_OK), 0);
    char deep[256];
    memset(deep, 'a', sizeof deep - 1);
    deep[0] = '/';
    deep[sizeof deep - 1] = 0;
    assert_int_equal(listen_unix(deep, &fd), -EINVAL);
    assert_int_equal(listen_unix(path_of("no/such/dir"), &fd), -ENOENT);
}

static void test_listen_tcp__addresses(void **state)
{
    int fd = -1;
    unsigned port = 0;
    assert_int_equal(listen_tcp("127.0.0.1:0", &fd, &port), 0);
    assert_true(port > 0);
    char same[32];
    int second = -1;
    unsigned other;
    snprintf(same, sizeof same, "127.0.0.1:%u", port);
    assert_int_equal(listen_tcp(same, &second, &other), -EADDRINUSE);
    close(fd);
    static const char *const bad[] = {
        "", ":", "127.0.0.1", "127.0.0.1:", ":10809", "127.0.0.1:port", "127.0.0.1:65536"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++)
        assert_int_equal(listen_tcp(bad[i], &fd, &port), -EINVAL);
}

/* ---- process ---- */

static int run_shell(const char *script, uint64_t timeout_ms)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    return process_run(argv, timeout_ms);
}

static void test_process_run__tells_why_a_program_failed(void **state)
{
    assert_int_equal(run_shell("exit 0", 60000), 0);
    assert_int_equal(run_shell("echo first; echo the reason >&2; exit 3", 60000), -EIO);
    assert_string_equal(error_text(), "sh failed: the reason");
    assert_int_equal(run_shell("exit 3", 60000), -EIO);
    assert_int_equal(run_shell("kill -9 $$", 60000), -EIO);
    const char *const absent[] = {"granary-no-such-program", NULL};
    assert_int_equal(process_run(absent, 60000), -ENOENT);
    assert_non_null(strstr(error_text(), "granary-no-such-program"));
    assert_int_equal(run_shell("exec sleep 100", 50), -ETIMEDOUT);
    assert_int_equal(run_shell("exec sleep 100 >&- 2>&-", 50), -ETIMEDOUT); /* its output ends before it */
}

/* The program's child sets the flag, in a file, when it holds a lock; it keeps the lock for its life. */
static void test_process_run__ends_with_a_flag_and_so_do_the_programs_children(void **state)
{
    char flag[SCRATCH_MAX + 64], script[3 * SCRATCH_MAX + 256], fd_script[128];
    snprintf(flag, sizeof flag, "%s", path_of("flag"));
    assert_int_equal(io_write_file_atomic(flag, "\0\0\0", sizeof(int), false), 0);
    int fd = open(flag, O_RDONLY | O_CLOEXEC);
    volatile int *cancel = mmap(NULL, sizeof *cancel, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal((void *)cancel, MAP_FAILED);
    close(fd);
    snprintf(script, sizeof script, "flock %s sh -c 'printf 1 1<>%s; exec sleep 600'; :", path_of("lock"), flag);
    const char *const argv[] = {"sh", "-c", script, NULL};
    assert_int_equal(process_run_until(argv, 600000, cancel), -ECANCELED);
    const char *const lock[] = {"flock", path_of("lock"), "true", NULL};
    assert_int_equal(process_run(lock, 60000), 0);

    const volatile int never = 0; /* what the caller has open is not the program's */
    fd = fcntl(STDIN_FILENO, F_DUPFD, 10);
    assert_true(fd >= 10);
    snprintf(fd_script, sizeof fd_script, "! [ -e /proc/self/fd/%d ]", fd);
    const char *const looks[] = {"sh", "-c", fd_script, NULL};
    assert_int_equal(process_run_until(looks, 60000, &never), 0);
    close(fd);
    munmap((void *)cancel, sizeof *cancel);
}

static void test_process_run__spares_a_program_that_must_not_be_killed_half_way(void **state)
{
    char path[SCRATCH_MAX + 8], script[2 * SCRATCH_MAX];
    snprintf(path, sizeof path, "%s/done", scratch);
    snprintf(script, sizeof script, "sleep 0.2; touch %s", path);
    const char *const argv[] = {"sh", "-c", script, NULL};
    assert_int_equal(process_run_sparing(argv, 50), -ETIMEDOUT);
    while (waitpid(-1, NULL, 0) < 0 && errno == EINTR)
        ;
    assert_int_equal(access(path, F_OK), 0);
}

static struct process start(const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct process_spec spec = {.argv = argv, .output = -1, .listen_fd = -1};
    pid_t pid;
    assert_int_equal(process_spawn(&spec, &pid), 0);
    return process_identify(pid);
}

static void test_process_end__waits_and_insists(void **state)
{
    struct process polite = start("exec sleep 100");
    assert_true(process_alive(&polite));
    assert_int_equal(process_end(&polite, 10000), 0);
    assert_false(process_alive(&polite));
    assert_int_equal(process_end(&polite, 10000), 0); /* twice is fine */

    char script[SCRATCH_MAX + 128];
    snprintf(script, sizeof script, "trap '' TERM; : >%s; while :; do sleep 1; done", path_of("trapped"));
    struct process stubborn = start(script);
    while (access(path_of("trapped"), F_OK))
        usleep(1000);
    assert_int_equal(process_end(&stubborn, 50), 0);
    assert_false(process_alive(&stubborn));
}

static void test_process_end__spares_another_process_of_the_same_number(void **state)
{
    struct process mine = start("exec sleep 100"), old = mine;
    old.started--;
    assert_false(process_alive(&old));
    assert_int_equal(process_end(&old, 10), 0);
    assert_true(process_alive(&mine));
    assert_int_equal(process_end(&mine, 10000), 0);
    struct process none = process_identify(0);
    assert_int_equal(none.pid, 0);
    assert_false(process_alive(&none));
    assert_int_equal(process_end(&none, 10), 0);
}

static void test_process_identify__a_hostile_name_confuses_nobody(void **state)
{
    char program[SCRATCH_MAX + 64], command[SCRATCH_MAX + 128];
    snprintf(program, sizeof program, "%s", path_of("a) Z 1 (b"));
    snprintf(command, sizeof command, "cp /bin/sleep '%s'", program);
    assert_int_equal(system(command), 0);
    const char *const argv[] = {program, "100", NULL};
    struct process_spec spec = {.argv = argv, .output = -1, .listen_fd = -1};
    pid_t pid;
    assert_int_equal(process_spawn(&spec, &pid), 0);
    struct process p = process_identify(pid);
    assert_int_equal(p.pid, pid);
    assert_int_equal(process_end(&p, 10000), 0);
}

static void test_process_spawn__hands_the_socket_over_by_systemds_protocol(void **state)
{
    int fd = -1;
    char script[256];
    assert_int_equal(listen_unix(path_of("passed.sock"), &fd), 0);
    snprintf(script, sizeof script,
             "[ $LISTEN_PID = $$ ] && [ $LISTEN_FDS = 1 ] && [ -S /proc/self/fd/3 ] && "
             "[ $GRANARY_SUPERVISOR = %d ]",
             (int)getpid());
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct process_spec spec = {.argv = argv, .output = -1, .listen_fd = fd, .supervised = true};
    pid_t pid;
    int status;
    assert_int_equal(process_spawn(&spec, &pid), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
}

static void test_process_spawn__gives_a_file_as_standard_input(void **state)
{
    const char *const argv[] = {"sh", "-c", "[ \"$(cat /proc/self/fd/0)\" = given ]", NULL};
    int input = memfd_create("input", MFD_CLOEXEC), status;
    struct process_spec spec = {.argv = argv, .input = input, .output = -1, .listen_fd = -1};
    pid_t pid;
    assert_int_equal(io_write_full(input, "given", 5), 0);
    assert_int_equal(process_spawn(&spec, &pid), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(input);
}

/* ---- calls with an end ---- */

static int fail_with_a_sentence(void *arg)
{
    return error_set(-EBUSY, "%s is in use", (const char *)arg);
}

static int succeed(void *arg)
{
    return 0;
}

static int wait_for_ever(void *arg)
{
    for (;;)
        pause();
    return 0;
}

/* -EIO: something is open that is neither /dev/null nor what it answers by. */
static int look_at_descriptors(void *arg)
{
    struct stat null, st;
    if (stat("/dev/null", &null))
        return -errno;
    for (int fd = 0; fd < 256; fd++)
        if (fd != 3 && !fstat(fd, &st) && (fd > 3 || st.st_rdev != null.st_rdev))
            return error_set(-EIO, "descriptor %d is open", fd);
    return 0;
}

static void test_deadline_call__answers_or_is_given_up(void **state)
{
    enum { LONG_MS = 60000 };
    assert_int_equal(deadline_call(succeed, NULL, LONG_MS), 0);
    assert_int_equal(deadline_call(fail_with_a_sentence, "it", LONG_MS), -EBUSY);
    assert_string_equal(error_text(), "it is in use");
    assert_int_equal(deadline_call(wait_for_ever, NULL, 10), -ETIMEDOUT);
}

/* A process that reads our output to its end would wait for a child that the kernel keeps, too. */
static void test_deadline_call__what_does_it_has_nothing_of_ours(void **state)
{
    int ends[2], output = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    int rc = deadline_call(look_at_descriptors, NULL, 60000);
    assert_int_equal(dup2(output, STDOUT_FILENO), STDOUT_FILENO);
    close(output);
    close(ends[0]);
    close(ends[1]);
    if (rc)
        fail_msg("%s", error_text());
}

/* ---- asking a server ---- */

/* A child that greets one client as an NBD server does. */
static pid_t greet_as_nbd(int listen_fd)
{
    static const char greeting[] = "NBDMAGICIHAVEOPT\0\3";
    pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return child;
    char byte;
    int fd = accept(listen_fd, NULL, NULL);
    bool ok = fd >= 0 && write(fd, greeting, sizeof greeting - 1) > 0 && read(fd, &byte, 1) >= 0;
    _exit(!ok);
}

static void test_control_get__an_nbd_socket_is_no_control_socket(void **state)
{
    const char *path = path_of("nbd");
    CLEANUP_BYTES out = BYTES_INIT(1024);
    int fd, status;
    assert_int_equal(listen_unix(path, &fd), 0);
    pid_t child = greet_as_nbd(fd);
    assert_int_equal(control_get(path, "/status", &out), -EPROTO);
    assert_non_null(strstr(error_text(), "is no control socket"));
    assert_int_equal(waitpid(child, &status, 0), child);
    close(fd);
}

static void test_control_get__another_users_socket_is_told_from_no_server(void **state)
{
    const char *path = path_of("control");
    CLEANUP_BYTES out = BYTES_INIT(1024);
    int fd;
    assert_int_equal(control_get(path, "/status", &out), -ECONNREFUSED);
    assert_non_null(strstr(error_text(), "no server answers on the control socket"));
    assert_int_equal(listen_unix(path, &fd), 0);
    if (geteuid())
        assert_int_equal(chmod(path, 0), 0);
    else
        assert_int_equal(seteuid(65534), 0);
    assert_int_equal(listen_answered(path), -EACCES);
    assert_int_equal(listen_unix(path, &(int){-1}), -EACCES);
    assert_int_equal(control_get(path, "/status", &out), -EACCES);
    assert_non_null(strstr(error_text(), "may not be used by this user; ask as the user that the server runs as"));
    assert_int_equal(seteuid(getuid()), 0);
    close(fd);
    unlink(path);
}

static void test_module_remedy__is_the_distributions(void **state)
{
    static const char ubuntu[] = "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n";
    static const struct {
        const char *module, *os_release, *release, *text;
    } expected[] = {
        {"nbd", ubuntu, "6.8.0-151-generic", "Ubuntu: apt install linux-modules-6.8.0-151-generic, then modprobe nbd"},
        {"nbd", ubuntu, "7.0.0-44-generic", "Ubuntu: apt install linux-modules-7.0.0-44-generic, then modprobe nbd"},
        {"nbd", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "6.1-x", "linux-modules-6.1-x"},
        {"nbd", "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n", "6.1-x", "Debian: modprobe nbd"},
        {"nbd", "ID=\"rhel\"\nID_LIKE=\"fedora\"\n", "6.1-x", "RHEL and its relatives have no nbd"},
        {"nbd", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "6.1-x", "RHEL and its relatives have no nbd"},
        {"nbd", "ID=\"centos\"\n", "6.1-x", "RHEL and its relatives have no nbd"},
        {"nbd", "ID=fedora\n", "6.1-x", "dnf install kernel-modules-6.1-x"},
        {"nbd", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "6.1-x", "kernel-default"},
        {"nbd", "ID=arch", "6.1-x", "modprobe nbd, or a kernel with CONFIG_BLK_DEV_NBD in place of 6.1-x"},
        {"nbd", "", "6.1-x", "modprobe nbd"},
        {"erofs", ubuntu, "6.8.0-1070-aws",
         "Ubuntu: apt install linux-modules-extra-6.8.0-1070-aws, then modprobe erofs"},
        {"erofs", ubuntu, "6.17.0-1020-aws", "apt install linux-modules-extra-6.17.0-1020-aws"},
        {"erofs", ubuntu, "7.0.0-1018-aws", "modprobe erofs, or a kernel with CONFIG_EROFS_FS in place of 7.0.0"},
        {"erofs", "ID=debian\n", "6.1-x", "modprobe erofs, or a kernel with CONFIG_EROFS_FS in place of 6.1-x"},
        {"ext4", ubuntu, "6.8.0-151-generic", "modprobe ext4, or a kernel with CONFIG_EXT4_FS"},
        {"fuse", ubuntu, "6.1-x", "Ubuntu: its kernels have fuse built in; boot one in place of 6.1-x"},
        {"fuse", "ID=debian\n", "6.1-x", "modprobe fuse; where that fails, apt install linux-image-amd64 or -arm64"},
        {"fuse", "ID=fedora\n", "6.1-x", "modprobe fuse; where that fails, dnf install kernel-core"},
        {"loop", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "6.1-x",
         "RHEL and its relatives: modprobe loop; where that fails, dnf install kernel-core"},
        {"loop", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "6.1-x",
         "zypper install kernel-default and boot"},
        {"ublk_drv", "ID=arch", "6.18.44",
         "modprobe ublk_drv, or a kernel with CONFIG_BLK_DEV_UBLK in place of 6.18.44"},
        {"loop", "ID=arch", "6.1-x", "modprobe loop, or a kernel with CONFIG_BLK_DEV_LOOP in place of 6.1-x"},
    };
    char out[MODULE_REMEDY_MAX];
    for (size_t i = 0; i < GR_ARRAY_SIZE(expected); i++)
        if (!strstr(module_remedy(expected[i].module, expected[i].os_release, expected[i].release, out),
                    expected[i].text))
            fail_msg("%s, %s, %s: %s", expected[i].module, expected[i].os_release, expected[i].release, out);
}

/* The kernel's own name for a program that cannot take 3.0 and later stands in for an old kernel. */
static void test_mount_erofs_explain__names_what_a_kernel_lacks(void **state)
{
    const uint64_t border = (UINT64_C(1) << 44) - 8192; /* two blocks less than 16 TiB */
    (void)state;
    assert_int_equal(mount_erofs_explain(border), 0);
    const int before = personality(0xffffffff);
    assert_true(personality((unsigned long)before | UNAME26) >= 0);
    const bool fits = mount_erofs_large_fits();
    const int small = mount_erofs_explain(border), large = mount_erofs_explain(border + 4096);
    assert_true(personality((unsigned long)before) >= 0);
    assert_false(fits);
    assert_int_equal(small, 0);
    assert_int_equal(large, -EINVAL);
    assert_non_null(strstr(error_text(), "more than 16 TiB"));
    assert_non_null(strstr(error_text(), "boot Linux 6.15 or later"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state__what_is_saved_is_read_whatever_the_bytes),
        cmocka_unit_test(test_state__damage_and_absence_are_told_apart),
        cmocka_unit_test(test_state__who_may_not_read_it_is_told_who_may),
        cmocka_unit_test(test_state__every_cut_of_the_file_is_damage),
        cmocka_unit_test(test_keep_holder__is_known_as_long_as_it_lives),
        cmocka_unit_test(test_keep_states_sweep__takes_what_is_of_no_attachment),
        cmocka_unit_test(test_listen_unix__a_stale_socket_is_replaced_a_live_one_never),
        cmocka_unit_test(test_listen_answered__is_told_at_once_of_who_accepts_nobody),
        cmocka_unit_test(test_listen_unix__what_is_no_socket_is_left_alone),
        cmocka_unit_test(test_listen_tcp__addresses),
        cmocka_unit_test(test_control_get__an_nbd_socket_is_no_control_socket),
        cmocka_unit_test(test_control_get__another_users_socket_is_told_from_no_server),
        cmocka_unit_test(test_process_run__tells_why_a_program_failed),
        cmocka_unit_test(test_process_run__ends_with_a_flag_and_so_do_the_programs_children),
        cmocka_unit_test(test_process_run__spares_a_program_that_must_not_be_killed_half_way),
        cmocka_unit_test(test_process_end__waits_and_insists),
        cmocka_unit_test(test_process_end__spares_another_process_of_the_same_number),
        cmocka_unit_test(test_process_identify__a_hostile_name_confuses_nobody),
        cmocka_unit_test(test_process_spawn__hands_the_socket_over_by_systemds_protocol),
        cmocka_unit_test(test_process_spawn__gives_a_file_as_standard_input),
        cmocka_unit_test(test_module_remedy__is_the_distributions),
        cmocka_unit_test(test_mount_erofs_explain__names_what_a_kernel_lacks),
        cmocka_unit_test(test_deadline_call__answers_or_is_given_up),
        cmocka_unit_test(test_deadline_call__what_does_it_has_nothing_of_ours),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
