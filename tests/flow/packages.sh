#!/bin/bash
# The Debian packages from their build to their purge: built twice they are the same bytes, and lintian is content. In a
# chroot of this machine's Debian, they bring what they need; the commands, servers, pages and the completion are there.
# An upgrade lets servers and mounts go on, a removal is refused while there are mounts, and a purge leaves what it
# says.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"
need_debian

CHROOT=$(mktemp -d "${TMPDIR:-/tmp}/granary-chroot.XXXXXX") # not below $W: it has this machine's /dev in it
extra_cleanup() {
    inside granary umount --force /mnt/docs
    for mount in dev sys proc; do umount -l "$CHROOT/$mount"; done
    rm -rf --one-file-system "$CHROOT"
} >"$W/cleanup.log" 2>&1
PATH_INSIDE=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
INSIDE=(chroot "$CHROOT" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "PATH=$PATH_INSIDE")
# inside COMMAND...: runs it in the chroot
inside() { "${INSIDE[@]}" "$@"; }
# apt ARG...: apt-get in the chroot, whose output is in $W/apt.log
apt() {
    inside apt-get -q -y -o Acquire::Retries=3 -o DPkg::Path=$PATH_INSIDE --no-install-recommends "$@" >"$W/apt.log" 2>&1 </dev/null
}

echo "== two builds, in directories of different names and by different settings, give the same bytes"
make_debs "$W/debs"
(
    umask 077
    export TZ=Asia/Tokyo LANG=C.UTF-8 LC_ALL=C.UTF-8 CCACHE_DISABLE=1 DEB_BUILD_OPTIONS=parallel=3
    "$GRANARY_SOURCE/tools/package" deb "$W/the-same-debs-again" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
)
(cd "$W/debs" && sha256sum -- *.{deb,buildinfo,changes}) >"$W/sums"
(cd "$W/the-same-debs-again" && sha256sum -c --quiet "$W/sums") || fail "two builds differ"
mapfile -t debs < <(awk '/[.]deb$/ { print $2 }' "$W/sums")
printf '%s\n' "${debs[@]%%_*}" | sort | diff - <(printf '%s\n' granary{,-csi,-fuse}{,-dbgsym} nbdkit-plugin-granary{,-dbgsym} | sort) ||
    fail "other packages"

# One archive for all runs from this build tree: the system, and the packages that were fetched.
release=$(debian_release)
echo "== a chroot of $release"
archive=$GRANARY_BUILD/packages-chroot
mkdir -p "$archive/debs"
if [ ! -e "$archive/$release.tar" ]; then
    debian_strap "$archive/$release.tar.new" --format=tar || fail "mmdebstrap"
    mv "$archive/$release.tar.new" "$archive/$release.tar"
