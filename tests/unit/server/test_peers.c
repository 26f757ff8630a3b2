/* Answering other nodes: the stored bytes of what is cached, a refusal for everything else, and no request is left
 * behind when the server ends. */
#include "unit/cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "format/chunk_list.h"
#include "net/peer_key.h"
#include "server/server_internal.h"
#include "unit/control_world.h"
#include "unit/threads.h"

enum { ANSWER_MAX = 2 << 20 };

static struct peers_world {
    struct control_world w;
    struct peers *peers;
    struct peer_key *key; /* to be set before init; NULL: everybody is answered */
    unsigned port;
} g;

static void init(void)
{
    g.w.as_stored = true;
    control_world_init(&g.w);
    const struct store_node node = {.address = "127.0.0.1:0", .key = g.key};
    assert_int_equal(peers_open(&node, g.w.stack, &g.peers), 0);
    g.port = peers_port(g.peers);
    assert_int_equal(peers_start(g.peers), 0);
}

static void release(void)
{
    peers_close(g.peers);
    control_world_release(&g.w);
}

static void cache_chunks(unsigned first, unsigned n)
{
    struct stack_export *e = stack_get(g.w.stack, "");
    assert_int_equal(
        image_prefetch(stack_export_image(e), (uint64_t)first * CONTROL_CHUNK, (uint64_t)n * CONTROL_CHUNK), 0);
    stack_put(e);
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g.port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a), "connect");
    return fd;
}

