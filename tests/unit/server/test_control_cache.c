/* The cache over the control socket: what is asked is answered exactly, what is wrong is refused by name,
 * and neither a long answer nor a silent client keeps others waiting.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <jansson.h>
#include <sys/time.h>
#include <time.h>

#include "base/error.h"
#include "server/control_internal.h"
#include "unit/control_world.h"
#include "unit/counters.h"
#include "unit/exports.h"

enum { TIMEOUT_S = 8 /* less than the server gives an idle client */ };

static void warm(struct control_served *f, unsigned first, unsigned count)
{
    struct image *img = image_at(f->w.stack, 0);
    assert_int_equal(image_prefetch(img, (uint64_t)first * CONTROL_CHUNK, (uint64_t)count * CONTROL_CHUNK), 0);
    /* A chunk that is evicted while a writer still has it queued is written again. */
    counter_wait_zero(stack_counters, f->w.stack, "granary_cache_fill_queue_bytes");
}

/* The object under `key` in the one line of the answer that has it; fails when there is none. */
static json_t *answer_of(struct control_served *f, const char *method, const char *target, const char *key)
{
    static char answer[1 << 16];
    char request[4096];
    snprintf(request, sizeof request, "%s %s HTTP/1.0\r\n\r\n", method, target);
    control_ask(f->w.path, request, answer);
    char *line = strstr(answer, "\r\n\r\n");
    assert_non_null(line);
    assert_non_null(strstr(answer, " 200 "));
    json_t *found = NULL;
    for (line = strtok(line + 4, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        if (json_object_get(object, key) && !found)
            found = json_incref(json_object_get(object, key));
        json_decref(object);
    }
    if (!found)
        fail_msg("%s: no %s in %s", target, key, answer);
    return found;
}

static void expect_numbers(json_t *object, const char *keys, ...)
{
    char names[200];
    va_list list;
    va_start(list, keys);
    snprintf(names, sizeof names, "%s", keys);
    for (char *key = strtok(names, " "); key; key = strtok(NULL, " ")) {
        long long want = va_arg(list, int), got = json_integer_value(json_object_get(object, key));
        if (!json_object_get(object, key) || got != want)
            fail_msg("%s is %lld, not %lld", key, got, want);
    }
    va_end(list);
    json_decref(object);
}

static void test_control_cache__ls_counts_what_is_cached(void **state)
{
    static struct control_served f;
    control_served_init(&f);
    warm(&f, 5, 10);
    json_t *image = answer_of(&f, "GET", "/cache", "image");
    assert_string_equal(json_string_value(json_object_get(image, "export")), "faces");
    assert_string_equal(json_string_value(json_object_get(image, "store_error")), "");
    expect_numbers(image, "files chunks bytes cached_chunks cached_bytes stored_bytes unknown_chunks", 0,
                   CONTROL_CHUNKS, CONTROL_CHUNKS * CONTROL_CHUNK, 10, 10 * CONTROL_CHUNK, 10 * CONTROL_CHUNK, 0);
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces&glob=big", "image"), "files chunks cached_chunks", 1, 11,
                   5);
    json_t *file = answer_of(&f, "GET", "/cache?export=faces&glob=b%3Fg", "file");
    assert_string_equal(json_string_value(json_object_get(file, "path")), "big");
    expect_numbers(file, "size chunks cached_chunks pinned_chunks", 10 * CONTROL_CHUNK + 1, 11, 5, 0);
    /* Files that share chunks: counted once in the sum. */
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces&glob=/all/000*", "image"), "files chunks cached_chunks",
                   100, CONTROL_CHUNKS, 10);
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces&glob=none", "image"), "files chunks", 0, 0);
    control_served_release(&f);
}

static void test_control_cache__evict_drops_what_was_chosen_and_no_more(void **state)
{
    static struct control_served f;
    control_served_init(&f);
    warm(&f, 0, CONTROL_CHUNKS);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?export=faces&glob=big", "image"),
                   "files chunks cached_chunks changed_chunks changed_bytes refused_chunks", 1, 11, 11, 11,
                   11 * CONTROL_CHUNK, 0);
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces", "image"), "cached_chunks", CONTROL_CHUNKS - 11);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?export=faces", "image"), "changed_chunks", CONTROL_CHUNKS - 11);
    expect_numbers(answer_of(&f, "GET", "/cache", "image"), "cached_chunks", 0);
    warm(&f, 3, 4);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?all=1", "cache"), "refused_chunks", 0);
    expect_numbers(answer_of(&f, "GET", "/cache", "image"), "cached_chunks", 0);
    control_served_release(&f);
}

