# shellcheck shell=bash
# For tests that kill granary at its steps: system calls that make or change something outside the process; strace kills
# it when it makes its N-th.

needs_fuse
command -v strace >"$W/null" || skip "no strace here (apt-get install strace)"
strace -o "$W/trace" true 2>"$W/null" || skip "this container does not let processes be traced"

dir=$W/mnt
extra_cleanup() { "$GRANARY" umount --force "$dir" 2>/dev/null; }
mkdir "$dir" "$W/tree"
head -c 300000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"

# What a kill may leave behind: of these the whole process tree of this test's mounts is made.
# shellcheck disable=SC2034 # for who sources this
calls=(mkdir rename unlink rmdir mount umount2 ioctl flock "clone,clone3,fork,vfork" "kill,pidfd_send_signal")

# With a cache of its own: the server's directory has a name of its options, which is of this test alone on the machine.
mounting=("$GRANARY" mount --fuse --warm none --readahead 1M --cache "$W/cache:16M" "$W/store/set" "$dir")
mount_it() { "${mounting[@]}" "$@"; }
# alive: this test's servers and fronts, whose command lines name the image
alive() { pgrep -f -- "$W/store/set" || true; }
check_nothing_left() {
    ! grep -F " $W/" /proc/self/mountinfo || fail "$1: a mount is left"
    wait_for 60 no_loop_on "$STATE"
    [ ! -e "$STATE" ] || fail "$1: $STATE is left: $(ls "$STATE")"
    [ ! -e "$RUN" ] || fail "$1: $RUN is left: $(ls "$RUN")"
    none_alive() { [ -z "$(alive)" ]; }
    wait_for 60 none_alive
}

mount_it --json >"$W/mount.json"
STATE=$(dirname "$(jq -r .control "$W/mount.json")")
RUN=$(grep -lsF "\"$dir\"" /run/granary/*/state.json | xargs dirname || true) # others come and go meanwhile
[ -e "$RUN" ] || fail "the mount has no state"
"$GRANARY" umount "$dir"
check_nothing_left "before any kill"

# check_healed WHAT N: a mount works, and leaves nothing. Every second time the next call is an umount, which may find
# that there is nothing.
check_healed() {
    if (($2 % 2)) || mountpoint -q "$dir"; then
        "$GRANARY" umount "$dir" 2>"$W/err" || fail "umount after $1: $(cat "$W/err")"
    fi
    mount_it >"$W/out" 2>"$W/err" || fail "mount after $1: $(cat "$W/err")"
    cmp "$W/tree/file" "$dir/file"
    "$GRANARY" umount "$dir" || fail "the second umount after $1"
    check_nothing_left "$1"
}

# killed CALL N COMMAND...: killed at its N-th such call, or (1) it came to its end without one
killed() {
    local call=$1 n=$2 status=0
    shift 2
    strace -qq -o "$W/trace" -e "trace=$call" -e "inject=$call:signal=KILL:when=$n" "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status -ge 128 ] || [ $status = 0 ] || fail "killed at $call $n it ended by itself: $(cat "$W/err")"
    [ $status != 0 ]
}
