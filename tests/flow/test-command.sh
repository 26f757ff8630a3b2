#!/bin/bash
# What ./test makes of tests that pass, fail, fail once, are skipped or are not there. The tests are made up here: a
# `cmake` of this test's own writes them into the build trees.
. "$(dirname "$0")/../lib.sh"

mkdir -p "$W/tree/tools" "$W/bin"
cp "$GRANARY_SOURCE/test" "$W/tree/test"
echo 'packages_ensure() { return 0; }' >"$W/tree/tools/packages.sh"
cat >"$W/bin/cmake" <<'CMAKE'
#!/bin/bash
# cmake --preset NAME -B DIR -D...: what ./test asked for, and the tests of that tree
[ "$1" = --preset ] || exit 0
mkdir -p "$4"
echo "$*" >>"$W/configured"
cp "$W/tests.$2" "$4/CTestTestfile.cmake" 2>/dev/null || : >"$4/CTestTestfile.cmake"
CMAKE
chmod +x "$W/bin/cmake"
export W PATH=$W/bin:$PATH

# test_is TREE NAME LABELS COMMAND: one more test of that tree
test_is() {
    printf 'add_test("%s" "/bin/bash" "-c" [==[%s]==])\nset_tests_properties("%s" PROPERTIES LABELS "%s" SKIP_RETURN_CODE 77)\n' \
        "$2" "$4" "$2" "$3" >>"$W/tests.$1"
}

# every_part: one test for each that passes, and a long one that fails
every_part() {
    rm -f "$W"/tests.* "$W"/once.*
    local part
    for part in style flow vm release; do test_is release "$part/good" $part true; done
    for part in asan:unit tsan:tsan fuzz:fuzz; do test_is "${part%:*}" "${part#*:}/good" "${part#*:}" true; done
    test_is release flow/endless "flow;long" false
}

# run_test STATUS ARG...: ./test ARG... exits with STATUS; its output is in $W/out
run_test() {
    local expected=$1 status=0
    shift
    "$W/tree/test" --no-install "$@" >"$W/out" 2>&1 || status=$?
    [ $status = "$expected" ] || { cat "$W/out"; fail "./test $*: exit $status, not $expected"; }
}
said() { grep -xE -- "$1" "$W/out" >"$W/null" || { cat "$W/out"; fail "not said: $1"; }; }
not_said() { ! grep -E -- "$1" "$W/out" || fail "said: $1"; }
# summary TEXT FAILED: one summary of ctest's, near the end
summary() {
    [ "$(grep -c ' tests passed, ' "$W/out")" = 1 ] || { cat "$W/out"; fail "not one summary"; }
    said "$1 tests failed out of $2"
    [ "$(sed '1,/ tests passed, /d' "$W/out" | grep -cE '^(SKIPPED|UNSTABLE|The ten slowest)')" = 0 ] || { cat "$W/out"; fail "more below it"; }
}

# All pass; what decides which tests there are is asked for, in trees of its own.
every_part
run_test 0
summary '100% tests passed, 0' 5
said 'The ten slowest:'
not_said 'flow/endless|release/good|fuzz/good'
for tree in release asan tsan; do
    grep -E -- "^--preset $tree -B build-test/$tree -DGRANARY_TESTS=ON .*-DGRANARY_LONG_TESTS=OFF" "$W/configured" >"$W/null" ||
        { cat "$W/configured"; fail "$tree"; }
done
[ -z "$(cd "$W/tree" && find . -path './build*' ! -path './build-test*')" ] || fail "another build tree was touched"

# One part by itself is in full, and says when it fails.
run_test 1 --part flow
summary '50% tests passed, 1' 2
said '.*flow/endless \(Failed\)'
run_test 0 --part tsan
summary '100% tests passed, 0' 1
run_test 0 --part fuzz
summary '100% tests passed, 0' 1
run_test 2 --part none
said 'test: no part none; .*'

# Only what the short form leaves out
run_test 1 --long --part flow
summary '0% tests passed, 1' 1
said '.*flow/endless \(Failed\)'
run_test 1 --long
said 'test: part style has no tests'

# A part without tests fails, and so does a name that no test has.
every_part
rm "$W/tests.tsan"
run_test 1
said 'test: part tsan has no tests'
run_test 1 --part tsan
said 'test: part tsan has no tests'
run_test 1 -R nothing-is-called-so
said 'test: no test matches nothing-is-called-so.*'
run_test 0 -R unit/
summary '100% tests passed, 0' 1

# What fails once passes with --retry only, and loudly; its first output is kept.
every_part
once='[ -e $W/once.NAME ] && exit 0; : >$W/once.NAME; echo "the first of NAME"; exit 1'
test_is release flow/once flow "${once//NAME/flow}"
test_is release vm/skipped vm 'echo no such machine; exit 77'
run_test 1
summary '86% tests passed, 1' 7
said 'SKIPPED vm/skipped: no such machine'
rm "$W"/once.*
run_test 0 --retry
summary '100% tests passed, 0' 7
said 'UNSTABLE flow/once: failed at first, passed alone .*'
not_said 'tests FAILED'
grep -x 'the first of flow' "$W/tree/build-test/test.log" >"$W/null" || fail "the first output is not in the log"

# What fails twice stays a failure beside one that does not, and reports of sanitizers are never run again.
test_is release flow/never flow 'echo more of it >>$W/never; exit 1'
test_is asan unit/report unit "${once//NAME/asan}; exit 1"
sed -i 's/the first of asan/ERROR: AddressSanitizer: use after free/' "$W/tests.asan"
test_is tsan tsan/race tsan "${once//NAME/race}"
sed -i 's/the first of race/WARNING: ThreadSanitizer: data race/' "$W/tests.tsan"
rm -f "$W"/once.*
run_test 1 --retry
summary '70% tests passed, 3' 10
said 'UNSTABLE flow/once: .*'
said 'NOT RUN AGAIN unit/report: .*'
said 'NOT RUN AGAIN tsan/race: .*'
said '.*flow/never \(Failed\)'
said '.*unit/report \(Failed\)'
said '.*tsan/race \(Failed\)'
! sed '1,/ tests passed, /d' "$W/out" | grep flow/once || fail "flow/once is listed as failed"
[ "$(wc -l <"$W/never")" = 2 ] || fail "run $(wc -l <"$W/never") times"

# A test that runs ctest itself and fails: its summary is not taken for ours.
every_part
test_is release flow/inner flow 'echo "100% tests passed, 0 tests failed out of 3"; echo "behind it"; exit 1'
run_test 1 --retry
[ "$(tail -n 20 "$W/out" | grep ' tests passed, ')" = '83% tests passed, 1 tests failed out of 6' ] || { cat "$W/out"; fail "another summary"; }
said 'behind it'
