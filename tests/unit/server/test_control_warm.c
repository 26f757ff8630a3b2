/* Warming over the control socket: exactly what was asked for is cached, what cannot be had is named, and a request
 * that makes no sense is refused. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <jansson.h>

#include "server/control_internal.h"
#include "unit/control_world.h"

/* POST target with a body of names, each ended by NUL. */
static void post(struct control_served *f, const char *target, const void *names, size_t len, char answer[1 << 16])
{
    char head[1024];
    snprintf(head, sizeof head, "POST %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n", target, len);
    int fd = control_send(f->w.path, head);
    (void)!send(fd, names, len, MSG_NOSIGNAL); /* a server that refuses at once may have closed it */
    size_t got = 0;
    ssize_t n;
    while (got < (1 << 16) - 1 && (n = read(fd, answer + got, (1 << 16) - 1 - got)) > 0)
        got += (size_t)n;
    answer[got] = 0;
    close(fd);
}

struct sums {
    long long files, absent, chunks, needed, cached, failed_files;
    long long warmed, rate;
    long long told_bytes, told_files, told_failed, told_failed_bytes; /* by the last line of progress */
    int named;                                                        /* lines of failures */
    char first[200];                                                  /* of them: its path */
    char error[1024];
};

/* Names as a string literal, whose own NUL ends the last of them. */
#define WARM(f, query, names) warmed(f, query, names, sizeof names - (sizeof names > 1 ? 0 : 1))

static struct sums warmed(struct control_served *f, const char *query, const char *names, size_t len)
{
    static char answer[1 << 16];
    char target[256];
    struct sums s = {0};
    bool ended = false, have = false;
    snprintf(target, sizeof target, "/warm?%s", query);
    post(f, target, names, len, answer);
    if (!strstr(answer, " 200 "))
        fail_msg("%s: %.300s", query, answer);
    for (char *line = strtok(strstr(answer, "\r\n\r\n") + 4, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL), *warm = json_object_get(object, "warm");
        json_t *failed = json_object_get(object, "failed"), *told = json_object_get(object, "progress");
        if (json_object_get(object, "error"))
            fail_msg("%s: %s", query, line);
        ended |= json_object_get(object, "result") != NULL;
        if (failed && !s.named++)
            snprintf(s.first, sizeof s.first, "%s", json_string_value(json_object_get(failed, "path")));
        if (told) {
            s.told_bytes = json_integer_value(json_object_get(told, "bytes_done"));
            s.told_files = json_integer_value(json_object_get(told, "files_done"));
            s.told_failed = json_integer_value(json_object_get(told, "failed_chunks"));
            s.told_failed_bytes = json_integer_value(json_object_get(told, "failed_bytes"));
        }
        if (warm) {
            have = true;
            s.warmed = json_integer_value(json_object_get(warm, "warmed_bytes"));
            s.rate = json_integer_value(json_object_get(warm, "bytes_per_s"));
            assert_true(json_is_real(json_object_get(warm, "seconds")));
            s.files = json_integer_value(json_object_get(warm, "files"));
            s.absent = json_integer_value(json_object_get(warm, "absent_files"));
            s.chunks = json_integer_value(json_object_get(warm, "chunks"));
            s.needed = json_integer_value(json_object_get(warm, "needed_chunks"));
            s.cached = json_integer_value(json_object_get(warm, "cached_chunks"));
            s.failed_files = json_integer_value(json_object_get(warm, "failed_files"));
            snprintf(s.error, sizeof s.error, "%s", json_string_value(json_object_get(warm, "error")));
        }
        json_decref(object);
    }
    assert_true(ended && have);
    return s;
}

static void expect(struct sums s, long long files, long long chunks, long long needed, long long cached)
{
    if (s.files != files || s.chunks != chunks || s.needed != needed || s.cached != cached)
        fail_msg("%lld files, %lld chunks, %lld needed, %lld cached", s.files, s.chunks, s.needed, s.cached);
}

static bool is_cached(struct control_served *f, unsigned chunk)
{
    return cache_has(stack_cache(f->w.stack), &f->w.img.refs[chunk].digest);
}

static unsigned cached_chunks(struct control_served *f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CONTROL_CHUNKS; i++)
        n += is_cached(f, i);
    return n;
}

