/* Tags and manifests with the store there, away, or saying no. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "fake/http_fake.h"
#include "fake/image_fake.h"
#include "repository/repository.h"
#include "repository/resolver.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, SUM_LINE = 7 + DIGEST_HEX_SIZE /* a table's first line: "sha256:", hex, newline */ };

/* A store with faces:latest, two cache directories, and a resolver over them. */
struct world {
    char dir[SCRATCH_MAX], store[SCRATCH_MAX + 16], moved[SCRATCH_MAX + 16], caches[2][SCRATCH_MAX + 16];
    const char *cache_list[2];
    struct image_fake faces;
    struct resolver_config config;
    struct resolver *resolver;
};

static unsigned warnings;
static char warned[1024]; /* the last one */

static void count_warnings(enum log_level level, const char *line)
{
    warnings += level <= LOG_LEVEL_WARNING;
    snprintf(warned, sizeof warned, "%s", line);
}

static void save_store(struct world *w, struct image_fake *img, uint64_t seed, const char *name)
{
    struct store_fake *fake = store_fake_new();
    *img = (struct image_fake){.seed = seed, .size = 4 * CHUNK, .chunk_size = CHUNK};
    image_fake_put(img, fake, name);
    image_fake_save(fake, w->store);
    store_fake_free(fake);
}

static void begin(struct world *w)
{
    assert_int_equal(resolver_new(&w->config, &w->resolver), 0);
}

static void restart(struct world *w)
{
    resolver_free(w->resolver);
    begin(w);
}

static void world_init(struct world *w)
{
    *w = (struct world){.config = {.store.timeout_ms = 1, .dir_count = 2}};
    scratch_make(w->dir);
    snprintf(w->store, sizeof w->store, "%s/store", w->dir);
    snprintf(w->moved, sizeof w->moved, "%s/moved", w->dir);
    for (int i = 0; i < 2; i++) {
        snprintf(w->caches[i], sizeof w->caches[i], "%s/cache%d", w->dir, i);
        w->cache_list[i] = w->caches[i];
        assert_int_equal(mkdir(w->caches[i], 0700), 0);
    }
    w->config.dirs = w->cache_list;
    save_store(w, &w->faces, 1, "faces");
    warnings = 0;
    log_to(count_warnings, LOG_LEVEL_WARNING);
    begin(w);
}

static void world_release(struct world *w)
{
    resolver_free(w->resolver);
    image_fake_release(&w->faces);
    scratch_remove(w->dir);
    log_to(NULL, LOG_LEVEL_INFO);
}

static int resolve_at(struct world *w, const char *store, const char *rest, struct image_ref *out)
{
    char text[512];
    snprintf(text, sizeof text, "%s/%s", store, rest);
    assert_int_equal(image_ref_parse(text, out), 0);
    return resolver_resolve(w->resolver, out);
}

/* Resolves and loads store's faces, as a server does at its start. */
static void serve(struct world *w, const char *store)
{
    struct image_ref ref;
    struct manifest m;
    if (resolve_at(w, store, "faces", &ref) || resolver_manifest(w->resolver, &ref, &m))
        fail_msg("%s", error_text());
    assert_int_equal(m.size, w->faces.size);
    resolver_save(w->resolver);
}

static void take_away(struct world *w)
{
    assert_int_equal(rename(w->store, w->moved), 0);
}

static void expect_code(int rc, int code, const char *part)
{
    assert_int_equal(rc, code);
    if (!strstr(error_text(), part))
        fail_msg("'%s' does not say '%s'", error_text(), part);
}

static char *path_of(const struct world *w, int cache, char out[512])
{
    snprintf(out, 512, "%s/exports", w->caches[cache]);
    return out;
}

