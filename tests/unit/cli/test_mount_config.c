/* The [mount] section of the configuration file, below the command line. */
#include "unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "cli/verbs/cmd_mount.h"
#include "unit/scratch.h"

/* Return a value by its option's name. */
static uint64_t number_of(const void *values, const char *name)
{
    const struct option_row *row = verb_mount.options;
    while (strcmp(row->name, name) != 0)
        row++;
    const char *at = (const char *)values + row->offset;
    return row->kind == OPTION_SWITCH ? *(const enum option_switch *)at : *(const uint64_t *)at;
}

/* Read a file with this [mount] section. */
static void read_file(const char *text, struct config *c, struct mount_values *out)
{
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 8];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/conf", dir);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
    if (config_read(path, true, c) || mount_read_config(c, out))
        fail_msg("%s", error_text());
    scratch_remove(dir);
}

/* What is a mount with this option on a node with kernel nbd? option NULL: none. */
static void mount_by_nbd(const char *text, char *option, struct invocation *inv)
{
    CLEANUP_CONFIG c = {0};
    CLEANUP_FREE struct mount_values *file = malloc(verb_mount.values_size);
    char *words[] = {"IMAGE", "DIR", option};
    assert_non_null(file);
    read_file(text, &c, file);
    assert_int_equal(options_parse(&verb_mount, option ? 3 : 2, words, inv), 0);
    mount_take_nbd_config(inv->values, file);
}

static const char all[] = "[mount]\nconnections = 7\nnbd-timeout = 20s\ndead-timeout = 2h\n";

static void test_mount_config__fills_in_what_was_not_given(void **state)
{
    struct invocation inv;
    mount_by_nbd(all, NULL, &inv);
    assert_int_equal(number_of(inv.values, "connections"), 7);
    assert_int_equal(number_of(inv.values, "nbd-timeout"), 20);
    assert_int_equal(number_of(inv.values, "dead-timeout"), 7200);
    options_release(&inv);
}

static void test_mount_config__the_command_line_goes_first(void **state)
{
    struct invocation inv;
    mount_by_nbd(all, "--connections=3", &inv);
    assert_int_equal(number_of(inv.values, "connections"), 3);
    assert_int_equal(number_of(inv.values, "nbd-timeout"), 20);
    options_release(&inv);
    mount_by_nbd(all, "--nbd-timeout=5s", &inv);
    assert_int_equal(number_of(inv.values, "connections"), 7);
    assert_int_equal(number_of(inv.values, "nbd-timeout"), 5);
    options_release(&inv);
    mount_by_nbd(all, "--dead-timeout=0", &inv);
    assert_int_equal(number_of(inv.values, "dead-timeout"), 0);
    options_release(&inv);
}

static void test_mount_config__has_no_effect_on_fuse(void **state)
{
    struct invocation inv;
    mount_by_nbd(all, "--fuse", &inv);
    assert_int_equal(number_of(inv.values, "connections"), 0);
    assert_true(number_of(inv.values, "nbd-timeout") == UINT64_MAX);
    options_release(&inv);
    mount_by_nbd(all, "--fuse=no", &inv);
    assert_int_equal(number_of(inv.values, "connections"), 7);
    options_release(&inv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mount_config__fills_in_what_was_not_given),
        cmocka_unit_test(test_mount_config__the_command_line_goes_first),
        cmocka_unit_test(test_mount_config__has_no_effect_on_fuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
