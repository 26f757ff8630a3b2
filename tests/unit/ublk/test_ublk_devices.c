/* Devices over a fake of the driver: they show what the export is, hang on their client until it keeps them, and
 * outlive their server. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "ublk/clients.h"
#include "ublk/record.h"
#include "unit/serving_world.h"
#include "unit/ublk/fake_kernel.h"

enum { READERS = 8, READS = 100, LINE = 600, THREADS = 4 };

struct world {
    char dir[SCRATCH_MAX], socket[SCRATCH_MAX + 8];
    struct image_fake img;
    struct serving serving;
    struct devices *devices;
};

static struct world w;
static struct devices *servers[64]; /* those of killed servers live on: threads wait in them */
static size_t server_count;

/* A server begins, whose exports are not open yet. Returns how many devices wait. */
static unsigned begin_closed_server(void)
{
    if (devices_new(&w.serving, w.socket, THREADS, &w.devices))
        fail_msg("%s", error_text());
    assert_true(server_count < GR_ARRAY_SIZE(servers));
    servers[server_count++] = w.devices;
    return devices_recover(w.devices, NULL);
}

/* A server begins: it has the devices that it can recover. Returns how many wait. */
static unsigned begin_server(void)
{
    (void)begin_closed_server();
    devices_open(w.devices);
    return devices_recover(w.devices, NULL);
}

/* Read the record of a device. */
static int read_record(unsigned number, struct record *out)
{
    return record_read(w.socket, fake.devices[number].tag, out);
}

static int world_init(void **state)
{
    serving_make_store(w.dir, &w.img);
    snprintf(w.socket, sizeof w.socket, "%s/s", w.dir);
    serving_begin(&w.serving, w.dir);
    assert_int_equal(begin_server(), 0);
    return 0;
}

static int world_release(void **state)
{
    fake_end();
    stack_set_front_end(w.serving.stack, NULL, NULL);
    serving_close(&w.serving);
    image_fake_release(&w.img);
    scratch_remove(w.dir);
    return 0;
}

static void expect_read(unsigned number, unsigned tag, bool alone, uint64_t off, uint32_t len)
{
    uint8_t *got = malloc(len), *want = malloc(len);
    int rc = fake_read(number, tag, alone, off, got, len);
    must(!rc, "%d", rc);
    image_fake_bytes(&w.img, off, want, len);
    must(!memcmp(got, want, len), "wrong byte between %llu and %llu", (unsigned long long)off,
         (unsigned long long)off + len);
    free(got);
    free(want);
}

/* ---- a client ---- */

struct conversation {
    int fd;
    pthread_t server;
};

static void *converse(void *arg)
{
    const struct conversation *c = arg;
    client_serve(w.devices, NULL, c->fd);
    return NULL;
}

/* Say a line to the server. Returns the client's end. */
static int begin_client(struct conversation *c, const char *line)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    c->fd = ends[1];
    assert_int_equal(pthread_create(&c->server, NULL, converse, c), 0);
    assert_int_equal(io_write_full(ends[0], line, strlen(line)), 0);
    return ends[0];
}

static void expect_line(int fd, char out[LINE])
{
    size_t len = 0;
    while (len < LINE - 1 && io_read_full(fd, out + len, 1) == 1 && out[len] != '\n')
        len++;
    out[len] = 0;
}

static void end_client(const struct conversation *c, int fd)
{
    close(fd);
    pthread_join(c->server, NULL);
}

/* Have a device, and keep it. */
static unsigned attach(void)
{
    struct conversation c;
    char line[LINE];
    unsigned number = FAKE_DEVICES;
    unsigned long long size = 0, diskseq = 0;
    int fd = begin_client(&c, "attach faces\n");
    expect_line(fd, line);
    assert_int_equal(sscanf(line, "device %u %llu %llu ", &number, &diskseq, &size), 3);
    assert_int_equal(diskseq, number + 100);
    assert_int_equal(size, SIZE);
    assert_int_equal(io_write_full(fd, "keep\n", 5), 0);
    expect_line(fd, line);
    assert_string_equal(line, "kept");
    end_client(&c, fd);
    return number;
}

static void expect_answer(const char *request, const char *answer)
{
    struct conversation c;
    char line[LINE];
    int fd = begin_client(&c, request);
    expect_line(fd, line);
    if (strncmp(line, answer, strlen(answer)) != 0)
        fail_msg("'%s' is not '%s'", line, answer);
    end_client(&c, fd);
}

/* ---- tests ---- */