static void test_resolver__with_the_store_away_the_table_stands_in(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    world_init(&w);
    serve(&w, w.store);
    assert_int_equal(warnings, 0);
    take_away(&w);
    restart(&w);
    assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, "faces:latest"));
    assert_true(ref.by_digest && digest_equal(&ref.digest, &w.faces.digest));
    assert_string_equal(ref.tag, ""); /* nobody confirmed it */
    assert_int_equal(resolver_manifest(w.resolver, &ref, &m), 0);
    assert_memory_equal(&m, &w.faces.manifest, sizeof m);

    /* What is written then still knows the tag. */
    resolver_save(w.resolver);
    restart(&w);
    assert_int_equal(resolve_at(&w, w.store, "faces:latest", &ref), 0);
    assert_true(digest_equal(&ref.digest, &w.faces.digest));
    world_release(&w);
}

static void test_resolver__what_no_table_knows_needs_the_store(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    world_init(&w);
    serve(&w, w.store);
    take_away(&w);
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces:v1", &ref), -ENOENT, "not a Granary store");
    expect_code(resolve_at(&w, w.store, "cars", &ref), -ENOENT, "not a Granary store");
    assert_int_equal(
        resolve_at(&w, w.store, "faces@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", &ref),
        0);
    expect_code(resolver_manifest(w.resolver, &ref, &m), -ENOENT, "not a Granary store");
    assert_int_equal(warnings, 0);
    world_release(&w);
}

static void test_resolver__a_store_that_answers_is_right(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    char tag[300];
    world_init(&w);
    serve(&w, w.store);

    /* The tag moves. */
    struct digest old = w.faces.digest;
    image_fake_release(&w.faces);
    save_store(&w, &w.faces, 2, "faces");
    restart(&w);
    assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
    assert_true(digest_equal(&ref.digest, &w.faces.digest) && !digest_equal(&ref.digest, &old));
    assert_string_equal(ref.tag, "latest");
    assert_int_equal(resolver_manifest(w.resolver, &ref, &m), 0);

    /* It is damaged, and it is removed: both are answers. */
    snprintf(tag, sizeof tag, "%s/images/faces/latest", w.store);
    assert_int_equal(io_write_file_atomic(tag, "{", 1, false), 0);
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -EBADMSG, "latest");
    assert_int_equal(remove(tag), 0);
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -ENOENT, "no image faces:latest");
    assert_int_equal(warnings, 0);
    world_release(&w);
}

static void test_resolver__digests_and_known_manifests_touch_no_store(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    char rest[200], hex[DIGEST_HEX_SIZE];
    world_init(&w);
    serve(&w, w.store);
    take_away(&w);
    restart(&w);
    snprintf(rest, sizeof rest, "faces:v7@sha256:%s", digest_hex(&w.faces.digest, hex));
    assert_int_equal(resolve_at(&w, w.store, rest, &ref), 0);
    assert_string_equal(ref.tag, "v7");
    assert_int_equal(resolver_manifest(w.resolver, &ref, &m), 0);
    resolver_save(w.resolver);
    restart(&w); /* a tag beside a digest is believed, and noted */
    assert_int_equal(resolve_at(&w, w.store, "faces:v7", &ref), 0);
    assert_true(digest_equal(&ref.digest, &w.faces.digest));
    assert_int_equal(warnings, 1);
    world_release(&w);
}

static void test_resolver__a_copy_that_is_damaged_or_older_counts_for_nothing(void **state)
{
    struct world w;
    struct image_ref ref;
    char path[512], other[512];
    struct stat st;
    world_init(&w);
    serve(&w, w.store);
    CLEANUP_BYTES older = BYTES_INIT(1 << 20), newer = BYTES_INIT(1 << 20);
    assert_int_equal(io_read_file(path_of(&w, 0, path), &older), 0);
    struct digest old = w.faces.digest;
    image_fake_release(&w.faces);
    save_store(&w, &w.faces, 2, "faces");
    restart(&w);
    serve(&w, w.store);
    take_away(&w);
    for (int i = 0; i < 2; i++) { /* the older copy, first and second */
        bytes_clear(&newer);
        assert_int_equal(io_read_file(path_of(&w, i, path), &newer), 0);
        assert_int_equal(io_write_file_atomic(path, older.data, older.len, false), 0);
        restart(&w);
        assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
        assert_false(digest_equal(&ref.digest, &old));
        assert_int_equal(io_write_file_atomic(path, newer.data, newer.len, false), 0);
    }
    warnings = 0;
    newer.data[newer.len / 2] ^= 1;
    assert_int_equal(io_write_file_atomic(path_of(&w, 0, path), newer.data, newer.len, false), 0);
    restart(&w);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, w.caches[0]));
    assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
    assert_true(digest_equal(&ref.digest, &w.faces.digest));

    assert_int_equal(remove(path_of(&w, 1, other)), 0); /* now none is left */
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -ENOENT, "not a Granary store");
    assert_int_equal(rename(w.moved, w.store), 0);
    serve(&w, w.store); /* both are whole again */
    assert_int_equal(stat(path, &st) | stat(other, &st), 0);
    warnings = 0;
    restart(&w);
    assert_int_equal(warnings, 0);
    world_release(&w);
}

