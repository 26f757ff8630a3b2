/* Shared cache proxies behind a name, whose addresses are the members: addresses that come and go, a name service that
 * fails or is silent, and names that are refused.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "unit/l2_world.h"

/* A name service: what it says of any name. */
struct service {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    const char *addresses; /* separated by spaces */
    int code;              /* else: the look-up fails */
    bool silent;           /* look-ups wait */
    unsigned begun, ended;
};

static struct service service = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int look_up(void *arg, const char *host, struct addresses *out)
{
    struct service *s = arg;
    SCOPED_LOCK(&s->lock);
    s->begun++;
    pthread_cond_broadcast(&s->changed);
    while (s->silent)
        pthread_cond_wait(&s->changed, &s->lock);
    int rc = s->code ? error_set(s->code, "%s is unknown", host) : 0;
    for (const char *a = s->addresses; !rc && *a; a += strcspn(a, " "), a += *a == ' ') {
        struct address address;
        snprintf(address.text, sizeof address.text, "%.*s", (int)strcspn(a, " "), a);
        assert_int_equal(vec_push(out, address), 0);
    }
    s->ended++;
    pthread_cond_broadcast(&s->changed);
    return rc;
}

/* Change what it says, and wait until a look-up that began afterwards has ended. */
static void say(const char *addresses, int code)
{
    SCOPED_LOCK(&service.lock);
    service.addresses = addresses;
    service.code = code;
    service.silent = false;
    pthread_cond_broadcast(&service.changed);
    for (unsigned begun = service.begun; service.ended <= begun;)
        pthread_cond_wait(&service.changed, &service.lock);
}

static void open_name(struct world *w, unsigned answer_ms)
{
    const struct follow_config config = {.lists = (const char *const[]){"dns+http://all.caches:80/faces/"},
                                         .n = 1,
                                         .open = open_counted,
                                         .open_arg = w,
                                         .look_up = look_up,
                                         .look_up_arg = &service,
                                         .name_ms = 1,
                                         .answer_ms = answer_ms};
    open_followed(w, &config);
}

/* The members' URLs, in their order. */
static void expect_members(struct world *w, const char *urls)
{
    CLEANUP_BYTES text = BYTES_INIT(10000);
    CLEANUP(store_l2_reports_release) struct store_l2_reports r;
    store_proxies_reports(w->proxies, &r);
    for (size_t i = 0; i < r.len; i++)
        assert_int_equal(bytes_printf(&text, "%s%s", i ? " " : "", r.items[i].url), 0);
    assert_string_equal(bytes_string(&text), urls);
}

static void test_store_l2_names__the_addresses_of_a_name_are_the_members(void **state)
{
    static struct world w;
    begin(&w, 4);
    service = (struct service){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .code = -EAGAIN};
    service.addresses = "";
    open_name(&w, 60000);
    wait_for_list(&w, 0, true); /* no answer yet: the store is read */
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 1);

    /* any order, one twice, and the other family's are the same proxies */
    say("10.0.0.2 [fd00::7] 10.0.0.0 10.0.0.2", 0);
    wait_for_list(&w, 2, false);
    expect_members(&w, "http://10.0.0.0:80/faces http://10.0.0.2:80/faces");
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 1);

    say("10.0.0.3 10.0.0.0", 0);
    wait_for_list(&w, 2, false);
    for (uint64_t limit = clock_now_ms() + LIMIT_MS; atomic_load(&w.open[2]);)
        assert_true(clock_now_ms() < limit);
    expect_members(&w, "http://10.0.0.0:80/faces http://10.0.0.3:80/faces");

    /* no answer, and an empty one, change nothing */
    say("10.0.0.1", -EAGAIN);
    wait_for_list(&w, 2, true);
    say("", 0);
    wait_for_list(&w, 2, true);
    expect_members(&w, "http://10.0.0.0:80/faces http://10.0.0.3:80/faces");
    say("10.0.0.1", 0);
    wait_for_list(&w, 1, false);
    end(&w);
}

static void test_store_l2_names__a_silent_name_service_holds_nobody_up(void **state)
{
    static struct world w;
    begin(&w, 2);
    service = (struct service){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    service.addresses = "10.0.0.0";
    open_name(&w, 1);
    wait_for_list(&w, 1, false);
    {
        SCOPED_LOCK(&service.lock);
        service.silent = true;
    }
    wait_for_list(&w, 1, true);
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.fakes[0], FAKE_GET), 1);
    unsigned begun;
    {
        SCOPED_LOCK(&service.lock);
        begun = service.begun;
        assert_int_equal(begun, service.ended + 1); /* one look-up at a time, however long it takes */
    }
    end(&w); /* does not wait for it */
    SCOPED_LOCK(&service.lock);
    assert_int_equal(service.begun, begun);
    service.silent = false;
    pthread_cond_broadcast(&service.changed);
    while (service.ended < begun)
        pthread_cond_wait(&service.changed, &service.lock);
}

static void test_store_l2_names__a_name_has_one_form(void **state)
{
    static const char *const wrong[] = {
        "dns+https://all.caches/faces", "dns+cache:8080",    "dns+http://",
        "dns+http://a b/faces",         "dns+http://[::1]/", "dns+http://all.caches:/x"};
    static struct world w;
    struct name_url name;
    assert_int_equal(name_url_parse("dns+https://all.nodes:9465/faces", true, &name), 0); /* among nodes alone */
    assert_string_equal(name.scheme, "https://");
    assert_string_equal(name.host, "all.nodes");
    assert_string_equal(name.rest, ":9465/faces");
    name_url_release(&name);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        struct store_proxies *p;
        const struct follow_config config = {.lists = &wrong[i], .n = 1, .open = open_counted, .open_arg = &w};
        assert_int_equal(follow_open(&config, &p), -EINVAL);
        assert_non_null(strstr(error_text(), "dns+"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_l2_names__the_addresses_of_a_name_are_the_members),
        cmocka_unit_test(test_store_l2_names__a_silent_name_service_holds_nobody_up),
        cmocka_unit_test(test_store_l2_names__a_name_has_one_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
