/* Linked to unit tests that are SINGLE_THREADED in CMakeLists.txt, in place of pthread_create: the thread sanitizer
 * does not run them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    fprintf(stderr,
            "FAILED: this test starts a thread: take SINGLE_THREADED from its line in tests/unit/CMakeLists.txt\n");
    abort();
}