static void test_control_warm__what_was_asked_for_is_cached(void **state)
{
    static struct control_served f;
    control_served_init(&f);
    expect(WARM(&f, "what=all&dry=1", ""), CONTROL_FILES, CONTROL_CHUNKS, CONTROL_CHUNKS, 0);
    assert_int_equal(cached_chunks(&f), 0);
    expect(WARM(&f, "what=metadata", ""), 0, 1, 1, 1); /* the superblock's */
    assert_int_equal(cached_chunks(&f), 1);
    expect(WARM(&f, "what=files&export=faces", "big"), 1, 12, 11, 12);
    for (unsigned i = 10; i < 21; i++)
        assert_true(is_cached(&f, i));
    assert_int_equal(cached_chunks(&f), 12);
    expect(WARM(&f, "what=globs", "all/0000[1-5]-*\0big"), 6, 17, 5, 17);
    expect(WARM(&f, "what=globs", "all/0000[1-5]-*\0big"), 6, 17, 0, 17);
    expect(WARM(&f, "what=all", ""), CONTROL_FILES, CONTROL_CHUNKS, CONTROL_CHUNKS - 17, CONTROL_CHUNKS);
    assert_int_equal(cached_chunks(&f), CONTROL_CHUNKS);
    control_served_release(&f);
}

static void test_control_warm__an_image_has_changed_nothing_since_itself(void **state)
{
    static struct control_served f;
    char query[256], hex[DIGEST_HEX_SIZE];
    control_served_init(&f);
    snprintf(query, sizeof query, "what=changes&export=faces&since=sha256:%s", digest_hex(&f.w.img.digest, hex));
    expect(WARM(&f, query, ""), 0, 1, 1, 1); /* the superblock's */
    assert_int_equal(cached_chunks(&f), 1);
    control_served_release(&f);
}

static void test_control_warm__many_files_in_any_order_each_chunk_once(void **state)
{
    static struct control_served f;
    static char names[CONTROL_FILES * 128];
    size_t len = 0;
    control_served_init(&f);
    for (unsigned i = CONTROL_FILES - 1; i-- > 0; len += strlen(names + len) + 1)
        strcpy(names + len, f.w.paths[(i * 7919) % (CONTROL_FILES - 1)]);
    expect(warmed(&f, "what=files", names, len), CONTROL_FILES - 1, CONTROL_CHUNKS, CONTROL_CHUNKS, CONTROL_CHUNKS);
    control_served_release(&f);
}

static void test_control_warm__paths_that_are_not_there_are_named(void **state)
{
    static struct control_served f;
    static char names[1 << 14];
    size_t len = 0;
    control_served_init(&f);
    struct sums s = WARM(&f, "what=files", "zzz\0big\0al\0bigger");
    expect(s, 1, 12, 12, 12);
    assert_int_equal(s.absent, 3);
    assert_int_equal(s.named, 3);
    s = WARM(&f, "what=globs&dry=1", "nothing*\0big");
    assert_int_equal(s.absent, 1);
    assert_string_equal(s.first, "nothing*");
    for (unsigned i = 0; i < 500; i++)
        len += (size_t)sprintf(names + len, "none/%u", i) + 1;
    s = warmed(&f, "what=files", names, len);
    assert_int_equal(s.absent, 500);
    assert_int_equal(s.named, CONTROL_WARM_FAILED_MAX);
    control_served_release(&f);
}

/* Packs hold 16 chunks each: 0 to 15, 16 to 31, 32 to 39. */
static void move_pack(struct control_served *f, unsigned chunk, bool away)
{
    char hex[DIGEST_HEX_SIZE], there[SCRATCH_MAX + 128], gone[SCRATCH_MAX + 128];
    digest_hex(&f->w.img.refs[chunk].object, hex);
    snprintf(there, sizeof there, "%s/packs/%.2s/%s", f->w.dir, hex, hex);
    snprintf(gone, sizeof gone, "%s/gone", f->w.dir);
    assert_int_equal(rename(away ? there : gone, away ? gone : there), 0);
}

static void test_control_warm__what_cannot_be_had_is_named_and_the_rest_is_cached(void **state)
{
    static struct control_served f;
    control_served_init(&f);
    move_pack(&f, 20, true);
    struct sums s = WARM(&f, "what=all", "");
    expect(s, CONTROL_FILES, CONTROL_CHUNKS, CONTROL_CHUNKS, CONTROL_CHUNKS - 16);
    assert_int_equal(cached_chunks(&f), CONTROL_CHUNKS - 16);
    int failed = 1; /* "big" */
    for (unsigned i = 0; i + 1 < CONTROL_FILES; i++)
        failed += i % CONTROL_CHUNKS / 16 == 1;
    assert_int_equal(s.failed_files, failed);
    assert_int_equal(s.named, CONTROL_WARM_FAILED_MAX);
    assert_non_null(strstr(s.error, "packs/"));
    s = WARM(&f, "what=files", "big");
    assert_int_equal(s.failed_files, 1);
    assert_string_equal(s.first, "big");
    expect(s, 1, 12, 5, 7);
    move_pack(&f, 20, false);
    s = WARM(&f, "what=all", "");
    expect(s, CONTROL_FILES, CONTROL_CHUNKS, 16, CONTROL_CHUNKS);
    assert_string_equal(s.error, "");
    assert_int_equal(s.failed_files, 0);
    control_served_release(&f);
}

