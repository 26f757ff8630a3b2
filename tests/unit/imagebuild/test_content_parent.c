/* Parallel reading in a build upon a parent: moved files come from the parent's image, kept ones are not read. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "unit/content_world.h"

/* The parent's image: its bytes are a function of their address, and damaged from 1 MiB on. */
enum { IMAGE_SEED = 77, DAMAGED = 1 << 20 };

static int image_read(struct source *s, const struct source_read *r)
{
    (void)s;
    uint64_t at = r->address + r->offset;
    if (at + r->len > DAMAGED)
        return error_set(-EBADMSG, "image: a pack is damaged");
    for (uint64_t i = 0; i < r->len; i++)
        r->dst[i] = source_fake_byte(IMAGE_SEED, at + i);
    return 0;
}

static const struct source_ops image_ops = {.read = image_read};

/* The nodes of s with the plans that their paths' first letter says, files `m` a quarter of a MiB apart. */
static void plan(struct setup *s)
{
    struct nodes *planned;
    struct scratch_config scratch = {0};
    struct node n;
    int rc;
    uint64_t address = 0;
    assert_int_equal(nodes_new(&scratch, &planned), 0);
    {
        CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
        assert_int_equal(nodes_cursor_new(s->nodes, &cursor), 0);
        while ((rc = nodes_next(cursor, &n)) == 1) {
            n.plan = n.path_len && n.path[0] == 'm'   ? NODE_MOVE
                     : n.path_len && n.path[0] == 'k' ? NODE_KEEP
                                                      : NODE_READ;
            if (n.plan == NODE_MOVE)
                n.address = address += 256 << 10;
            assert_int_equal(nodes_add(planned, &n), 0);
        }
        assert_int_equal(rc, 0);
    }
    assert_int_equal(nodes_end(planned), 0);
    nodes_free(s->nodes);
    s->nodes = planned;
}

static void test_content_parent__moved_files_come_from_the_parent_and_kept_ones_not_at_all(void **state)
{
    struct source image = {.ops = &image_ops, .url = "image"};
    struct setup s = {.source = source_fake_new(), .parent = &image};
    source_fake_file(s.source, "k", 1000, 1);
    source_fake_file(s.source, "m1", 5000, IMAGE_SEED); /* at 256 KiB */
    source_fake_file(s.source, "m2", 6000, IMAGE_SEED);
    source_fake_file(s.source, "r", 700, 3);
    load(&s);
    plan(&s);
    start_with(&s, 4, MEMORY, false);
    struct content_part p;
    assert_int_equal(next(&s, &p), 1);
    assert_int_equal(p.len, 5000);
    assert_int_equal(p.data[4999], source_fake_byte(IMAGE_SEED, (256 << 10) + 4999));
    assert_int_equal(next(&s, &p), 1);
    assert_int_equal(p.data[0], source_fake_byte(IMAGE_SEED, 512 << 10));
    assert_int_equal(next(&s, &p), 1);
    assert_string_equal(s.outcomes[p.rank].path, "r");
    assert_int_equal(next(&s, &p), 0);
    assert_int_equal(content_reader_counts(s.reader).moved_bytes, 11000);
    assert_int_equal(content_reader_counts(s.reader).read_bytes, 700);
    assert_int_equal(content_reader_counts(s.reader).unmovable, 0);
    end(&s);
}

static void test_content_parent__what_the_parent_does_not_give_is_read_from_the_source(void **state)
{
    struct source image = {.ops = &image_ops, .url = "image"};
    struct setup s = {.source = source_fake_new(), .parent = &image};
    char path[16];
    for (unsigned i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "m%u", i);
        source_fake_file(s.source, path, 5000, IMAGE_SEED + i);
    }
    source_fake_vanish(s.source, "m4");
    source_fake_version(s.source, "m5", 6000, 99);
    load(&s);
    source_fake_change(s.source, "m5");
    plan(&s);
    log_to(NULL, LOG_LEVEL_ERROR);
    start_with(&s, 4, MEMORY, false);
    unsigned parts;
    assert_int_equal(drain(&s, &parts), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(content_reader_counts(s.reader).moved_bytes, 3 * 5000);
    assert_int_equal(content_reader_counts(s.reader).unmovable, 3);
    assert_content(&s, "m3", IMAGE_SEED + 3, 5000);
    assert_true(of(&s, "m4")->vanished);
    assert_content(&s, "m5", 99, 6000);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_parent__moved_files_come_from_the_parent_and_kept_ones_not_at_all),
        cmocka_unit_test(test_content_parent__what_the_parent_does_not_give_is_read_from_the_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
