# shellcheck shell=bash
# Sourced by the tests of `granary mount` in the guest, after tests/lib.sh.
vm=$GRANARY_SOURCE/tests/vm/kit/vm.sh

# The Debian suite whose kernel the guest boots; a test sets it first. Empty: that of this machine.
suite=${suite:-}
vm_dir=$GRANARY_BUILD/vm${suite:+-$suite}

# prepare_guest: the kit is there; PROGRAMS are the words of `vm.sh run` that bring the installed programs along
prepare_guest() {
    local nbd ublk granary
    "$vm" prepare "$vm_dir" ${suite:+"$suite"}
    DESTDIR=$W/installed cmake --install "$GRANARY_BUILD" >"$W/install.log"
    nbd=$(cd "$W/installed" && find . -name granary-nbd)
    ublk=$(cd "$W/installed" && find . -name granary-ublk)
    granary=$(cd "$W/installed" && find . -path '*/bin/granary')
    [ -n "$nbd" ] && [ -n "$ublk" ] && [ -n "$granary" ] || fail "cmake --install did not install the programs"
    export PROGRAMS=(--bin "$GRANARY" --bin "$NBD"
        --bin "$UBLK" --file "$W/installed/$ublk:/${ublk#./}"
        --file "$W/installed/$granary:/${granary#./}" --file "$W/installed/$nbd:/${nbd#./}")
}

# systemd_test_unit: a unit for a systemd in the guest, which runs /test.sh into /test.out and ends with /test.end
systemd_test_unit() {
    cat <<'UNIT'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh /test.sh
ExecStopPost=/bin/touch /test.end
StandardOutput=file:/test.out
StandardError=file:/test.out
UNIT
}

# In the guest. until_true COMMAND: five minutes at least for it to succeed
until_true() {
    local i=0
    until eval "$1"; do
        i=$((i + 1))
        [ $i -lt 600 ] || { echo "waited in vain for: $1"; exit 1; }
        sleep 0.5
    done
}
