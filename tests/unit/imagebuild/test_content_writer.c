/* Bodies that are moved out of the parent are what its catalog says, or nothing is built. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/content/content.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/sink/upload.h"

enum { CHUNK = CHUNK_SIZE_MIN, SIZE = 5000 };

static int parent_read(struct source *s, const struct source_read *r)
{
    (void)s;
    source_fake_bytes(1, r->offset, r->dst, r->len);
    return 0;
}

static const struct source_ops parent_ops = {.read = parent_read};

static int step(void *arg, uint64_t files, uint64_t bytes)
{
    (void)arg;
    (void)files;
    (void)bytes;
    return 0;
}

/* The root and one file that is to be moved, which the catalog knows by the content of that seed. */
static struct nodes *planned(unsigned seed)
{
    uint8_t body[SIZE];
    source_fake_bytes(seed, 0, body, SIZE);
    struct scratch_config scratch = {0};
    const struct node root = {.mode = S_IFDIR | 0755, .path = "", .name = ""};
    const struct node file = {.rank = 1,
                              .link = 1,
                              .plan = NODE_MOVE,
                              .mode = S_IFREG | 0644,
                              .size = SIZE,
                              .address = CHUNK,
                              .content = digest_of(body, SIZE),
                              .path = "m",
                              .path_len = 1,
                              .validator = "v",
                              .validator_len = 1};
    struct nodes *nodes;
    assert_int_equal(nodes_new(&scratch, &nodes), 0);
    assert_int_equal(nodes_add(nodes, &root), 0);
    assert_int_equal(nodes_add(nodes, &file), 0);
    assert_int_equal(nodes_end(nodes), 0);
    return nodes;
}

static int write_moved(unsigned seed)
{
    struct source parent = {.ops = &parent_ops, .url = "image"}, *source = source_fake_new();
    struct store_fake *store = store_fake_new();
    struct upload *upload;
    struct sink *sink;
    struct fs *fs;
    struct nodes *nodes = planned(seed);
    const struct upload_config uploads = {.store = store_fake_store(store), .threads = 1, .memory = 1 << 20};
    assert_int_equal(upload_new(&uploads, &upload), 0);
    const struct sink_config sinks = {.upload = upload, .chunk_size = CHUNK, .workers = 1, .pack_size = 1 << 20};
    assert_int_equal(sink_new(&sinks, &sink), 0);
    const struct fs_config fss = {.chunk_size = CHUNK, .nodes = 2, .bytes = SIZE};
    assert_int_equal(fs_erofs_new(&fss, &fs), 0);
    const struct content_writer_config config = {.source = source,
                                                 .parent = &parent,
                                                 .planned = nodes,
                                                 .fs = fs,
                                                 .sink = sink,
                                                 .chunk_size = CHUNK,
                                                 .jobs = 1,
                                                 .memory = 1 << 20,
                                                 .step = step};
    struct content_writer_result result;
    int rc = content_writer_run(&config, &result);
    if (!rc)
        nodes_free(result.nodes);
    fs_free(fs);
    sink_free(sink);
    upload_free(upload);
    nodes_free(nodes);
    source_close(source);
    store_fake_free(store);
    return rc;
}

static void test_content_writer__moves_what_the_catalog_knows(void **state)
{
    assert_int_equal(write_moved(1), 0);
}

static void test_content_writer__other_bytes_in_the_parent_end_the_build(void **state)
{
    assert_int_equal(write_moved(2), -EBADMSG);
    assert_non_null(strstr(error_text(), "'m' has other bytes in the parent image"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_writer__moves_what_the_catalog_knows),
        cmocka_unit_test(test_content_writer__other_bytes_in_the_parent_end_the_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
