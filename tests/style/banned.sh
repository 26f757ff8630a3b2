#!/bin/bash
# Calls with a better form in the project or libc, and marks of unfinished work. Tests may call what they like.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

# unbounded copies; conversions without errors; static results shared by threads; shells; stack by input
BANNED='strcpy|strcat|strncat|stpcpy|sprintf|vsprintf|gets|scanf|atoi|atol|atoll|atof|strtok|asctime'
BANNED+='|ctime|gmtime|localtime|inet_ntoa|gethostbyname|readdir_r|rand|srand|tmpnam|mktemp|tempnam|alloca'
BANNED+='|system|popen'
# timed waits on CLOCK_REALTIME, which an administrator may set
BANNED+='|sem_timedwait|pthread_mutex_timedlock|pthread_rwlock_timedrdlock|pthread_rwlock_timedwrlock|mtx_timedlock|cnd_timedwait'

check_banned() {
    local files bad=0
    mapfile -t files < <(project_files '*.c' '*.h' | grep -v '^\./tests/')
    ! code_of "${files[@]}" | grep -E "(^|[^A-Za-z0-9_>.])($BANNED) ?\(" || bad=1
    mapfile -t files < <(project_files '*.c' '*.h' '*.sh' '*.txt' '*.cmake' | grep -v '/banned.sh$')
    ! grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${files[@]}" || bad=1
    return $bad
}

# Threads are started by thread_start (base/thread.h), which blocks the signals that are for the front end's own.
check_threads() {
    local files
    mapfile -t files < <(project_files '*.c' '*.h' | grep -vE '^\./(tests|bench)/|^\./cachecore/base/thread\.c$')
    ! code_of "${files[@]}" | grep -E '(^|[^A-Za-z0-9_])(pthread_create|thrd_create) ?\('
}

# A timed wait is on a condition that thread_cond_init of its own directory made monotonic.
check_timed_waits() {
    local file name bad=0 waits='pthread_cond_timedwait\(&[A-Za-z_]*(->|\.)?[A-Za-z_]+'
    while IFS=: read -r file name; do
        name=${name##*[>.&]}
        if ! grep -qE "thread_cond_init\(&([A-Za-z_]+(->|\.))?$name\)" "$(dirname "$file")"/*.c ||
            grep -E "pthread_cond_init\(&([A-Za-z_]+(->|\.))?$name,|$name = PTHREAD_COND_INITIALIZER" "$file"; then
            echo "$file: waits for a time on '$name', which thread_cond_init (base/thread.h) must make"
            bad=1
        fi
    done < <(project_files '*.c' | grep -v '^\./tests/' | xargs grep -oE "$waits" /dev/null)
    return $bad
}

# operations HEADER KIND: the names of the functions in its struct KIND_ops, with a bar between them
operations() {
    sed -n "/^struct $2_ops {/,/^};/s/^[^/]*(\*\([a-z_]*\))(.*/\1/p" "$GRANARY_SOURCE/$1" | paste -sd'|'
}

# The operations of stores and sources are called by store_*() and source_*(), which check what all of them must keep:
# not through the table, and not through a local variable that points to it.
check_hops() {
    local files bad=0 names
    names="$(operations cachecore/store/store.h store)|$(operations imagebuild/source/source.h source)"
    mapfile -t files < <(project_files '*.c' '*.h' | grep -vE '^\./(cachecore/store/store|imagebuild/source/source)\.[ch]$')
    ! code_of "${files[@]}" | grep -E "(^|[^A-Za-z0-9_])ops->($names) ?\(" || bad=1
    ! code_of "${files[@]}" | grep -E "struct (store|source)_ops \*" || bad=1
    return $bad
}

# Memory that is short is said in one sentence, by error_no_memory().
check_no_memory() {
    local files
    mapfile -t files < <(project_files '*.c' '*.h' | grep -v '^\./cachecore/base/error\.c$')
    ! grep -nE 'error_set\((-ENOMEM, ".*out of memory|.*"([a-z]+: )?out of memory")' "${files[@]}"
}

can_fail check_hops a.c 'int f(void) { return s->ops->get(s, key, 0, 1, sink, arg); }' 'ops->get'
can_fail check_hops a.c 'int f(void) { return ops->list_after(s, "", key, visit, arg); }' 'ops->list_after'
can_fail check_hops a.c 'bool f(void) { return s->ops->name_origin(s, e, out, size); }' 'ops->name_origin'
can_fail check_hops a.c 'bool f(void) { return s->ops->is_own(s, key, 0); }' 'ops->is_own'
can_fail check_hops a.c 'const struct store_ops *o = s->ops;' 'store_ops'
can_fail check_no_memory a.c 'int f(void) { return error_set(rc, "walk: out of memory"); }' 'out of memory'
can_fail check_no_memory a.c 'int f(void) { return error_set(-ENOMEM, "walk: out of memory"); }' 'out of memory'
can_fail check_threads imagebuild/a.c 'int rc = pthread_create(&t, NULL, work, w);' pthread_create
can_fail check_timed_waits a.c 'void f(void) { pthread_cond_timedwait(&f->ended, &f->lock, &until); }' ended
can_fail check_banned a.c 'void f(void) { strcpy(a, b); }' strcpy
can_fail check_banned a.c 'int x = atoi (s);' atoi
can_fail check_banned a.c '/* FIXME */' FIXME
check_banned
check_hops
check_no_memory
check_threads
check_timed_waits
