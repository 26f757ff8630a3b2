/* What is read of an export is sent as it is read, each chunk once, in order; a trace is warmed, in an image that has
 * its chunks elsewhere too. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <jansson.h>

#include "server/control_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"

static void read_at(struct control_served *f, unsigned chunk, size_t len)
{
    static char buf[4 * CONTROL_CHUNK];
    assert_int_equal(image_read(image_at(f->w.stack, 0), buf, (uint64_t)chunk * CONTROL_CHUNK + 5, len), 0);
}

/* The rest of the answer on fd, and what is before it in text. */
static void read_until(int fd, char *text, size_t size, const char *end)
{
    size_t len = strlen(text);
    while (!end || !strstr(text, end)) {
        ssize_t n = read(fd, text + len, size - 1 - len);
        if (n <= 0)
            break;
        text[len += (size_t)n] = 0;
    }
    if (end && !strstr(text, end))
        fail_msg("no '%s' in '%.2000s'", end, text);
}

/* The chunks that an answer lists, and its last counts. */
static size_t listed(char *answer, uint32_t out[64], long long *chunks, long long *dropped)
{
    size_t n = 0;
    bool ended = false;
    for (char *line = strtok(strstr(answer, "\r\n\r\n") + 4, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL), *count = json_object_get(object, "trace");
        const char *entries = json_string_value(json_object_get(object, "entries"));
        for (size_t len = entries ? strlen(entries) : 0; len; len -= 32, entries += 32) {
            unsigned b[4];
            assert_int_equal(sscanf(entries, "%2x%2x%2x%2x", &b[0], &b[1], &b[2], &b[3]), 4);
            out[n++] = b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24;
        }
        if (count) {
            *chunks = json_integer_value(json_object_get(count, "chunks"));
            *dropped = json_integer_value(json_object_get(count, "dropped"));
        }
        ended |= json_object_get(object, "result") != NULL;
        json_decref(object);
    }
    assert_true(ended);
    return n;
}

static void test_control_trace__what_is_read_is_listed_in_order(void **state)
{
    static const uint32_t expected[] = {7, 30, 31, 2};
    static struct control_served f;
    static char answer[1 << 16], other[1 << 16];
    uint32_t chunks[64];
    long long count = -1, dropped = -1;
    control_served_init(&f);
    read_at(&f, 5, 1);
    int fd = control_send(f.w.path, "GET /trace?export=faces HTTP/1.0\r\n\r\n");
    *answer = 0;
    read_until(fd, answer, sizeof answer, "\"content_root\"");
    control_ask(f.w.path, "GET /trace HTTP/1.0\r\n\r\n", other);
    assert_non_null(strstr(other, "is being recorded already"));
    read_at(&f, 7, 100);
    read_at(&f, 30, CONTROL_CHUNK);
    read_at(&f, 7, 1);
    assert_int_equal(image_prefetch(image_at(f.w.stack, 0), 0, 2 * CONTROL_CHUNK), 0); /* nobody reads that */
    read_at(&f, 2, 1);
    control_ask(f.w.path, "POST /trace/end HTTP/1.0\r\nContent-Length: 0\r\n\r\n", other);
    assert_non_null(strstr(other, " 200 "));
    read_until(fd, answer, sizeof answer, NULL);
    close(fd);
    assert_int_equal(listed(answer, chunks, &count, &dropped), 4);
    assert_memory_equal(chunks, expected, sizeof expected);
    assert_true(count == 4 && dropped == 0);
    control_ask(f.w.path, "POST /trace/end HTTP/1.0\r\nContent-Length: 0\r\n\r\n", other);
    assert_true(strstr(other, " 404 ") && strstr(other, "is not being recorded"));
    control_served_release(&f);
}

static void test_control_trace__a_client_that_goes_ends_it(void **state)
{
    static struct control_served f;
    static char answer[1 << 16];
    control_served_init(&f);
    for (int i = 0; i < 3; i++) {
        *answer = 0;
        int fd = -1;
        for (int tries = 0; tries < 6000 && !strstr(answer, "\"content_root\""); tries++) {
            if (fd >= 0)
                close(fd);
            usleep(10000); /* the one before has not noticed yet */
            fd = control_send(f.w.path, "GET /trace HTTP/1.0\r\n\r\n");
            *answer = 0;
            read_until(fd, answer, sizeof answer, "}\n");
        }
        assert_non_null(strstr(answer, "\"content_root\""));
        close(fd);
    }
    control_served_release(&f); /* with one that may still run */
}

/* ---- warming by a trace ---- */

struct made {
    uint8_t entries[64 * TRACE_ENTRY_SIZE];
    struct trace trace;
    struct bytes file;
};

static void made_add(struct made *m, uint32_t chunk, const struct digest *digest)
{
    const struct trace_entry e = trace_entry_of(chunk, digest);
    trace_entry_put(m->entries + (size_t)m->trace.count++ * TRACE_ENTRY_SIZE, &e);
}

