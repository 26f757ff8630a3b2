#!/bin/bash
# vm.sh: run a script in a throw-away VM with Debian's cloud kernel: nbd, erofs, ext4, overlay, loop, fuse, cgroup2.
#
#   vm.sh prepare DIR [SUITE]               once: the kernel and a base initramfs into DIR (apt; nothing is installed);
#       SUITE: that of another Debian suite, by apt lists of its own in DIR (trixie: Linux 6.12), and with ublk, which
#       mounts take before nbd
#   vm.sh run [options] DIR SCRIPT [ARG...]
#       boots a prepared DIR (seconds, emulated), runs `sh SCRIPT ARG...` as root with its output on stdout, exits with
#       its status. 124: timed out. 125: the guest died before the script ended (the console's tail is on stderr).
#     --bin PATH          a program or library, copied in at its own path with the libraries it needs; may repeat
#     --file HOST:GUEST   a file or directory copied in; may repeat
#     --env NAME=VALUE    exported to the script; may repeat
#     --hook PROGRAM      `host WORDS...` in the guest runs PROGRAM here with WORDS as one line on its stdin
#     --out DIR           what the script leaves in /out is copied into DIR
#     --timeout SECONDS (120)   --mem MB (1024)   --cpus N (2)
#
# In the guest: busybox, nbd-client, a tmpfs root, this machine at 10.0.2.2 (its 127.0.0.1 too), nbd0..nbd7.
# The guest ends by sysrq, not by a shutdown: a hung nbd device cannot hold it.
set -euo pipefail

MODULES="crc32c-intel libcrc32c virtio_pci virtio_net virtio_console erofs crc32c_generic ext4 overlay loop fuse nbd"
. "$(dirname "$(readlink -f "$0")")/../../../tools/packages.sh"