fi
tar -x -f "$archive/$release.tar" -C "$CHROOT"
cp -n "$archive/debs"/*.deb "$CHROOT/var/cache/apt/archives/" 2>"$W/null" || true
cp /etc/resolv.conf "$CHROOT/etc/resolv.conf"
mkdir -p "$CHROOT"/srv/{debs,elsewhere,tree}
cp "$W/debs"/*.deb "$CHROOT/srv/debs/"
mount -t proc proc "$CHROOT/proc"
mount --rbind /sys "$CHROOT/sys"
mount --rbind /dev "$CHROOT/dev"
apt update || fail "$(tail -5 "$W/apt.log")"

# What they depend on comes first, so that the files before and after can be compared.
apt install -s "${debs[@]/#//srv/debs/}" || fail "cannot be installed: $(tail -20 "$W/apt.log")"
mapfile -t needed < <(awk '$1 == "Inst" && $2 !~ /granary/ { print $2 }' "$W/apt.log")
apt install "${needed[@]}" man-db bash-completion libnbd-bin || fail "$(tail -20 "$W/apt.log")"
cp -n "$CHROOT/var/cache/apt/archives"/*.deb "$archive/debs/"

# files: all of the chroot, but for what dpkg, apt, man and mount keep, and what this test puts there
files() {
    find "$CHROOT" -xdev \( -path "$CHROOT/var/lib/dpkg" -o -path "$CHROOT/var/lib/apt" -o -path "$CHROOT/var/cache/apt" \
        -o -path "$CHROOT/var/cache/man" -o -path "$CHROOT/var/log" -o -path "$CHROOT/run/mount" -o -path "$CHROOT/srv" \) \
        -prune -o -printf '/%P %y %m %U:%G %l\n' | sort
}

# systemd, as far as scripts of packages see it: a directory, and a command whose calls are written down
mkdir -p "$CHROOT/run/systemd/system" "$CHROOT/etc/systemd/system/multi-user.target.wants" "$CHROOT/mnt/docs"
printf '#!/bin/sh\necho "$*" >>/srv/systemctl.log\n' >"$CHROOT/usr/local/bin/systemctl"
chmod +x "$CHROOT/usr/local/bin/systemctl"
# systemctl_was LINE...: these were the calls since it was asked last
systemctl_was() {
    touch "$CHROOT/srv/systemctl.log"
    printf '%s\n' "$@" | diff - "$CHROOT/srv/systemctl.log" || fail "these calls of systemctl (>) and not these (<)"
    rm "$CHROOT/srv/systemctl.log"
}
files >"$W/before"

echo "== installed"
apt install "${debs[@]/#//srv/debs/}" || fail "$(tail -20 "$W/apt.log")"
systemctl_was daemon-reload
version=$(inside granary --version)
[ "$version" = "granary $(dpkg-parsechangelog -l "$GRANARY_SOURCE/debian/changelog" -S Version)" ] || fail "it is $version"
inside getent passwd granary >"$W/null" || fail "no user granary"
cmp "$GRANARY_SOURCE/deploy/granary.conf" "$CHROOT/etc/granary.conf" || fail "no granary.conf"
echo "# of this node" >>"$CHROOT/etc/granary.conf"
# own_settings: granary.conf is still as it was changed
own_settings() { [ "$(tail -n 1 "$CHROOT/etc/granary.conf")" = "# of this node" ] || fail "granary.conf is changed"; }

echo "== it builds, serves by its own server and by nbdkit, and mounts"
cp -r "$GRANARY_SOURCE/docs" "$CHROOT/srv/tree/"
head -c 4000000 /dev/urandom >"$CHROOT/srv/tree/large"
inside granary build -q /srv/tree /srv/store/docs:v1 >"$W/built" || fail "granary build"
inside granary export -q /srv/store/docs:v1 /srv/image
background "${INSIDE[@]}" granary serve /srv/store/docs:v1 --cache none --socket /srv/nbd.sock >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
uri="nbd+unix:///docs?socket=/srv/nbd.sock"
# served: a client reads the whole image from that server
served() { inside nbdcopy "$uri" - | cmp - "$CHROOT/srv/image"; }
served || fail "granary-nbd: other bytes than the export"
[ "$(inside nbdinfo --size "$uri")" = "$(stat -c %s "$CHROOT/srv/image")" ] || fail "nbdinfo: another size"
inside nbdkit -U - -t 256 granary /srv/store/docs:v1 cache=none --run 'nbdcopy "$uri" -' | cmp - "$CHROOT/srv/image" ||
    fail "nbdkit: other bytes than the export"
mounted=""
if [ -e /dev/fuse ] && [ -e /dev/loop-control ]; then
    inside mount -t granary /srv/store/docs:v1 /mnt/docs -o fuse,cache=none || fail "mount -t granary"
    mounted=1
    "$TREECMP" "$CHROOT/srv/tree" "$CHROOT/mnt/docs" || fail "the mount differs"
else
    echo "no /dev/fuse or no /dev/loop-control here: mounts are not tested"
fi

echo "== pages and completion"
for page in "1 granary" "1 nbdkit-granary-plugin" "8 mount.granary" "8 umount.granary" "8 granary-csi" "8 granary-node-labels"; do
    # shellcheck disable=SC2086
    inside man $page >"$W/page" || fail "man $page"
    grep -qi "granary" "$W/page" || fail "man $page: $(cat "$W/page")"
done
completed=$(inside bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader granary
    COMP_WORDS=(granary umo) COMP_CWORD=1; _granary; echo "${COMPREPLY[*]}"')
[ "$completed" = umount ] || fail "'granary umo' is completed to '$completed'"

if [ -n "$mounted" ]; then
    echo "== no removal under a mount"
    for package in granary granary-fuse; do
        ! inside dpkg --force-depends --remove $package >"$W/out" 2>&1 || fail "$package is removed under a mount"
        grep -q '^    granary umount /mnt/docs$' "$W/out" || fail "the remedy is not named: $(cat "$W/out")"
    done
    [ "$(inside dpkg-query -W -f '${db:Status-Status} ' granary granary-fuse)" = "installed installed " ] || fail "half removed"
fi

echo "== an upgrade, under readers"
newer_debs "$W/debs" "$CHROOT/srv/newer"
# read_on: reads until $W/stop is there, past the page cache, and counts in $W/reads; what fails ends it
read_on() {
    local reads=0
    until [ -e "$W/stop" ]; do
        served || return 1
        [ -z "$mounted" ] || dd if="$CHROOT/mnt/docs/large" iflag=direct bs=1M status=none | cmp - "$CHROOT/srv/tree/large" || return 1
        echo $((++reads)) >"$W/reads"
        sleep 0.1
    done
}
# more_reads: three since READS were done
more_reads() { [ "$(cat "$W/reads")" -ge $((READS + 3)) ]; }
servers() { pgrep --ns $$ --nslist mnt -x 'granary(-nbd|-fuse)?'; }
echo 0 >"$W/reads"
before=$(servers)
background read_on
READER=$BACKGROUND_PID
READS=0 wait_for 300 more_reads
apt install "${debs[@]/#//srv/newer/}" || fail "$(tail -20 "$W/apt.log")"
[[ $(inside dpkg-query -W -f '${Version}' granary) = *+newer ]] || fail "not upgraded: $(tail -20 "$W/apt.log")"
systemctl_was daemon-reload
own_settings
READS=$(cat "$W/reads") wait_for 300 more_reads
touch "$W/stop"
wait "$READER" || fail "a read failed"
[ "$(servers)" = "$before" ] || fail "other servers: $(servers | xargs), not $(xargs <<<"$before")"

echo "== a server that dies is started from the newer package, and granary upgrade puts that in the earlier one's place"
kill -9 "$(pgrep -P "$SERVE")"
wait_for 60 grep -q 'up again' "$W/serve.err"
served || fail "after a kill"
[ "$(readlink "/proc/$(pgrep -P "$SERVE")/exe")" = "$CHROOT/usr/libexec/granary/granary-nbd" ] || fail "the earlier program"
inside granary upgrade /srv/nbd.sock >"$W/out" || fail "granary upgrade"
[ "$(readlink "/proc/$SERVE/exe")" = "$CHROOT/usr/bin/granary" ] || fail "the earlier supervisor"
served || fail "after granary upgrade"

echo "== removed: everything that was made is kept"
[ -z "$mounted" ] || inside umount /mnt/docs || fail "umount"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
mkdir -p "$CHROOT/var/cache/granary/default" "$CHROOT/var/log/granary" "$CHROOT/srv/elsewhere/cache"
kept=(/etc/granary/faces.conf /etc/systemd/system/multi-user.target.wants/granary-{serve@faces,csi}.service
    /var/cache/granary/default/slab /var/log/granary/serve.log /srv/elsewhere/cache/slab)
for file in "${kept[@]}"; do echo kept >"$CHROOT$file"; done
apt remove granary{,-csi,-fuse}{,-dbgsym} nbdkit-plugin-granary{,-dbgsym} || fail "$(tail -20 "$W/apt.log")"
systemctl_was "stop granary-csi.service" "stop granary-build@*.timer granary-resident-check.timer granary-mount@*.service granary-serve@*.service" daemon-reload
! inside sh -c 'command -v granary' || fail "granary is still there"
for file in "${kept[@]}"; do [ -e "$CHROOT$file" ] || fail "$file is removed"; done
own_settings

echo "== purged: nothing is left but the user, and what lies elsewhere"
apt purge granary granary-csi || fail "$(tail -20 "$W/apt.log")"
files | diff "$W/before" - || fail "other files than before"
[ ! -e "$CHROOT/var/log/granary" ] || fail "logs are left"
[ -e "$CHROOT/srv/elsewhere/cache/slab" ] || fail "a cache elsewhere is removed"
inside getent passwd granary >"$W/null" || fail "the user is removed"
