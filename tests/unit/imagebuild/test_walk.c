/* Questions asked ahead, when nobody wants the answers any more. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "imagebuild/source/look_ahead.h"

enum { LOOKS = 4, PAUSE_US = 2000000 }; /* three pauses is what a busy machine has for beginning to stop */

static sem_t permits;
static _Atomic unsigned begun;
static _Atomic bool ended;

/* As long as a server takes that does not answer. */
static int look_slowly(void *arg, struct look *look)
{
    atomic_fetch_add(&begun, 1);
    sem_wait(&permits);
    return 0;
}

static int refuse(void *arg, struct look *look)
{
    return -EACCES;
}

static void *permit(void *arg)
{
    while (!atomic_load(&ended)) {
        usleep(PAUSE_US);
        sem_post(&permits);
    }
    return NULL;
}

static void test_look_ahead__stops_without_looking_at_the_rest(void **state)
{
    const struct look_ahead_config config = {.threads = 1, .work = look_slowly, .answer = refuse};
    struct look_ahead *looks = NULL;
    pthread_t thread;
    assert_int_equal(sem_init(&permits, 0, 0), 0);
    assert_int_equal(look_ahead_start(&config, &looks), 0);
    for (int i = 0; i < LOOKS; i++) {
        const struct source_ask ask = {.path = "x", .path_len = 1};
        assert_int_equal(look_ahead_ask(looks, &ask, 0), 0);
    }
    assert_int_equal(thread_start(&thread, permit, NULL), 0);
    look_ahead_stop(looks);
    assert_in_range(atomic_load(&begun), 0, LOOKS - 1);
    atomic_store(&ended, true);
    pthread_join(thread, NULL);
    sem_destroy(&permits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look_ahead__stops_without_looking_at_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