static void test_resolver__a_table_that_says_the_same_is_not_written_again(void **state)
{
    struct world w;
    char path[512];
    struct stat before, after;
    world_init(&w);
    w.config.resolved = 1000;
    serve(&w, w.store);
    assert_int_equal(stat(path_of(&w, 1, path), &before), 0);
    restart(&w);
    serve(&w, w.store);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    w.config.resolved = 2000;
    restart(&w);
    serve(&w, w.store);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    world_release(&w);
}

static void test_resolver__a_directory_that_takes_no_table_is_warned_of(void **state)
{
    struct world w;
    char path[512];
    world_init(&w);
    path_of(&w, 0, path);
    assert_int_equal(mkdir(path, 0700), 0);
    serve(&w, w.store);
    assert_true(warnings >= 1);
    assert_non_null(strstr(warned, w.caches[0]));
    restart(&w); /* the other directory has it */
    take_away(&w);
    struct image_ref ref;
    assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
    world_release(&w);
}

/* ---- over HTTP: the store's files, or one status for everything ---- */

struct site {
    const char *root;
    _Atomic int status; /* 0: the files */
};

static enum http_fake_next answer(void *arg, const struct http_fake_request *request, int fd)
{
    struct site *site = arg;
    CLEANUP_BYTES body = BYTES_INIT(1 << 20);
    char path[9000];
    snprintf(path, sizeof path, "%s%s", site->root, request->target);
    int status = site->status ? site->status : io_read_file(path, &body) ? 404 : 200;
    http_fake_text(fd, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n\r\n", status, status == 200 ? body.len : 0);
    if (status == 200)
        http_fake_send(fd, body.data, body.len);
    return HTTP_FAKE_KEEP;
}

static void test_resolver__which_http_answers_are_answers(void **state)
{
    struct world w;
    struct image_ref ref;
    world_init(&w);
    struct site site = {.root = w.store};
    struct http_fake *http = http_fake_start(answer, &site);
    char url[64];
    snprintf(url, sizeof url, "%s", http_fake_url(http));
    serve(&w, url);
    static const struct {
        int status, rc;
        unsigned warnings;
    } rows[] = {{0, 0, 0}, {503, 0, 1}, {500, 0, 1}, {403, -EACCES, 0}, {404, 0, 1 /* not even a granary.json */}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++) {
        warnings = 0;
        site.status = rows[i].status;
        restart(&w);
        assert_int_equal(resolve_at(&w, url, "faces", &ref), rows[i].rc);
        assert_int_equal(warnings, rows[i].warnings);
    }
    http_fake_stop(http);
    warnings = 0;
    restart(&w);
    assert_int_equal(resolve_at(&w, url, "faces", &ref), 0); /* nobody listens */
    assert_int_equal(warnings, 1);
    world_release(&w);
}

static void test_resolver__a_store_that_is_away_is_asked_once(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    char rest[200], hex[DIGEST_HEX_SIZE];
    world_init(&w);
    struct site site = {.root = w.store};
    struct http_fake *http = http_fake_start(answer, &site);
    const char *url = http_fake_url(http);
    for (int i = 0; i < 20; i++) {
        snprintf(rest, sizeof rest, "faces:v%d@sha256:%s", i, digest_hex(&w.faces.digest, hex));
        assert_int_equal(resolve_at(&w, url, rest, &ref), 0);
        assert_int_equal(resolver_manifest(w.resolver, &ref, &m), 0);
    }
    resolver_save(w.resolver);
    site.status = 503;
    restart(&w);
    assert_int_equal(resolve_at(&w, url, "faces:v0", &ref), 0);
    unsigned asked = http_fake_requests(http);
    for (int i = 1; i < 20; i++) {
        snprintf(rest, sizeof rest, "faces:v%d", i);
        assert_int_equal(resolve_at(&w, url, rest, &ref), 0);
    }
    assert_int_equal(http_fake_requests(http), asked);
    assert_int_equal(warnings, 20);
    http_fake_stop(http);
    world_release(&w);
}

enum { MANY = 24, TOGETHER = 9, TIMEOUT_S = 60 };

/* Answers about images wait until enough requests are in flight at once, or no more come. */
struct crowd {
    struct site site;
    pthread_mutex_t lock;
    pthread_cond_t more;
    unsigned asking, most;
    bool alone;
};

static void wait_for_others(struct crowd *c)
{
    struct timespec until = clock_at_ms(clock_now_ms() + TIMEOUT_S * 1000);
    SCOPED_LOCK(&c->lock);
    c->asking++;
    c->most = GR_MAX(c->most, c->asking);
    pthread_cond_broadcast(&c->more);
    while (c->most < TOGETHER && !c->alone)
        c->alone = pthread_cond_timedwait(&c->more, &c->lock, &until) == ETIMEDOUT;
    c->asking--;
}

static enum http_fake_next answer_crowd(void *arg, const struct http_fake_request *request, int fd)
{
    struct crowd *c = arg;
    if (!strstr(request->target, "granary.json"))
        wait_for_others(c);
    return answer(&c->site, request, fd);
}

/* And nothing is asked for twice. */
static void test_resolver__many_images_are_asked_for_at_once(void **state)
{
    static struct image_fake images[MANY];
    static struct image_ref refs[MANY];
    struct world w;
    struct manifest m;
    world_init(&w);
    struct crowd crowd = {.site = {.root = w.store}, .lock = PTHREAD_MUTEX_INITIALIZER};
    thread_cond_init(&crowd.more);
    struct store_fake *fake = store_fake_new();
    struct http_fake *http = http_fake_start(answer_crowd, &crowd);
    for (unsigned i = 0; i < MANY; i++) {
        char name[16], text[128];
        snprintf(name, sizeof name, "image%u", i);
        images[i] = (struct image_fake){.seed = 100 + i, .size = CHUNK, .chunk_size = CHUNK};
        image_fake_put(&images[i], fake, name);
        snprintf(text, sizeof text, "%s/%s", http_fake_url(http), name);
        assert_int_equal(image_ref_parse(text, &refs[i]), 0);
    }
    image_fake_save(fake, w.store);
    store_fake_free(fake);
    w.config.store.timeout_ms = 2 * TIMEOUT_S * 1000;
    w.config.store.request_s = 2 * TIMEOUT_S;
    restart(&w);
    assert_int_equal(resolver_ahead(w.resolver, refs, MANY, true), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(resolver_resolve(w.resolver, &refs[i]), 0);
        assert_true(digest_equal(&refs[i].digest, &images[i].digest));
        assert_int_equal(resolver_manifest(w.resolver, &refs[i], &m), 0);
        assert_int_equal(m.size, CHUNK);
    }
    assert_true(crowd.most >= TOGETHER);
    assert_int_equal(http_fake_requests(http), 1 + 2 * MANY);
    struct image_ref absent[2] = {refs[0], refs[1]};
    for (int i = 0; i < 2; i++) {
        absent[i].by_digest = false;
        snprintf(absent[i].tag, sizeof absent[i].tag, "none%d", i);
    }
    assert_int_equal(resolver_ahead(w.resolver, absent, 2, true), 0);
    assert_int_equal(resolver_resolve(w.resolver, &absent[0]), -ENOENT);
    assert_int_equal(resolver_resolve(w.resolver, &absent[1]), -ENOENT);
    http_fake_stop(http);
    for (int i = 0; i < MANY; i++)
        image_fake_release(&images[i]);
    world_release(&w);
}

/* What a table of another process says of an image stands in for the store, if it is that image's manifest. */
static void test_resolver__what_is_handed_is_not_asked_for_and_not_trusted(void **state)
{
    struct world w;
    struct image_ref ref;
    struct manifest m;
    char path[SCRATCH_MAX + 16], hex[DIGEST_HEX_SIZE];
    CLEANUP_BYTES handed = BYTES_INIT(1 << 20);
    world_init(&w);
    struct site site = {.root = w.store};
    struct http_fake *http = http_fake_start(answer, &site);
    w.config.dir_count = 0;
    w.config.store.timeout_ms = TIMEOUT_S * 1000;
    restart(&w);
    if (resolve_at(&w, http_fake_url(http), "faces", &ref) || resolver_manifest(w.resolver, &ref, &m))
        fail_msg("%s", error_text());
    assert_int_equal(http_fake_requests(http), 3);
    assert_int_equal(resolver_hand(w.resolver, &handed), 0);

    snprintf(path, sizeof path, "%s/handed", w.dir);
    w.config.handed = path;
    restart(&w); /* the file is not there */
    assert_int_equal(warnings, 0);
    assert_int_equal(io_write_file_atomic(path, handed.data, handed.len, false), 0);
    restart(&w);
    m.size = 0;
    assert_int_equal(resolver_manifest(w.resolver, &ref, &m), 0);
    assert_int_equal(m.size, w.faces.size);
    assert_int_equal(http_fake_requests(http), 3);

    /* another image's digest at this one's manifest, the table's own sum right */
    struct digest other = digest_of("other", 5);
    char *at = memmem(handed.data, handed.len, digest_hex(&ref.digest, hex), DIGEST_HEX_SIZE - 1);
    assert_non_null(at);
    memcpy(at, digest_hex(&other, hex), DIGEST_HEX_SIZE - 1);
    struct digest sum = digest_of(handed.data + SUM_LINE, handed.len - SUM_LINE);
    memcpy(handed.data + 7, digest_hex(&sum, hex), DIGEST_HEX_SIZE - 1);
    assert_int_equal(io_write_file_atomic(path, handed.data, handed.len, false), 0);
    restart(&w);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, "differs from its digest"));
    ref.digest = other;
    assert_int_equal(resolver_manifest(w.resolver, &ref, &m), -ENOENT);
    http_fake_stop(http);
    world_release(&w);
}

