#!/bin/bash
# The tool of the tests of a failing disk does what its head says: each fault, where it is named, while it is on, and
# nothing else; and a filesystem without faults is as the one behind it.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

back=$W/back dir=$W/dir
faulty "$dir" "$back"
head -c 1000000 /dev/urandom >"$W/bytes"

# probe NAME: opens $dir/NAME and prints what a read, a direct write, an fsync and a reservation say: ok or the errno
probe() { python3 "$W/probe.py" "$dir/$1"; }
cat >"$W/probe.py" <<'PY'
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def reserve(fd, mode, off, n):
    if libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(n)):
        raise OSError(ctypes.get_errno(), "")
def say(what, call):
    try:
        call()
        print(what, "ok", end=" ")
    except OSError as e:
        print(what, errno.errorcode[e.errno], end=" ")
page = mmap.mmap(-1, 4096)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
say("read", lambda: os.preadv(fd, [page], 0))
say("write", lambda: os.pwritev(fd, [page], 4096))
say("fsync", lambda: os.fsync(fd))
say("reserve", lambda: reserve(fd, 0, 0, 65536))
say("punch", lambda: reserve(fd, 3, 32768, 4096))
print()
PY
all_ok="read ok write ok fsync ok reserve ok punch ok "
expect() { [ "$1" = "$2" ] || fail "${3:-}: '$1' instead of '$2'"; }
fresh() { echo off >"$dir/.faults"; for f in data records; do cp "$W/bytes" "$back/$f"; done; }

echo "== without faults"
cp "$W/bytes" "$dir/data"
cmp "$W/bytes" "$back/data"
dd if="$dir/data" of="$W/copy" bs=4096 iflag=direct status=none
cmp "$W/bytes" "$W/copy"
expect "$(probe data)" "$all_ok" "no fault"
mv "$dir/data" "$dir/moved"
mkdir "$dir/sub"
[ "$(ls "$dir")" = "moved
sub" ] || fail "the listing is $(ls "$dir")"
truncate -s 4096 "$dir/moved"
[ "$(stat -c %s "$back/moved")" = 4096 ] || fail "not truncated"
exec 5<>"$dir/moved"
rm "$dir/moved"
rmdir "$dir/sub"
expect "$(ls -A "$back")" "" "what was removed"
head -c 4096 <&5 | cmp -n 4096 - "$W/bytes" || fail "an unlinked open file cannot be read"
exec 5<&-
exec 5>"$dir/lock" 6>"$dir/lock"
flock -n 5 || fail "cannot lock"
! flock -n 6 || fail "locked twice"
exec 5>&- 6>&-

echo "== errors, in one file only or in all"
for fault in "read-eio:read EIO write ok fsync ok reserve ok punch ok " \
    "write-eio:read ok write EIO fsync EIO reserve ok punch ok " \
    "write-enospc:read ok write ENOSPC fsync ok reserve ENOSPC punch ENOSPC "; do
    fresh
    echo "${fault%%:*} data" >"$dir/.faults"
    expect "$(probe data)" "${fault#*:}" "${fault%%:*}"
    expect "$(probe records)" "$all_ok" "${fault%%:*} of another file"
    grep -q "^${fault%%:*} data [1-9]" "$dir/.faults" || fail "not counted: $(cat "$dir/.faults")"
    echo off >"$dir/.faults"
    expect "$(cat "$dir/.faults")" "" off
    expect "$(probe data)" "$all_ok" "${fault%%:*} that is off"
    echo "${fault%%:*}" >"$dir/.faults"
    expect "$(probe records)" "${fault#*:}" "${fault%%:*} of all"
done
! echo "nonsense data" >"$dir/.faults" 2>"$W/null" || fail "an unknown fault is taken"

echo "== read-only: also for those who have it open"
fresh
(exec 5<>"$dir/data"; echo readonly >"$dir/.faults"; ! echo x >&5) 2>"$W/err" || fail "a file open before can be written"
grep -q "Read-only" "$W/err" || fail "said: $(cat "$W/err")"
cmp "$W/bytes" "$dir/data"
for refused in "touch $dir/new" "rm $dir/data" "mkdir $dir/sub" "mv $dir/data $dir/x" "truncate -s 0 $dir/data"; do
    ! $refused 2>"$W/err" || fail "done in spite of read-only: $refused"
    grep -q "Read-only" "$W/err" || fail "$refused said: $(cat "$W/err")"
done

echo "== every third read has one wrong bit"
fresh
echo "read-flip=3 data" >"$dir/.faults"
wrong=""
for i in 1 2 3 4 5 6; do
    dd if="$dir/data" of="$W/piece" bs=4096 count=1 skip=$i iflag=direct status=none
    head -c 4096 <(tail -c +$((i * 4096 + 1)) "$W/bytes") >"$W/right"
    wrong+=" $({ cmp -l "$W/piece" "$W/right" || true; } | wc -l)"
    cmp -n 4096 -i $((i * 4096)) "$dir/records" "$W/bytes"
done
expect "$wrong" " 0 0 1 0 0 1" "wrong bytes"

echo "== hanging: many reads hang, nothing else does, and all go on"
fresh
echo "read-hang data" >"$dir/.faults"
readers=()
for i in $(seq 40); do
    dd if="$dir/data" of="$W/hung-$i" bs=64K iflag=direct status=none &
    readers+=($!)
done
wait_for 60 grep -q "^read-hang data 40$" "$dir/.faults"
timeout 60 cmp "$dir/records" "$W/bytes"
timeout 60 dd if="$W/bytes" of="$dir/data" bs=4096 count=1 oflag=direct conv=notrunc status=none
timeout 60 ls "$dir" >"$W/null"
for i in "${readers[@]}"; do kill -0 "$i" || fail "a reader does not hang"; done
echo off >"$dir/.faults"
for i in $(seq 40); do
    wait "${readers[$((i - 1))]}" || fail "a reader failed"
    cmp "$W/hung-$i" "$W/bytes"
done
echo "write-hang" >"$dir/.faults"
dd if="$W/bytes" of="$dir/data" bs=4096 seek=8 count=1 oflag=direct conv=notrunc status=none &
writer=$!
wait_for 60 grep -q "^write-hang 1$" "$dir/.faults"
timeout 60 cmp "$dir/records" "$W/bytes"
kill -0 $writer || fail "the writer does not hang"
echo off >"$dir/.faults"
wait $writer

echo "== it ends although something hangs"
echo "read-hang" >"$dir/.faults"
(! cat "$dir/data" >"$W/null" 2>&1) &
reader=$!
wait_for 60 grep -q "^read-hang 1$" "$dir/.faults"
kill "$FAULTFS_PID"
wait_for 60 bash -c "! kill -0 $FAULTFS_PID"
wait $reader || fail "a read of what is gone did not fail"