static void test_devices__a_device_shows_its_export(void **state)
{
    struct record r;
    unsigned number = attach();
    expect_read(number, 0, true, 0, 4096);
    expect_read(number, 0, true, 0, 4096); /* cached: on the device's thread */
    expect_read(number, 1, false, CHUNK - 512, 1 << 20);
    expect_read(number, 2, true, SIZE - 4096, 4096);
    assert_int_equal(read_record(number, &r), 0);
    assert_int_equal(r.state, RECORD_KEPT);
    assert_int_equal(r.number, number);
    assert_string_equal(r.name, "faces");
}

static void *read_on(void *arg)
{
    unsigned tag = (unsigned)(uintptr_t)arg, seed = tag;
    for (int i = 0; i < READS; i++)
        expect_read(0, tag, rand_r(&seed) % 2, (uint64_t)(rand_r(&seed) % (SIZE / 512 - 256)) * 512, 128 << 10);
    return NULL;
}

static void test_devices__all_tags_are_answered_each_with_its_own(void **state)
{
    pthread_t threads[READERS];
    assert_int_equal(attach(), 0);
    for (uintptr_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, (void *)i), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

static void test_devices__what_is_not_kept_is_removed(void **state)
{
    struct conversation c;
    struct record r;
    char line[LINE];
    int fd = begin_client(&c, "attach faces\n");
    expect_line(fd, line);
    assert_int_equal(read_record(0, &r), 0);
    assert_int_equal(r.state, RECORD_NEW);
    end_client(&c, fd);
    assert_null(fake_at(0));
    assert_int_equal(read_record(0, &r), -ENOENT);
}

static void test_devices__wrong_requests_are_refused_in_a_sentence(void **state)
{
    expect_answer("attach nobody\n", "failed ");
    expect_answer("fail 3\n", "failed this server has no ublk device 3");
    expect_answer("fail x\n", "failed ");
    expect_answer("hello\n", "failed this is no request");
    fake.start_fails = -EIO;
    expect_answer("attach faces\n", "failed it does not start");
    assert_null(fake_at(0)); /* nothing is left of it */
    struct record r;
    assert_int_equal(read_record(0, &r), -ENOENT);
}

static void test_devices__the_next_server_takes_over(void **state)
{
    unsigned a = attach(), b = attach();
    for (int i = 0; i < 3; i++) {
        fake_kill();
        fake.busy = 1; /* of the first device, once */
        assert_int_equal(begin_server(), 1);
        assert_int_equal(devices_recover(w.devices, NULL), 0);
        expect_read(a, 0, true, 4096, 4096);
        expect_read(b, 0, false, CHUNK, 128 << 10);
    }
    assert_int_equal(fake.recoveries, 6);
    assert_int_equal(fake.removed, 0);
}

static void test_devices__another_image_is_refused_until_the_right_one_is_back(void **state)
{
    struct record r;
    unsigned number = attach();
    assert_int_equal(read_record(number, &r), 0);
    fake_kill();
    struct record wrong = r;
    wrong.content_root = digest_of("another", 7);
    assert_int_equal(record_write(w.socket, &wrong), 0);
    assert_int_equal(begin_server(), 1);
    assert_null(fake_at(number)->queue); /* nothing answers: readers wait */
    assert_int_equal(record_write(w.socket, &r), 0);
    assert_int_equal(devices_recover(w.devices, NULL), 0);
    expect_read(number, 0, true, 0, 4096);
}

static void test_devices__a_device_of_others_is_left_alone(void **state)
{
    struct record r;
    unsigned number = attach();
    fake_kill();
    uint64_t tag = fake.devices[number].tag++;
    assert_int_equal(begin_server(), 0);
    assert_non_null(fake_at(number));
    assert_null(fake_at(number)->queue);
    assert_int_equal(record_read(w.socket, tag, &r), -ENOENT);
}

static void test_devices__what_the_server_before_had_not_finished_is_removed(void **state)
{
    struct record r;
    unsigned number = attach();
    assert_int_equal(read_record(number, &r), 0);
    r.state = RECORD_NEW;
    assert_int_equal(record_write(w.socket, &r), 0);
    fake_kill();
    assert_int_equal(begin_server(), 0);
    assert_null(fake_at(number));
    assert_int_equal(read_record(number, &r), -ENOENT);
}

static void test_devices__a_device_that_is_gone_is_forgotten(void **state)
{
    struct record r;
    unsigned number = attach();
    fake_kill();
    fake.devices[number].there = false;
    assert_int_equal(begin_server(), 0);
    assert_int_equal(read_record(number, &r), -ENOENT);
}

static void expect_EIO(unsigned number)
{
    char got[4096];
    assert_int_equal(fake_read(number, 0, true, 0, got, sizeof got), -EIO);
    assert_int_equal(fake_read(number, 1, false, 0, got, sizeof got), -EIO);
}

static void expect_failing(unsigned number)
{
    char request[32];
    snprintf(request, sizeof request, "fail %u\n", number);
    expect_answer(request, "failing");
}

static void test_devices__a_failed_device_answers_EIO(void **state)
{
    unsigned a = attach(), b = attach();
    expect_failing(a);
    expect_EIO(a);
    expect_read(b, 0, true, 0, 4096);
    fake_kill(); /* so do the servers to come, and before they have exports */
    assert_int_equal(begin_closed_server(), 1);
    expect_EIO(a);
    assert_null(fake_at(b)->queue);
    devices_open(w.devices);
    assert_int_equal(devices_recover(w.devices, NULL), 0);
    expect_EIO(a);
    expect_read(b, 0, true, 0, 4096);
}

static void test_devices__a_device_that_waits_can_be_failed(void **state)
{
    unsigned number = attach();
    fake_kill();
    assert_int_equal(begin_closed_server(), 1);
    assert_null(fake_at(number)->queue);
    expect_failing(number);
    assert_int_equal(devices_recover(w.devices, NULL), 0);
    expect_EIO(number);
    devices_open(w.devices);
    expect_EIO(number);
}

static void test_devices__what_goes_wrong_with_one_is_tried_again_and_keeps_no_other_waiting(void **state)
{
    unsigned a = attach(), b = attach();
    fake_kill();
    fake.queue_fails = -EBUSY;
    assert_int_equal(begin_server(), 1);
    assert_true(!fake_at(a)->queue != !fake_at(b)->queue);
    assert_int_equal(devices_recover(w.devices, NULL), 0);
    expect_read(a, 0, true, 0, 4096);
    expect_read(b, 0, true, 0, 4096);
    fake_kill();
    fake.recovered_fails = -EBUSY; /* it is being removed */
    assert_int_equal(begin_server(), 0);
    expect_read(a, 0, true, 0, 4096);
    expect_read(b, 0, true, 0, 4096);
}

static void test_devices__a_mounted_device_is_never_removed(void **state)
{
    struct record r;
    unsigned number = attach();
    assert_int_equal(read_record(number, &r), 0);
    r.state = RECORD_NEW;
    assert_int_equal(record_write(w.socket, &r), 0);
    fake.devices[number].mounted = true;
    fake_kill();
    assert_int_equal(devices_clear(NULL, w.socket), -EBUSY);
    assert_int_equal(read_record(number, &r), 0); /* for the next server */
    assert_int_equal(begin_server(), 0);
    expect_read(number, 0, true, 0, 4096);
}

static void test_devices__what_no_server_follows_is_cleared(void **state)
{
    struct record r;
    unsigned number[] = {attach(), attach(), attach()};
    uint64_t tags[3];
    for (unsigned i = 0; i < 3; i++)
        tags[i] = fake.devices[number[i]].tag;
    fake_kill();
    fake.devices[number[1]].tag++; /* another server's */
    fake.devices[number[2]].there = false;
    assert_int_equal(devices_clear(NULL, w.socket), 0);
    assert_null(fake_at(number[0]));
    assert_non_null(fake_at(number[1]));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(record_read(w.socket, tags[i], &r), -ENOENT);
    assert_int_equal(devices_clear(NULL, w.socket), 0); /* nothing is left to do */
}

#define ublk_test(f) cmocka_unit_test_setup_teardown(f, world_init, world_release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ublk_test(test_devices__a_device_shows_its_export),
        ublk_test(test_devices__all_tags_are_answered_each_with_its_own),
        ublk_test(test_devices__what_is_not_kept_is_removed),
        ublk_test(test_devices__wrong_requests_are_refused_in_a_sentence),
        ublk_test(test_devices__the_next_server_takes_over),
        ublk_test(test_devices__another_image_is_refused_until_the_right_one_is_back),
        ublk_test(test_devices__a_device_of_others_is_left_alone),
        ublk_test(test_devices__what_the_server_before_had_not_finished_is_removed),
        ublk_test(test_devices__a_device_that_is_gone_is_forgotten),
        ublk_test(test_devices__a_failed_device_answers_EIO),
        ublk_test(test_devices__a_device_that_waits_can_be_failed),
        ublk_test(test_devices__what_goes_wrong_with_one_is_tried_again_and_keeps_no_other_waiting),
        ublk_test(test_devices__a_mounted_device_is_never_removed),
        ublk_test(test_devices__what_no_server_follows_is_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
