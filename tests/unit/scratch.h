/* A directory of a test's own, removed with everything in it. */
#ifndef GRANARY_TESTS_UNIT_SCRATCH_H
#define GRANARY_TESTS_UNIT_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

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

#endif