static void made_init(struct made *m, struct control_served *f)
{
    const struct manifest *manifest = image_manifest(image_at(f->w.stack, 0));
    memset(m, 0, sizeof *m);
    m->trace = (struct trace){.image = {{1}},
                              .content_root = manifest->content_root,
                              .size = manifest->size,
                              .chunk_size = manifest->chunk_size,
                              .entries = m->entries};
    m->file = (struct bytes)BYTES_INIT(1 << 20);
}

/* "warm": traced_chunks, absent_chunks, chunks, needed_chunks, cached_chunks; or the error. */
static void warm_by(struct control_served *f, struct made *m, const char *query, const char *expected)
{
    static char answer[1 << 16];
    char head[256], got[1024] = "";
    bytes_clear(&m->file);
    assert_int_equal(trace_encode(&m->trace, &m->file), 0);
    snprintf(head, sizeof head, "POST /warm?what=trace%s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n", query, m->file.len);
    int fd = control_send(f->w.path, head);
    assert_int_equal(write(fd, m->file.data, m->file.len), m->file.len);
    *answer = 0;
    read_until(fd, answer, sizeof answer, NULL);
    close(fd);
    for (char *line = strtok(strstr(answer, "\r\n\r\n") + 4, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL), *warm = json_object_get(object, "warm");
        if (json_object_get(object, "error"))
            snprintf(got, sizeof got, "%s", json_string_value(json_object_get(object, "error")));
        if (warm)
            snprintf(got, sizeof got, "%lld %lld %lld %lld %lld",
                     (long long)json_integer_value(json_object_get(warm, "traced_chunks")),
                     (long long)json_integer_value(json_object_get(warm, "absent_chunks")),
                     (long long)json_integer_value(json_object_get(warm, "chunks")),
                     (long long)json_integer_value(json_object_get(warm, "needed_chunks")),
                     (long long)json_integer_value(json_object_get(warm, "cached_chunks")));
        json_decref(object);
    }
    if (strncmp(got, expected, strlen(expected)) != 0)
        fail_msg("'%s', not '%s'", got, expected);
}

static bool is_cached(struct control_served *f, unsigned chunk)
{
    return cache_has(stack_cache(f->w.stack), &f->w.img.refs[chunk].digest);
}

static void test_control_trace__the_same_content_is_warmed_by_number(void **state)
{
    static struct control_served f;
    static struct made m;
    static const struct digest wrong = {{9}};
    control_served_init(&f);
    made_init(&m, &f);
    made_add(&m, 12, &wrong);
    made_add(&m, 3, &wrong);
    made_add(&m, 12, &wrong);
    warm_by(&f, &m, "&dry=1", "3 0 3 3 0"); /* and the superblock's */
    assert_false(is_cached(&f, 12));
    warm_by(&f, &m, "", "3 0 3 3 3");
    assert_true(is_cached(&f, 12) && is_cached(&f, 3) && is_cached(&f, 0) && !is_cached(&f, 4));
    bytes_release(&m.file);
    control_served_release(&f);
}

static void test_control_trace__another_image_is_warmed_by_digest(void **state)
{
    static struct control_served f;
    static struct made m;
    static const struct digest foreign = {{9}}, another = {{10}};
    control_served_init(&f);
    made_init(&m, &f);
    m.trace.content_root = (struct digest){{2}};
    m.trace.size += 100 * CONTROL_CHUNK; /* a larger one, whose numbers this one does not have */
    made_add(&m, 120, &f.w.img.refs[39].digest);
    made_add(&m, 119, &foreign);
    made_add(&m, 4, &f.w.img.refs[8].digest);
    made_add(&m, 118, &f.w.img.refs[39].digest);
    made_add(&m, 117, &foreign);
    made_add(&m, 116, &another);
    warm_by(&f, &m, "", "6 3 3 3 3");
    assert_true(is_cached(&f, 39) && is_cached(&f, 8) && !is_cached(&f, 4));
    m.trace.chunk_size *= 2;
    m.trace.size *= 2;
    warm_by(&f, &m, "", "the trace is of an image with chunks of 128 KiB");
    m.trace.chunk_size = CONTROL_CHUNK;
    m.trace.count = 0;
    warm_by(&f, &m, "", "0 0 1 0 1");
    m.trace.size = 0;
    warm_by(&f, &m, "", "not a trace that can be used");
    bytes_release(&m.file);
    control_served_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_trace__what_is_read_is_listed_in_order),
        cmocka_unit_test(test_control_trace__a_client_that_goes_ends_it),
        cmocka_unit_test(test_control_trace__the_same_content_is_warmed_by_number),
        cmocka_unit_test(test_control_trace__another_image_is_warmed_by_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