static void test_control_warm__the_last_progress_is_exact(void **state)
{
    static struct control_served f;
    const long long pack = 16 * CONTROL_CHUNK, whole = CONTROL_CHUNKS * CONTROL_CHUNK;
    control_served_init(&f);
    move_pack(&f, 20, true);
    static const char *const queries[] = {"what=all", "what=all&bwlimit=1G"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(queries); i++) {
        struct sums s = WARM(&f, queries[i], "");
        assert_int_equal(s.told_bytes, whole - pack);
        assert_int_equal(s.told_files, CONTROL_FILES);
        assert_int_equal(s.told_failed, 16);
        assert_int_equal(s.told_failed_bytes, pack);
        assert_int_equal(s.warmed, i ? 0 : whole - pack);
        assert_true(!s.warmed == !s.rate);
    }
    move_pack(&f, 20, false);
    struct sums s = WARM(&f, "what=files", "big");
    assert_int_equal(s.told_bytes, 12 * CONTROL_CHUNK); /* with the superblock's */
    assert_int_equal(s.told_files, 1);
    assert_int_equal(s.told_failed, 0);
    assert_int_equal(s.warmed, 5 * CONTROL_CHUNK);
    control_served_release(&f);
}

static void test_control_warm__a_catalog_that_is_away_is_an_error(void **state)
{
    static struct control_served f;
    static char answer[1 << 16];
    char there[SCRATCH_MAX + 16], gone[SCRATCH_MAX + 16];
    control_served_init(&f);
    snprintf(there, sizeof there, "%s/catalogs", f.w.dir);
    snprintf(gone, sizeof gone, "%s/gone", f.w.dir);
    assert_int_equal(rename(there, gone), 0);
    post(&f, "/warm?what=files", "big", 4, answer);
    assert_non_null(strstr(answer, "{\"error\":"));
    assert_non_null(strstr(answer, "catalogs"));
    expect(WARM(&f, "what=all", ""), CONTROL_FILES, CONTROL_CHUNKS, CONTROL_CHUNKS, CONTROL_CHUNKS); /* needs none */
    control_served_release(&f);
}

static void expect_refusal(struct control_served *f, const char *target, const char *names, int status,
                           const char *text)
{
    static char answer[1 << 16];
    char code[16];
    post(f, target, names, strlen(names), answer);
    snprintf(code, sizeof code, " %d ", status);
    if (!strstr(answer, code) || !strstr(answer, text))
        fail_msg("%s: not %d with '%s' but %.300s", target, status, text, answer);
}

static void test_control_warm__what_is_wrong_is_refused(void **state)
{
    static struct control_served f;
    static char answer[1 << 16];
    control_served_init(&f);
    expect_refusal(&f, "/warm", "", 400, "what=");
    expect_refusal(&f, "/warm?what=some", "", 400, "what=");
    expect_refusal(&f, "/warm?what=all&export=nope", "", 404, "no export 'nope'");
    expect_refusal(&f, "/warm?what=all&digest=sha256:00", "", 404, "no export 'sha256:00'");
    expect_refusal(&f, "/warm?what=all&dry=0", "", 400, "dry=");
    expect_refusal(&f, "/warm?what=changes", "", 400, "since=");
    expect_refusal(&f, "/warm?what=all&since=sha256:00", "", 400, "since=");
    expect_refusal(&f, "/warm?what=changes&since=sha256:00", "", 404, "no export 'sha256:00'");
    expect_refusal(&f, "/warm?what=all", "big", 400, "body");
    expect_refusal(&f, "/warm?what=files", "", 400, "body");
    expect_refusal(&f, "/warm?what=all&glob=x", "", 400, "glob");
    control_ask(f.w.path, "GET /warm?what=all HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 405 "));
    assert_int_equal(cached_chunks(&f), 0);
    control_served_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_warm__what_was_asked_for_is_cached),
        cmocka_unit_test(test_control_warm__an_image_has_changed_nothing_since_itself),
        cmocka_unit_test(test_control_warm__many_files_in_any_order_each_chunk_once),
        cmocka_unit_test(test_control_warm__paths_that_are_not_there_are_named),
        cmocka_unit_test(test_control_warm__what_cannot_be_had_is_named_and_the_rest_is_cached),
        cmocka_unit_test(test_control_warm__the_last_progress_is_exact),
        cmocka_unit_test(test_control_warm__a_catalog_that_is_away_is_an_error),
        cmocka_unit_test(test_control_warm__what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
