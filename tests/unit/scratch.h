/* A directory of a test's own, removed with everything in it. */
#ifndef GRANARY_TESTS_UNIT_SCRATCH_H
#define GRANARY_TESTS_UNIT_SCRATCH_H

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "unit/cmocka_all.h"

enum { SCRATCH_MAX = 128 };

static inline void scratch_make(char path[SCRATCH_MAX])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, SCRATCH_MAX, "%s/granary-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static inline void scratch_remove(const char *path)
{
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Let no file grow beyond `max` bytes (EFBIG, as on a full disk), until scratch_unlimit with what this returned. */
static inline struct rlimit scratch_limit(rlim_t max)
{
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    return old;
}

static inline void scratch_unlimit(const struct rlimit *old)
{
    assert_int_equal(setrlimit(RLIMIT_FSIZE, old), 0);
    signal(SIGXFSZ, SIG_DFL);
}

#endif
