/* cmocka wants these four headers before its own. */
#ifndef GRANARY_TESTS_UNIT_CMOCKA_ALL_H
#define GRANARY_TESTS_UNIT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