/* ---- signatures ---- */

/* A key, and a resolver that trusts it. */
struct signing {
    struct secret_key secret;
    struct trust trust;
};

static void trust_one(struct world *w, struct signing *s)
{
    *s = (struct signing){.secret = {.id = {1}, .secret = {9}}, .trust.count = 1};
    memcpy(s->trust.keys[0].id, s->secret.id, KEY_ID_SIZE);
    assert_int_equal(ed25519_public(s->secret.secret, s->trust.keys[0].key), 0);
    w->config.trust = &s->trust;
    restart(w);
}

/* Sign faces:latest, which names that image. */
static void sign(struct world *w, const struct signing *s, const struct digest *image)
{
    char message[SIGNATURE_MESSAGE_MAX], text[SIGNATURE_TEXT_MAX], url[SCRATCH_MAX + 32];
    struct store *store;
    size_t len = signature_message("faces", "latest", image, message);
    assert_int_equal(signature_make(&s->secret, message, len, "c", text), 0);
    snprintf(url, sizeof url, "file://%s", w->store);
    assert_int_equal(store_open(url, &w->config.store, &store), 0);
    assert_int_equal(repository_sign(store, "faces", "latest", image, text), 0);
    store_close(store);
}

static int resolve_digest(struct world *w, const char *tag, const struct digest *image)
{
    char rest[IMAGE_REF_MAX], hex[DIGEST_HEX_SIZE];
    struct image_ref ref;
    snprintf(rest, sizeof rest, "faces%s@sha256:%s", tag, digest_hex(image, hex));
    return resolve_at(w, w->store, rest, &ref);
}

