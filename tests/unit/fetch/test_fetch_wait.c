/* Workers that look at the clock more than once, and find another time each time: it waits here before it is read. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "unit/fetch_world.h"

enum { READS = 60, GET_MS = 20, LOOK_US = 300, HANGS_S = 600 };

static _Atomic bool slow;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    char name[16] = "";
    if (slow && !pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, "granary-fetch"))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000L}, NULL);
    return __real_clock_gettime(clock, out);
}

/* Where gets take long, a read is held back for a moment. When that is over between two looks of the only worker,
 * nobody else wakes it: a read that is forgotten hangs. */
static void test_fetch_wait__what_may_go_while_the_idle_look_is_not_forgotten(void **state)
{
    struct world w;
    world_init(&w, &(struct fetch_config){.workers = 1}, 4);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = GET_MS});
    alarm(HANGS_S);
    for (unsigned i = 0; i < READS; i++) {
        expect_bytes(&w, start_one(&w, i % CHUNKS, PRIORITY_DEMAND), i % CHUNKS);
        slow = true;
    }
    slow = false;
    alarm(0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_wait__what_may_go_while_the_idle_look_is_not_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
