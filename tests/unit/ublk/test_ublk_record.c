/* The record of a device: what is written is read, what is damaged is refused, what a killed server half wrote is no
 * record. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "ublk/record.h"
#include "unit/scratch.h"

static void write_file(const char *socket, const char *suffix, const char *text)
{
    char path[SCRATCH_MAX + 64];
    snprintf(path, sizeof path, "%s%s", socket, suffix);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
}

static void test_record__what_is_written_is_read(void **state)
{
    char dir[SCRATCH_MAX], socket[SCRATCH_MAX + 8];
    struct record got, r = {.number = 7, .tag = 0xedcba9876543210u};
    scratch_make(dir);
    snprintf(socket, sizeof socket, "%s/s", dir);
    r.content_root = digest_of("a", 1);
    memset(r.name, 'n', RECORD_NAME_MAX);
    memcpy(r.name, "a name ", 7);
    for (r.state = RECORD_NEW; r.state <= RECORD_FAILING; r.state++) {
        assert_int_equal(record_write(socket, &r), 0);
        assert_int_equal(record_read(socket, r.tag, &got), 0);
        assert_true(got.tag == r.tag && got.state == r.state && got.number == 7);
        assert_true(digest_equal(&got.content_root, &r.content_root));
        assert_string_equal(got.name, r.name);
    }
    record_remove(socket, r.tag);
    record_remove(socket, r.tag);
    assert_int_equal(record_read(socket, r.tag, &got), -ENOENT);
    r.state = RECORD_NEW;
    r.name[3] = '\n';
    assert_int_equal(record_write(socket, &r), -EINVAL);
    scratch_remove(dir);
}

static void test_record__damaged_ones_are_refused(void **state)
{
#define ROOT "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const char *const damaged[] = {
        "",
        "granary-ublk 1 ",
        "granary-ublk 1 7",
        "granary-ublk 1 7 " ROOT,
        "granary-ublk 1 7 " ROOT " kept",
        "granary-ublk 1 7 " ROOT " kept faces",
        "granary-ublk 1 7 " ROOT " sold faces\n",
        "granary-ublk 1 7 " ROOT " kept faces\nmore\n",
        "granary-ublk 2 7 " ROOT " kept faces\n",
        "granary-ublk 1 -7 " ROOT " kept faces\n",
        "granary-ublk 1 1048576 " ROOT " kept faces\n",
        "granary-ublk 1 7 7" ROOT " kept faces\n",
        "granary-ublk 1 " ROOT " 7 kept faces\n",
    };
    char dir[SCRATCH_MAX], socket[SCRATCH_MAX + 8];
    struct record r;
    scratch_make(dir);
    snprintf(socket, sizeof socket, "%s/s", dir);
    for (size_t i = 0; i < GR_ARRAY_SIZE(damaged); i++) {
        write_file(socket, ".device-0000000000000001", damaged[i]);
        if (record_read(socket, 1, &r) != -EBADMSG)
            fail_msg("'%s' is read", damaged[i]);
    }
    write_file(socket, ".device-0000000000000001", "granary-ublk 1 7 " ROOT " kept faces\n");
    assert_int_equal(record_read(socket, 1, &r), 0);
    scratch_remove(dir);
}

static void test_record__only_records_are_listed(void **state)
{
    char dir[SCRATCH_MAX], socket[SCRATCH_MAX + 8];
    record_tags tags = {0};
    scratch_make(dir);
    snprintf(socket, sizeof socket, "%s/s", dir);
    write_file(socket, ".device-fedcba9876543210", "");
    write_file(socket, ".device-fedcba9876543211.x7", "");
    write_file(socket, ".device-fedcba987654321", "");
    write_file(socket, ".device-", "");
    write_file(socket, "2.device-fedcba9876543212", "");
    write_file(socket, ".control", "");
    assert_int_equal(record_list(socket, &tags), 0);
    assert_int_equal(tags.len, 1);
    assert_true(tags.items[0] == 0xfedcba9876543210u);
    vec_release(&tags);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__what_is_written_is_read),
        cmocka_unit_test(test_record__damaged_ones_are_refused),
        cmocka_unit_test(test_record__only_records_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