static void test_control_cache__pins_are_counted_and_kept_from_evict(void **state)
{
    static struct control_served f;
    control_served_init(&f);
    warm(&f, 0, 15);
    expect_numbers(answer_of(&f, "POST", "/cache/pin?export=faces&glob=big", "image"),
                   "chunks cached_chunks pinned_chunks changed_chunks refused_chunks", 11, 5, 0, 5, 0);
    expect_numbers(answer_of(&f, "POST", "/cache/pin?export=faces&glob=big", "image"), "pinned_chunks changed_chunks",
                   5, 0);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?all=1", "cache"), "changed_chunks refused_chunks", 10, 5);
    expect_numbers(answer_of(&f, "GET", "/cache", "image"), "cached_chunks pinned_chunks", 5, 5);
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces&glob=big", "file"), "pinned_chunks", 5);
    expect_numbers(answer_of(&f, "POST", "/cache/unpin?all=1", "cache"), "changed_chunks", 5);
    expect_numbers(answer_of(&f, "POST", "/cache/pin?export=faces", "image"), "changed_chunks", 5);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?export=faces", "image"), "changed_chunks refused_chunks", 0, 5);
    expect_numbers(answer_of(&f, "POST", "/cache/evict?export=faces&pinned=1", "image"),
                   "changed_chunks refused_chunks", 5, 0);
    control_served_release(&f);
}

static void test_control_cache__known_asks_no_store(void **state)
{
    static struct control_served f;
    char away[SCRATCH_MAX + 16], store[SCRATCH_MAX + 16];
    control_served_init(&f);
    expect_numbers(answer_of(&f, "GET", "/cache?known=1", "image"), "chunks cached_chunks unknown_chunks", 0, 0,
                   CONTROL_CHUNKS); /* its index is not cached, and is not fetched */
    warm(&f, 0, 3);
    snprintf(store, sizeof store, "%s/indexes", f.w.dir);
    snprintf(away, sizeof away, "%s/indexes.away", f.w.dir);
    assert_int_equal(rename(store, away), 0);
    expect_numbers(answer_of(&f, "GET", "/cache?export=faces&known=1", "image"), "chunks cached_chunks unknown_chunks",
                   CONTROL_CHUNKS, 3, 0);
    control_served_release(&f);
}

static void test_control_cache__without_the_store_what_is_known_is_answered(void **state)
{
    static struct control_served f;
    char away[SCRATCH_MAX + 16], store[SCRATCH_MAX + 16];
    control_served_init(&f);
    warm(&f, 0, 3);
    snprintf(store, sizeof store, "%s/indexes", f.w.dir);
    snprintf(away, sizeof away, "%s/indexes.away", f.w.dir);
    assert_int_equal(rename(store, away), 0);
    snprintf(store, sizeof store, "%s/catalogs", f.w.dir);
    assert_int_equal(rename(store, strcat(away, "2")), 0);
    expect_numbers(answer_of(&f, "GET", "/cache", "image"), "cached_chunks unknown_chunks", 3, 0);
    json_t *error = answer_of(&f, "GET", "/cache?export=faces&glob=*", "error");
    assert_non_null(strstr(json_string_value(error), "catalogs"));
    json_decref(error);
    control_served_release(&f);
}

static void expect_refusal(struct control_served *f, const char *request, int status, const char *text)
{
    static char answer[1 << 16];
    char code[16];
    control_ask(f->w.path, request, answer);
    snprintf(code, sizeof code, " %d ", status);
    if (!strstr(answer, code) || !strstr(answer, text))
        fail_msg("%.100s: not %d with '%s' but %.300s", request, status, text, answer);
}

static void test_control_cache__what_is_wrong_is_refused(void **state)
{
    static struct control_served f;
    static char longest[8192];
    control_served_init(&f);
#define GET(target) "GET " target " HTTP/1.0\r\n\r\n"
#define POST(target) "POST " target " HTTP/1.0\r\nContent-Length: 0\r\n\r\n"
    expect_refusal(&f, GET("/cache?export=nope"), 404, "no export 'nope'");
    expect_refusal(&f, GET("/cache?export=no%ff%0a%22pe"), 404, "no export");
    expect_refusal(&f, GET("/cache?export="), 404, "no export");
    expect_refusal(&f, GET("/cache?colour=red"), 400, "colour");
    expect_refusal(&f, GET("/cache?export=faces&export=faces"), 400, "twice");
    expect_refusal(&f, GET("/cache?export=fa%00ces"), 400, "NUL");
    expect_refusal(&f, GET("/cache?export"), 400, "no value");
    expect_refusal(&f, GET("/cache?glob=*"), 400, "needs export");
    expect_refusal(&f, GET("/cache?export=faces&glob="), 400, "1 to");
    expect_refusal(&f, GET("/cache?export=faces&pinned=1"), 400, "pinned");
    expect_refusal(&f, GET("/cache?all=1"), 400, "all=1 is for");
    expect_refusal(&f, GET("/cache?known=yes"), 400, "known=1 is for");
    expect_refusal(&f, GET("/cache?export=faces&glob=*&known=1"), 400, "known=1 is for");
    expect_refusal(&f, POST("/cache/evict?export=faces&known=1"), 400, "known=1 is for");
    expect_refusal(&f, POST("/cache/evict"), 400, "all=1");
    expect_refusal(&f, POST("/cache/evict?all=yes"), 400, "all=1 is for");
    expect_refusal(&f, POST("/cache/evict?all=1&export=faces"), 400, "all=1 is for");
    expect_refusal(&f, POST("/cache/pin?export=faces&pinned=1"), 400, "pinned");
    expect_refusal(&f, POST("/cache/unpin"), 400, "all=1");
    expect_refusal(&f, POST("/cache"), 405, "");
    expect_refusal(&f, GET("/cache/evict?all=1"), 405, "");
    expect_refusal(&f, POST("/status"), 405, "");
    expect_refusal(&f, GET("/cache/nothing"), 404, "");
    snprintf(longest, sizeof longest, "GET /cache?export=faces&glob=%01100d HTTP/1.0\r\n\r\n", 0);
    expect_refusal(&f, longest, 400, "1024");
    snprintf(longest, sizeof longest, "GET /cache?export=%05000d HTTP/1.0\r\n\r\n", 0);
    expect_refusal(&f, longest, 400, "4096");
    expect_numbers(answer_of(&f, "GET", "/cache", "image"), "chunks", CONTROL_CHUNKS);
    control_served_release(&f);
}