/* The server's answer: its status, and its body in *body. */
static int ask(const char *request, uint8_t *body, size_t *body_len)
{
    CLEANUP_FREE char *got = malloc(ANSWER_MAX);
    size_t len = 0;
    ssize_t n;
    int fd = dial(), status = 0;
    must(io_write_full(fd, request, strlen(request)) == 0, "write");
    while ((n = read(fd, got + len, ANSWER_MAX - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    got[len] = 0;
    must(sscanf(got, "HTTP/1.1 %d", &status) == 1, "no answer");
    const char *end = strstr(got, "\r\n\r\n");
    must(end, "no end of the header");
    *body_len = len - (size_t)(end + 4 - got);
    memcpy(body, end + 4, *body_len);
    return status;
}

/* GET chunks [first, first+n) of the image, which lie side by side in one pack, with a proof by this key, if any. */
static int get_by(struct peer_key *by, unsigned first, unsigned n, uint8_t *body, size_t *len)
{
    char request[CHUNK_LIST_TEXT_MAX + 1024], proof[PEER_PROOF_MAX] = "";
    const struct chunk_ref *refs[CHUNK_LIST_MAX];
    char key[OBJECT_KEY_MAX], list[CHUNK_LIST_TEXT_MAX];
    for (unsigned i = 0; i < n; i++)
        refs[i] = &g.w.img.refs[first + i];
    const struct chunk_ref *last = refs[n - 1];
    const struct peer_get get = {.key = object_key(OBJECT_PACK, &refs[0]->object, key),
                                 .off = refs[0]->offset,
                                 .len = last->offset + last->stored_len - refs[0]->offset,
                                 .chunks = chunk_list_encode(refs, n, list)};
    snprintf(request, sizeof request,
             "GET /lake/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=%u-%u\r\n" CHUNK_LIST_HEADER
             ": %s\r\n" PEER_PROOF_HEADER ": %s\r\n\r\n",
             key, refs[0]->offset, last->offset + last->stored_len - 1, list,
             by ? peer_key_prove(by, &get, time(NULL), proof) : "");
    return ask(request, body, len);
}

static int get(unsigned first, unsigned n, uint8_t *body, size_t *len)
{
    return get_by(NULL, first, n, body, len);
}

/* Compare with the pack's file. */
static void check_body(unsigned first, unsigned n, const uint8_t *body, size_t len)
{
    const struct chunk_ref *a = &g.w.img.refs[first], *b = &g.w.img.refs[first + n - 1];
    char key[OBJECT_KEY_MAX], path[2 * SCRATCH_MAX + OBJECT_KEY_MAX];
    CLEANUP_FREE uint8_t *want = malloc(len + 1);
    must(len == b->offset + b->stored_len - a->offset, "%zu bytes", len);
    snprintf(path, sizeof path, "%s/%s", g.w.dir, object_key(OBJECT_PACK, &a->object, key));
    FILE *f = fopen(path, "r");
    must(f && !fseek(f, (long)a->offset, SEEK_SET) && fread(want, 1, len, f) == len, "%s", path);
    fclose(f);
    must(!memcmp(body, want, len), "wrong bytes");
}

static void test_peers__what_is_cached_is_given_as_it_is_stored(void **state)
{
    static uint8_t body[ANSWER_MAX];
    size_t len;
    init();
    cache_chunks(0, 16);
    for (unsigned first = 0; first < 16; first++)
        for (unsigned n = 1; first + n <= 16; n += 5) {
            assert_int_equal(get(first, n, body, &len), 206);
            check_body(first, n, body, len);
        }
    release();
}

static void test_peers__what_is_not_cached_is_not_here(void **state)
{
    static uint8_t body[ANSWER_MAX];
    size_t len;
    init();
    assert_int_equal(get(0, 1, body, &len), 404);
    cache_chunks(0, 2);
    assert_int_equal(get(0, 2, body, &len), 206);
    assert_int_equal(get(0, 3, body, &len), 404); /* all or nothing */
    struct chunk_ref *ref = &g.w.img.refs[1];
    ref->stored_crc++; /* it is another chunk's digest: what is cached is not what is asked for */
    assert_int_equal(get(1, 1, body, &len), 404);
    ref->stored_crc--;
    assert_int_equal(get(1, 1, body, &len), 206);
    release();
}

static struct peer_key *key_of(const char *text)
{
    char path[2 * SCRATCH_MAX];
    struct peer_key *k;
    snprintf(path, sizeof path, "/tmp/granary-test-key-%d", (int)getpid());
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
    assert_int_equal(peer_key_open(path, &k), 0);
    remove(path);
    return k;
}

static void test_peers__who_has_not_the_key_gets_nothing(void **state)
{
    static uint8_t body[ANSWER_MAX];
    size_t len;
    struct peer_key *other = key_of("fedcba9876543210fedcba9876543210");
    g.key = key_of("0123456789abcdef0123456789abcdef");
    init();
    cache_chunks(0, 16);
    assert_int_equal(get(0, 4, body, &len), 401);
    assert_int_equal(get_by(other, 0, 4, body, &len), 401);
    assert_int_equal(counter_get(&stack_peer_counts(g.w.stack)->served), 0);
    assert_int_equal(counter_get(&stack_peer_counts(g.w.stack)->strangers), 2);
    assert_int_equal(get_by(g.key, 0, 4, body, &len), 206);
    check_body(0, 4, body, len);
    release();
    peer_key_free(g.key);
    peer_key_free(other);
    g.key = NULL;
}

static void test_peers__other_requests_are_refused(void **state)
{
    static uint8_t body[ANSWER_MAX];
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
        {"GET /lake/granary.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
        {"GET /lake/images/faces/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
        {"GET /lake/packs/../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404},
        {"PUT /lake/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 405},
        {"GET /a%00b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400},
    };
    size_t len;
    init();
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        int status = ask(cases[i].text, body, &len);
        if (status != cases[i].status)
            fail_msg("%d for %s", status, cases[i].text);
    }
    static const char *const ranges[] = {"",
                                         "Range: bytes=0-\r\n",
                                         "Range: bytes=9-8\r\n",
                                         "Range: bytes=0-99999999\r\n",
                                         "Range: bytes=0-1,4-5\r\n",
                                         "Range: bytes=0-9\r\n",
                                         "Range: bytes=+0-9\r\n",
                                         "Range: bytes=0--1\r\n",
                                         "Range: bytes= 0-9\r\n",
                                         "Range: bytes=0-9\r\n" CHUNK_LIST_HEADER ": AAAA\r\n"};
    char key[OBJECT_KEY_MAX], request[1024];
    object_key(OBJECT_PACK, &g.w.img.refs[0].object, key);
    for (size_t i = 0; i < GR_ARRAY_SIZE(ranges); i++) {
        snprintf(request, sizeof request, "GET /lake/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", key,
                 ranges[i]);
        assert_int_equal(ask(request, body, &len), 400);
    }
    assert_int_equal(counter_get(&stack_peer_counts(g.w.stack)->served), 0);
    release();
}

/* Well-formed requests, for what is there, are answered for packs and index nodes alone. */
static void test_peers__of_the_store_only_packs_and_index_nodes_are_given(void **state)
{
    static uint8_t body[ANSWER_MAX];
    char keys[5][OBJECT_KEY_MAX] = {"granary.json", "images/faces/latest", "leases/1"};
    char path[SCRATCH_MAX + 1024], request[CHUNK_LIST_TEXT_MAX + 1024], list[CHUNK_LIST_TEXT_MAX], pack[OBJECT_KEY_MAX];
    size_t len;
    init();
    cache_chunks(0, 1);
    const struct chunk_ref *ref = &g.w.img.refs[0];
    object_key(OBJECT_MANIFEST, &g.w.img.digest, keys[3]);
    object_key(OBJECT_CATALOG, &g.w.img.manifest.catalog_root, keys[4]);
    for (size_t i = 0; i <= GR_ARRAY_SIZE(keys); i++) {
        const char *key = i < GR_ARRAY_SIZE(keys) ? keys[i] : object_key(ref->kind, &ref->object, pack);
        snprintf(path, sizeof path, "%s/%s", g.w.dir, key);
        if (access(path, F_OK) && i != 2) /* there are no leases */
            fail_msg("%s is not there", path);
        snprintf(request, sizeof request,
                 "GET /lake/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=%u-%u\r\n" CHUNK_LIST_HEADER
                 ": %s\r\n\r\n",
                 key, ref->offset, ref->offset + ref->stored_len - 1, chunk_list_encode(&ref, 1, list));
        int status = ask(request, body, &len);
        if (status != (key == pack ? 206 : 404))
            fail_msg("%d for %s", status, key);
    }
    release();
}

/* A GET has no body, and none is waited for. */
static void test_peers__a_body_is_refused(void **state)
{
    static const char *const bodies[] = {"Transfer-Encoding: chunked", "Content-Length: 9"};
    static uint8_t body[ANSWER_MAX];
    char key[OBJECT_KEY_MAX], list[CHUNK_LIST_TEXT_MAX], request[CHUNK_LIST_TEXT_MAX + 1024];
    size_t len;
    init();
    cache_chunks(0, 16);
    const struct chunk_ref *ref = &g.w.img.refs[3];
    for (size_t i = 0; i < GR_ARRAY_SIZE(bodies); i++) {
        snprintf(request, sizeof request,
                 "GET /lake/%s HTTP/1.1\r\nHost: x\r\nRange: bytes=%u-%u\r\n" CHUNK_LIST_HEADER ": %s\r\n%s\r\n\r\n",
                 object_key(OBJECT_PACK, &ref->object, key), ref->offset, ref->offset + ref->stored_len - 1,
                 chunk_list_encode(&ref, 1, list), bodies[i]);
        assert_int_equal(ask(request, body, &len), 400); /* the connection is closed: nothing is kept for the rest */
    }
    release();
}

/* A request for chunks [0, n), which leaves the connection open. */
static void write_request(int fd, unsigned n)
{
    char key[OBJECT_KEY_MAX], list[CHUNK_LIST_TEXT_MAX], request[CHUNK_LIST_TEXT_MAX + 1024];
    const struct chunk_ref *refs[CHUNK_LIST_MAX];
    for (unsigned i = 0; i < n; i++)
        refs[i] = &g.w.img.refs[i];
    snprintf(request, sizeof request,
             "GET /lake/%s HTTP/1.1\r\nHost: x\r\nRange: bytes=%u-%u\r\n" CHUNK_LIST_HEADER ": %s\r\n\r\n",
             object_key(OBJECT_PACK, &refs[0]->object, key), refs[0]->offset,
             refs[n - 1]->offset + refs[n - 1]->stored_len - 1, chunk_list_encode(refs, n, list));
    must(io_write_full(fd, request, strlen(request)) == 0, "write");
}

/* A client that does not read holds the memory of its answer only until another one needs memory. */
static void test_peers__who_takes_an_answer_too_slowly_is_cut_off(void **state)
{
    enum { ANSWERS = 8 /* more than the kernel takes */, LIMIT_MS = 60000 };
    static uint8_t body[ANSWER_MAX];
    init();
    cache_chunks(0, 16);
    peers_send_within(g.peers, 0);
    int fd = dial(), small = 4096;
    must(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), "setsockopt");
    for (unsigned i = 0; i < ANSWERS; i++)
        write_request(fd, 16);
    struct pollfd gone = {.fd = fd};
    uint64_t end = clock_now_ms() + LIMIT_MS;
    while (!poll(&gone, 1, 10)) {
        assert_true(clock_now_ms() < end);
        int other = dial(); /* whose answer may be cut off as well */
        write_request(other, 1);
        (void)!read(other, body, sizeof body);
        close(other);
    }
    assert_true(gone.revents & (POLLERR | POLLHUP));
    close(fd);
    release();
}

static void *get_many(void *arg)
{
    CLEANUP_FREE uint8_t *body = malloc(ANSWER_MAX);
    size_t len;
    for (unsigned i = 0; i < 40; i++) {
        unsigned first = i % 16, n = 1 + i % (16 - first);
        must(get(first, n, body, &len) == 206, "not here");
        check_body(first, n, body, len);
    }
    return NULL;
}

static void test_peers__many_at_once(void **state)
{
    enum { MANY = 8 };
    pthread_t threads[MANY];
    init();
    cache_chunks(0, 16);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_many, NULL), 0);
    for (unsigned i = 0; i < MANY; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(counter_get(&stack_peer_counts(g.w.stack)->served), 40 * MANY);
    release();
}

/* Clients that send half a request, or go before the answer comes, harm nobody and do not keep the server. */
static void test_peers__clients_that_vanish_harm_nobody(void **state)
{
    enum { MANY = 50 };
    static uint8_t body[ANSWER_MAX];
    int fds[MANY];
    size_t len;
    char key[OBJECT_KEY_MAX], list[CHUNK_LIST_TEXT_MAX], request[CHUNK_LIST_TEXT_MAX + 1024];
    init();
    cache_chunks(0, 16);
    const struct chunk_ref *ref = &g.w.img.refs[3];
    snprintf(request, sizeof request,
             "GET /lake/%s HTTP/1.1\r\nHost: x\r\nRange: bytes=%u-%u\r\n" CHUNK_LIST_HEADER ": %s\r\n\r\n",
             object_key(OBJECT_PACK, &ref->object, key), ref->offset, ref->offset + ref->stored_len - 1,
             chunk_list_encode(&ref, 1, list));
    for (unsigned i = 0; i < MANY; i++) {
        fds[i] = dial();
        size_t part = i % 2 ? strlen(request) : strlen(request) / 2;
        must(io_write_full(fds[i], request, part) == 0, "write");
        if (i % 4 < 2)
            close(fds[i]);
    }
    assert_int_equal(get(0, 4, body, &len), 206);
    release(); /* while the others are connected */
    for (unsigned i = 0; i < MANY; i++)
        if (i % 4 >= 2)
            close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers__what_is_cached_is_given_as_it_is_stored),
        cmocka_unit_test(test_peers__what_is_not_cached_is_not_here),
        cmocka_unit_test(test_peers__who_has_not_the_key_gets_nothing),
        cmocka_unit_test(test_peers__other_requests_are_refused),
        cmocka_unit_test(test_peers__of_the_store_only_packs_and_index_nodes_are_given),
        cmocka_unit_test(test_peers__a_body_is_refused),
        cmocka_unit_test(test_peers__who_takes_an_answer_too_slowly_is_cut_off),
        cmocka_unit_test(test_peers__many_at_once),
        cmocka_unit_test(test_peers__clients_that_vanish_harm_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
