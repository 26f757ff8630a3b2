/* Bodies: parallel reading that is handed on in order, whatever happens to the files meanwhile. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "fake/source_fake.h"
#include "imagebuild/bodies.h"

enum { PART = BODY_PART, MEMORY = 16 << 20 };

struct setup {
    struct source *source;
    struct tree *tree;
    struct bodies *bodies;
};

static int add(void *arg, const struct source_entry *e)
{
    return tree_add(arg, e);
}

static void load(struct setup *s)
{
    struct tree_options options = {0};
    assert_int_equal(tree_new(&options, &s->tree), 0);
    assert_int_equal(s->source->ops->list(s->source, add, s->tree), 0);
    assert_int_equal(tree_seal(s->tree), 0);
}

static void start_with(struct setup *s, unsigned jobs, size_t memory, bool strict)
{
    struct bodies_config config = {
        .source = s->source, .tree = s->tree, .jobs = jobs, .memory = memory, .strict = strict};
    assert_int_equal(bodies_start(&config, &s->bodies), 0);
}

static void end(struct setup *s)
{
    bodies_free(s->bodies);
    tree_free(s->tree);
    source_close(s->source);
    *s = (struct setup){0};
}

static node_id id_of(const struct setup *s, const char *path)
{
    CLEANUP_BYTES full = BYTES_INIT(1 << 16);
    for (node_id id = 0; id < tree_count(s->tree); id++) {
        assert_int_equal(tree_path(s->tree, id, &full), 0);
        if (full.len == strlen(path) && !memcmp(full.data ? (void *)full.data : "", path, full.len))
            return id;
    }
    fail_msg("no such path: %s", path);
    return NODE_NONE;
}

static struct node *node_of(const struct setup *s, const char *path)
{
    return tree_node(s->tree, id_of(s, path));
}

static struct digest digest_of_seed(unsigned seed, uint64_t size)
{
    CLEANUP_FREE uint8_t *data = malloc(size);
    for (uint64_t i = 0; i < size; i++)
        data[i] = source_fake_byte(seed, i);
    return digest_of(data, size);
}

static void assert_content(const struct setup *s, const char *path, unsigned seed, uint64_t size)
{
    struct digest d = digest_of_seed(seed, size);
    assert_int_equal(node_of(s, path)->size, size);
    assert_true(digest_equal(&node_of(s, path)->content, &d));
}

/* Everything that is handed on, as text: "path offset+len/size first last digest". */
static void record(struct setup *s, struct bytes *out)
{
    struct body_part p;
    int rc;
    char hex[DIGEST_HEX_SIZE];
    CLEANUP_BYTES path = BYTES_INIT(1 << 16);
    while ((rc = bodies_next(s->bodies, &p)) == 1) {
        struct digest d = digest_of(p.data, p.len);
        assert_int_equal(tree_path(s->tree, p.node, &path), 0);
        assert_int_equal(bytes_printf(out, "%.*s %llu+%zu/%llu %d%d %s\n", (int)path.len, (char *)path.data,
                                      (unsigned long long)p.offset, p.len, (unsigned long long)p.size, p.first, p.last,
                                      digest_hex(&d, hex)),
                         0);
    }
    assert_int_equal(bytes_printf(out, "%d\n", rc), 0);
}

/* A mixture of sizes and of everything that can happen to a file. */
static struct source *mixture(void)
{
    struct source *s = source_fake_new();
    char path[64];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "d%u/f%03u", i % 7, i);
        source_fake_file(s, path, i % 11 ? i * 37 : 0, i);
    }
    source_fake_file(s, "big", 5u * PART + 17, 1000);
    source_fake_file(s, "even", 2u * PART, 1001);
    source_fake_file(s, "late", 4u * PART, 1002);
    source_fake_version(s, "late", 3u * PART + 5, 1003);
    source_fake_rule(s, "late", 2u * PART, FAKE_CHANGE, 0);
    source_fake_file(s, "lost", 3u * PART, 1004);
    source_fake_rule(s, "lost", 1u * PART, FAKE_VANISH, 0);
    source_fake_file(s, "small", 5000, 1005);
    source_fake_version(s, "small", 6000, 1006);
    source_fake_rule(s, "small", 0, FAKE_CHANGE, 0);
    source_fake_file(s, "gone", 5000, 1007);
    source_fake_rule(s, "gone", 0, FAKE_VANISH, 0);
    source_fake_file(s, "emptied", 2u * PART, 1008);
    source_fake_version(s, "emptied", 0, 0);
    source_fake_rule(s, "emptied", PART, FAKE_CHANGE, 0);
    return s;
}

static void test_bodies__the_sequence_does_not_depend_on_jobs(void **state)
{
    /* a change in the middle is met by jobs=1 at that part; with many readers parts behind it may
     * have been read before, but they are not handed on */
    CLEANUP_BYTES one = BYTES_INIT(1 << 20), many = BYTES_INIT(1 << 20);
    for (unsigned jobs = 1; jobs <= 16; jobs += 15) {
        struct setup s = {.source = mixture()};
        load(&s);
        start_with(&s, jobs, MEMORY, false);
        record(&s, jobs == 1 ? &one : &many);
        assert_content(&s, "big", 1000, 5u * PART + 17);
        assert_content(&s, "even", 1001, 2u * PART);
        assert_content(&s, "late", 1003, 3u * PART + 5);
        assert_content(&s, "small", 1006, 6000);
        assert_content(&s, "d2/f100", 100, 3700);
        assert_int_equal(node_of(&s, "emptied")->size, 0);
        assert_true(digest_is_zero(&node_of(&s, "emptied")->content));
        assert_true(tree_dropped(s.tree, node_of(&s, "gone")));
        assert_true(tree_dropped(s.tree, node_of(&s, "lost")));
        assert_int_equal(bodies_changed(s.bodies), 3);
        assert_int_equal(bodies_vanished(s.bodies), 2);
        end(&s);
    }
    assert_int_equal(one.len, many.len);
    assert_memory_equal(one.data, many.data, one.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies__the_sequence_does_not_depend_on_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