static const char everything[] = "GET /cache?export=faces&glob=* HTTP/1.0\r\n\r\n";

static bool answers(struct control_served *f, const char *request, const char *status)
{
    char answer[64] = "";
    int fd = control_send(f->w.path, request);
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    bool got = read(fd, answer, sizeof answer - 1) > 0 && strstr(answer, status);
    close(fd);
    return got;
}

static void test_control_cache__a_slow_client_delays_nobody(void **state)
{
    static struct control_served f;
    int slow[CONTROL_JOBS_MAX];
    char byte;
    control_served_init(&f);
    for (int i = 0; i < CONTROL_JOBS_MAX; i++) {
        slow[i] = control_send(f.w.path, everything); /* its answer is more than any buffer on the way */
        assert_int_equal(read(slow[i], &byte, 1), 1);
    }
    assert_true(answers(&f, "GET /metrics HTTP/1.0\r\n\r\n", " 200 "));
    for (int i = 0; i < 50; i++) { /* they wait for their clients, and make nothing meanwhile */
        assert_true(answers(&f, everything, " 503 "));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    close(slow[0]);
    while (!answers(&f, everything, " 200 ")) /* the server sees that it is gone */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    /* The end of the server is the end of what it was doing. */
    control_served_release(&f);
    for (int i = 1; i < CONTROL_JOBS_MAX; i++)
        close(slow[i]);
}

static void test_control_cache__a_long_answer_is_whole(void **state)
{
    static struct control_served f;
    static char block[16 << 10];
    char end[32] = ""; /* of the answer */
    unsigned lines = 0;
    ssize_t n;
    control_served_init(&f);
    int fd = control_send(f.w.path, everything);
    while ((n = read(fd, block, sizeof block)) > 0) {
        nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL); /* the server is ahead of this all the time */
        for (ssize_t i = 0; i < n; i++) {
            lines += block[i] == '\n';
            memmove(end, end + 1, sizeof end - 2);
            end[sizeof end - 2] = block[i];
        }
    }
    close(fd);
    assert_true(lines >= CONTROL_FILES + 2);
    assert_non_null(strstr(end, "{\"ok\":true}}\n"));
    control_served_release(&f);
}

static void test_control_cache__idle_clients_make_room_for_others(void **state)
{
    static struct control_served f;
    int idle[70]; /* more than may be connected, fewer than would fill the backlog too */
    control_served_init(&f);
    for (size_t i = 0; i < GR_ARRAY_SIZE(idle); i++)
        idle[i] = control_send(f.w.path, i % 2 ? "" : "GET /status HTTP/1.1\r\nHost: g\r\n\r\n");
    assert_true(answers(&f, "GET /metrics HTTP/1.0\r\n\r\n", " 200 "));
    assert_true(answers(&f, everything, " 200 "));
    for (size_t i = 0; i < GR_ARRAY_SIZE(idle); i++)
        close(idle[i]);
    control_served_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_cache__ls_counts_what_is_cached),
        cmocka_unit_test(test_control_cache__evict_drops_what_was_chosen_and_no_more),
        cmocka_unit_test(test_control_cache__pins_are_counted_and_kept_from_evict),
        cmocka_unit_test(test_control_cache__known_asks_no_store),
        cmocka_unit_test(test_control_cache__without_the_store_what_is_known_is_answered),
        cmocka_unit_test(test_control_cache__what_is_wrong_is_refused),
        cmocka_unit_test(test_control_cache__a_slow_client_delays_nobody),
        cmocka_unit_test(test_control_cache__a_long_answer_is_whole),
        cmocka_unit_test(test_control_cache__idle_clients_make_room_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