static void test_resolver__what_no_trusted_key_has_signed_is_refused(void **state)
{
    struct world w;
    struct signing s;
    struct image_ref ref;
    world_init(&w);
    serve(&w, w.store); /* known to the tables, without a signature */
    trust_one(&w, &s);
    struct digest image = w.faces.digest;
    expect_code(resolve_at(&w, w.store, "faces", &ref), -EKEYREJECTED, "it has no signature");
    expect_code(resolve_digest(&w, ":latest", &image), -EKEYREJECTED, "it has no signature");
    expect_code(resolve_digest(&w, "", &image), -EKEYREJECTED, "found by its tag");
    take_away(&w); /* then the tables stand in, and they have no signature either */
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -EKEYREJECTED, "it has no signature");
    world_release(&w);
}

/* The proof is in the tables; and it is proof only for whom it was signed by. */
static void test_resolver__a_signed_image_is_trusted_again_when_its_tag_has_moved_or_its_store_is_away(void **state)
{
    struct world w;
    struct signing s;
    struct image_fake moved;
    struct image_ref ref;
    world_init(&w);
    trust_one(&w, &s);
    struct digest image = w.faces.digest;
    sign(&w, &s, &image);
    serve(&w, w.store);
    save_store(&w, &moved, 2, "faces");
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -EKEYREJECTED, "it has no signature");
    assert_int_equal(resolve_digest(&w, ":latest", &image), 0);
    assert_int_equal(resolve_digest(&w, "", &image), 0);
    sign(&w, &s, &moved.digest); /* the newer image takes the tag, and the older one's signature stays */
    serve(&w, w.store);
    s.trust.keys[0].key[0] ^= 1;
    restart(&w);
    expect_code(resolve_digest(&w, ":latest", &moved.digest), -EKEYREJECTED, "was changed");
    expect_code(resolve_digest(&w, ":latest", &image), -EKEYREJECTED, "another image by now");
    s.trust.keys[0].key[0] ^= 1;
    take_away(&w);
    restart(&w);
    assert_int_equal(resolve_digest(&w, ":latest", &image), 0);
    assert_int_equal(resolve_digest(&w, ":latest", &moved.digest), 0);
    assert_int_equal(resolve_at(&w, w.store, "faces", &ref), 0);
    assert_true(digest_equal(&ref.digest, &moved.digest));
    s.trust.keys[0].key[0] ^= 1;
    restart(&w);
    expect_code(resolve_at(&w, w.store, "faces", &ref), -EKEYREJECTED, "was changed");
    image_fake_release(&moved);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolver__with_the_store_away_the_table_stands_in),
        cmocka_unit_test(test_resolver__what_no_table_knows_needs_the_store),
        cmocka_unit_test(test_resolver__a_store_that_answers_is_right),
        cmocka_unit_test(test_resolver__digests_and_known_manifests_touch_no_store),
        cmocka_unit_test(test_resolver__a_copy_that_is_damaged_or_older_counts_for_nothing),
        cmocka_unit_test(test_resolver__a_table_that_says_the_same_is_not_written_again),
        cmocka_unit_test(test_resolver__a_directory_that_takes_no_table_is_warned_of),
        cmocka_unit_test(test_resolver__which_http_answers_are_answers),
        cmocka_unit_test(test_resolver__a_store_that_is_away_is_asked_once),
        cmocka_unit_test(test_resolver__many_images_are_asked_for_at_once),
        cmocka_unit_test(test_resolver__what_is_handed_is_not_asked_for_and_not_trusted),
        cmocka_unit_test(test_resolver__what_no_trusted_key_has_signed_is_refused),
        cmocka_unit_test(test_resolver__a_signed_image_is_trusted_again_when_its_tag_has_moved_or_its_store_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