die() { echo "vm.sh: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

# copy_bin ROOT PATH: an ELF file with every library it needs
copy_bin() {
    local f
    for f in "$2" $(ldd "$2" 2>/dev/null | grep -o '/[^ ]*'); do
        [ ! -e "$1$f" ] || continue
        mkdir -p "$1$(dirname "$f")"
        cp -L "$f" "$1$f"
    done
}

pack() { (cd "$1" && find . | cpio -o -H newc --quiet -R 0:0); }

prepared() { [ -s "$1/vmlinuz" ] && [ -s "$1/base.cpio" ] && [ "$1/base.cpio" -nt "$0" ]; }

# suite_options SUITE: $apt becomes the options by which apt knows that suite, from the mirror that this machine uses
suite_options() {
    local site
    # shellcheck disable=SC2016
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 ~ /^[a-z]+$/ && !n++ {print $1}')
    mkdir -p apt/lists/partial apt/cache/archives/partial
    echo "deb ${site:-http://deb.debian.org/debian} $1 main" >apt/sources.list
    apt=(-o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$PWD/apt/sources.list" -o "Dir::State::lists=$PWD/apt/lists"
        -o "Dir::Cache=$PWD/apt/cache" -o Dir::State::status=/dev/null)
    apt-get "${apt[@]}" update -q >apt.log 2>&1 || die "cannot read the lists of $1 (see $PWD/apt.log)"
}

# fetch_kernel [SUITE]: the kernel's package is unpacked, never installed
fetch_kernel() {
    local package apt=()
    [ -z "${1:-}" ] || suite_options "$1"
    package=$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ && !n++ {print $2}')
    if [ -z "$package" ]; then
        apt-get "${apt[@]}" update -q >apt.log 2>&1 || die "apt-get update failed (see $PWD/apt.log)"
        package=$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ && !n++ {print $2}')
    fi
    apt-get "${apt[@]}" download -q "$package" >>apt.log 2>&1 ||
        { apt-get "${apt[@]}" update -q && apt-get "${apt[@]}" download -q "$package"; } >>apt.log 2>&1 ||
        die "cannot download ${package:-linux-image-cloud-amd64} (see $PWD/apt.log)"
    rm -rf kernel
    dpkg -x "$package"_*.deb kernel
    rm "$package"_*.deb
    cp kernel/boot/vmlinuz-* vmlinuz.part
    # newer suites have the modules below usr/lib, compressed by xz
    [ -d kernel/lib/modules ] || { mkdir -p kernel/lib && mv kernel/usr/lib/modules kernel/lib/; }
    find kernel/lib/modules -name '*.ko.xz' -exec xz -d {} +
    rm -r kernel/boot kernel/usr
    depmod -b kernel "$(basename kernel/lib/modules/*)"
    mv vmlinuz.part vmlinuz
}

# copy_modules ROOT: MODULES and what they depend on, with mods/order in loading order
copy_modules() {
    local version ko order
    version=$(basename kernel/lib/modules/*)
    order=$(for ko in $MODULES; do
        modprobe -d "$PWD/kernel" -S "$version" --show-depends "$ko" 2>/dev/null | awk '$1 == "insmod" {print $2}'
    done | awk '!seen[$0]++')
    for ko in $order; do
        cp "$ko" "$1/mods/"
        basename "$ko"
    done >"$1/mods/order"
}

write_init() {
    cat >"$1/init" <<'INIT'
#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mount -t cgroup2 cgroup2 /sys/fs/cgroup
while read -r ko; do
    case $ko in nbd.ko) insmod /mods/$ko nbds_max=8;; *) insmod /mods/$ko;; esac
done </mods/order
ifconfig lo 127.0.0.1 up; ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up; route add default gw 10.0.2.2
for i in $(seq 600); do [ -e /dev/vport0p1 ] && break; sleep 0.1; done
[ -f /vm.env ] && . /vm.env
eval "set -- $(cat /vm.args)"; cd /
sh /vm.script "$@" </dev/null >/dev/vport0p1 2>&1
rc=$?
[ -n "$(ls -A /out)" ] && tar cf /dev/vport0p2 -C /out .
echo "<0>VM-EXIT $rc" >/dev/kmsg   # by the kernel: what a tty still buffers is lost in the reset
echo b >/proc/sysrq-trigger
INIT
    printf '#!/bin/sh\necho "$*" | nc 10.0.2.100 1\n' >"$1/bin/host"
    chmod +x "$1/init" "$1/bin/host"
}

prepare() {
    local root applet missing
    ! prepared "$1" || return 0
    missing=$(packages_missing vm)
    [ -z "$missing" ] || die "missing packages: ${missing//$'\n'/ }"
    mkdir -p "$1"
    exec 8>"$1/lock"
    flock 8 # two tests may prepare at once
    ! prepared "$1" || return 0
    cd "$1"
    [ -s vmlinuz ] || fetch_kernel "${2:-}"
    [ -z "${2:-}" ] || MODULES="ublk_drv $MODULES"
    root=$PWD/root
    rm -rf root
    mkdir -p root/{bin,sbin,usr/bin,usr/sbin,proc,sys,dev,mnt,tmp,run,out,etc,mods,root,var}
    cp /bin/busybox root/bin/busybox
    for applet in $(/bin/busybox --list); do [ "$applet" = busybox ] || ln -sf busybox "root/bin/$applet"; done
    copy_bin "$root" "$(command -v nbd-client || echo /usr/sbin/nbd-client)"
    echo 'root:x:0:0:root:/root:/bin/sh' >root/etc/passwd
    echo 'root:x:0:' >root/etc/group
    echo "127.0.0.1 localhost" >root/etc/hosts
    copy_modules "$root"
    write_init "$root"
    pack root >base.cpio.part
    rm -rf root
    mv base.cpio.part base.cpio
}

# add_bin ROOT PATH: also the link itself where PATH is one
add_bin() {
    local real
    real=$(readlink -f "$2")
    copy_bin "$1" "$real"
    [ "$real" = "$2" ] || { mkdir -p "$1$(dirname "$2")"; ln -sf "$real" "$1$2"; }
}

boot() {
    local timeout=$1 mem=$2 cpus=$3 network=$4 rc=0
    mkfifo "$w/stdin"
    exec 9<>"$w/stdin" # a stdin that never ends: at its end qemu would close the port
    # without cx16: Linux 6.12 crashes at random in kmalloc under QEMU's emulation
    # no_timer_check: a machine too busy to tick ten times in the kernel's test of it made the guest panic at boot
    timeout -k 5 "$timeout" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max,-cx16 -m "$mem" -smp "$cpus" \
        -nodefaults -no-reboot -display none -kernel "$dir/vmlinuz" -initrd "$w/initrd" \
        -append "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off no_timer_check" -serial "file:$w/console" \
        -device virtio-serial-pci -chardev stdio,id=o,signal=off -device virtserialport,chardev=o \
        -chardev "file,id=t,path=$w/out.tar" -device virtserialport,chardev=t \
        -netdev "user,id=n$network" -device virtio-net-pci,netdev=n,romfile= <&9 || rc=$?
    if [ $rc = 124 ] || [ $rc = 137 ]; then
        echo "vm.sh: timed out after $timeout s; console:" >&2
        tail -5 "$w/console" >&2
        exit 124
    fi
}

run() {
    local timeout=120 mem=1024 cpus=2 out="" network="" root rc
    w=$(mktemp -d)
    trap 'rm -rf "$w"' EXIT
    root=$w/root
    mkdir -p "$root"
    echo "export GRANARY_CACHE=none" >"$root/vm.env" # memory is its disk
    : >"$root/vm.args"
    while [ $# -gt 1 ]; do
        case $1 in
            --bin) add_bin "$root" "$2";;
            --file) mkdir -p "$root$(dirname "${2#*:}")"; cp -aT "${2%%:*}" "$root${2#*:}";;
            --env) printf 'export %s=%q\n' "${2%%=*}" "${2#*=}" >>"$root/vm.env";;
            --hook) network+=",guestfwd=tcp:10.0.2.100:1-cmd:$(readlink -f "$2")";;
            --out) out=$2;;
            --timeout) timeout=$2;;
            --mem) mem=$2;;
            --cpus) cpus=$2;;
            --*) die "unknown option $1";;
            *) break;;
        esac
        shift 2
    done
    [ $# -ge 2 ] || usage
    prepared "$1" || die "$1 is not prepared; run: vm.sh prepare $1"
    dir=$1
    cp -L "$2" "$root/vm.script"
    shift 2
    [ $# = 0 ] || printf '%q ' "$@" >"$root/vm.args"
    pack "$root" >"$w/extra.cpio"
    rm -rf "$root"
    cat "$dir/base.cpio" "$w/extra.cpio" >"$w/initrd"
    rm "$w/extra.cpio"
    boot "$timeout" "$mem" "$cpus" "$network"
    if [ -n "$out" ] && [ -s "$w/out.tar" ]; then
        mkdir -p "$out"
        tar xf "$w/out.tar" -C "$out"
    fi
    rc=$(tr -d '\r' <"$w/console" | sed -n 's/^.*VM-EXIT //p' | tail -1)
    [ -n "$rc" ] || { echo "vm.sh: the guest died; console:" >&2; tail -25 "$w/console" >&2; exit 125; }
    exit "$rc"
}

case ${1:-} in
    prepare) [ $# = 2 ] || [ $# = 3 ] || usage; prepare "${@:2}";;
    run) shift; run "$@";;
    *) usage;;
esac
