#!/bin/bash
# The commands in the ```sh blocks of README.md, of the pages in docs/ and in the examples of the man pages do what
# these say: a section's are run in order, on a small set in directories in place of the bucket. In ```console blocks,
# what a command prints is compared, too. The DataLoader of the guide reads every byte of the mount. Commands that are
# not run here are in tests/data/docs-not-run.txt, which style/docs compares with the pages.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-docs.sh"

needs_fuse
for tool in jq python3 minisign nbdcopy psktool certtool fuser; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install jq python3 minisign libnbd-bin gnutls-bin psmisc)"
done

free_port
LISTEN=$FREE_PORT
free_port
METRICS=$FREE_PORT
free_port
CONSOLE=$FREE_PORT

# What stands in the pages, and what is there instead. A build's own tag and a digest are those of a build here. A
# counter that is zero is not printed, as the runbook says, so grep may find nothing; not everybody may run dmesg.
cat >"$W/stand-ins" <<SED
s,s3://lake/raw/faces,$W/raw/faces,g
s,s3://lake/images,$W/images,g
s,s3://other/images,$W/other,g
s, /lake\$, $W/lake,
s,/(ssd[12]?)/(granary|me):[0-9]+G,$W/\1/\2:64M,g
s,/ssd/granary( |\$),$W/ssd/granary\1,g
s,/(data|mnt)/faces,$W/faces,g
s,\\\$XDG_RUNTIME_DIR/|/run/(granary(-control)?\.sock),$W/\1,g
s,/etc/granary/tls|/home/alice/tls,$W,g
s,/etc/granary/keys|/home/alice/key,$W/keys,g
s,/etc/granary/proxies,$W/proxies,g
s,/etc/granary/peer-key,$W/peer-key,g
s,/etc/granary\.conf,$W/granary.conf,g
s,(nbds?://([a-z]*@)?host)/,\1:$LISTEN/,g
s,0\.0\.0\.0:10809,127.0.0.1:$LISTEN,g
s,127\.0\.0\.1:9464,127.0.0.1:$METRICS,g
s,(127\.0\.0\.1|10\.0\.0\.5):9465,127.0.0.1:$CONSOLE,g
s,/etc/granary/console,$W/console,g
s, :(faces|operators), :nogroup,g
s,/opt/granary-old/bin/,,
s,faces:20[0-9]{6}T[0-9]{6}Z-[0-9a-f]{12},faces:\$(own_tag),g
s,sha256:DIGEST,\$(digest),g
s,^nbdkit (.*) granary ,nbdkit -P $W/nbdkit.pid \1 $PLUGIN ,
s,^dmesg -T,{ dmesg -T || true; },
/^granary status .* -v \| grep |^grep ' error '/s,\$, || [ \$? = 1 ],
SED

# granary as a user types it. A server is ended before the next one, and a mount before the next one of its directory;
# a server is awaited, and left in the background; what goes on until Ctrl-C ends soon.
mkdir "$W/bin"
cat >"$W/bin/granary" <<SCRIPT
#!/bin/bash
alone() {
    ! grep -q " $W/faces " /proc/mounts || $GRANARY umount $W/faces
    [ "\$1" = mount ] || [ ! -e $W/server ] || { kill \$(cat $W/server); tail --pid=\$(cat $W/server) -f /dev/null; rm $W/server; }
}
answers() { [ -S \$1.control ] && $GRANARY status --quick \$1.control >$W/null 2>&1; }
[[ "\$*" != *" --cache "* ]] || timeout="--disk-timeout $DISK_TIMEOUT"
case "\$*" in
stop) alone ;;
"mount "*) alone mount; exec $GRANARY "\$@" \$timeout ;;
"serve --check "*) exec $GRANARY "\$@" ;;
"serve "*)
    alone
    socket=\$(sed -nE 's/.* --socket ([^ ]+).*/\1/p' <<<"\$*")
    socket=\${socket:-/run/granary/nbd.sock}
    $GRANARY "\$@" \$timeout >$W/serve.log 2>&1 </dev/null &
    echo \$! >$W/server
    until answers \$socket; do kill -0 \$! 2>$W/null || { cat $W/serve.log; exit 1; }; sleep 0.05; done
    cat $W/serve.log ;;
"top "*" --once"*) exec $GRANARY "\$@" --interval 1 ;;
"top "*) exec $GRANARY "\$@" --count 1 --interval 1 ;;
"config show"*) sed -i 's/^cach /cache /' $W/granary.conf; exec $GRANARY "\$@" ;; # what config check had found
"bench "*) exec $GRANARY "\$@" --seconds 1 ;;
"trace record "*)
    rm -f "\${@: -1}" # written when the recording begins
    $GRANARY "\$@" >$W/trace.log 2>&1 &
    until [ -e "\${@: -1}" ]; do kill -0 \$! 2>$W/null || { cat $W/trace.log; exit 1; }; sleep 0.05; done
    find $W/faces -type f -exec dd if={} iflag=nocache count=0 status=none \; -exec cat {} + >$W/null
    kill -INT \$!
    wait \$! || { cat $W/trace.log; exit 1; }
    cat $W/trace.log ;;
*) exec $GRANARY "\$@" ;;
esac
SCRIPT
chmod +x "$W/bin/granary"
export PATH=$W/bin:$PATH
export IMAGES=$W/images
own_tag() { "$GRANARY" images --all --json "$IMAGES" | jq -r '[.images[].tag | select(test("^20.*Z-"))][0]'; }
digest() { "$GRANARY" inspect --json "$IMAGES/faces:v1" | jq -r .digest; }
export -f own_tag digest
extra_cleanup() {
    granary stop 2>"$W/null"
    [ ! -e "$W/nbdkit.pid" ] || kill "$(cat "$W/nbdkit.pid")"
    "$GRANARY" umount --force "$W/faces" 2>"$W/null"
}

printf '127.0.0.1 localhost host cache1 cache2\n' >"$W/hosts"
mount --bind "$W/hosts" /etc/hosts

# commands PAGE SECTION: run; the first that fails ends them
commands() {
    blocks "$1" sh "$2" >"$W/commands"
    (cd "$W" && bash -euxo pipefail "$W/commands") >>"$W/out" 2>&1 </dev/null || { echo "$1, $2:"; cat "$W/out"; return 1; }
}
# console PAGE SECTION: after a "$ COMMAND" come lines that it prints
console() {
    local line
    while IFS= read -r line; do
        case $line in
        '$ '*) (cd "$W" && bash -c "${line#\$ }") >"$W/printed" 2>&1 </dev/null || true ;;
        ...) ;;
        *) grep -qxF -- "$line" "$W/printed" || { echo "$1, $2: no line '$line' in"; cat "$W/printed"; return 1; } ;;
        esac
    done < <(blocks "$1" console "$2")
}
# run PAGE [SECTION]: the commands there, a section after the other, before each of which $before is called
before=true
run() {
    local page section
    : >"$W/out"
    sections "$1" | grep -F "$1 ${2-}" >"$W/sections" || { echo "no \`\`\`sh block in $1, ${2-}"; return 1; }
    while read -r page section; do
        [ -z "${2-}" ] || [ "$section" = "$2" ] || continue
        $before
        commands "$page" "$section" && console "$page" "$section" || return 1
        echo "$page $section" >>"$W/ran"
    done <"$W/sections"
}
mounted() {
    grep -q " $W/faces " /proc/mounts ||
        { granary stop && granary mount "$W/images/faces:v1" "$W/faces" --cache "$W/ssd/granary:64M" >"$W/mount.out"; }
}

printf '```sh\ngranary build s3://lake/raw/faces s3://lake/images/faces:v1 --no-such-option\n```\n' >"$W/page.md"
! run "$W/page.md" >"$W/null" || fail "the test does not see a command that fails"
printf '```console\n$ echo one\ntwo\n```\n' >"$W/page.md"
! run "$W/page.md" >"$W/null" || fail "the test does not see that a command prints something else"

mkdir -p "$W/raw/faces/train" "$W/raw/faces/val" "$W/ssd" "$W/ssd1" "$W/ssd2" "$W/lake"
for i in {1..40}; do head -c $((i * 997)) /dev/urandom >"$W/raw/faces/train/$i.jpg"; done
for i in {1..9}; do head -c 3000 /dev/urandom >"$W/raw/faces/val/$i.jpg"; done

cd "$GRANARY_SOURCE"
echo "== README"
run README.md || fail "see above"
granary stop
rm -r "$W/images" "$W/ssd/granary"

cd docs
echo "== a first image"
run guide/first-image.md || fail "see above"
grep -q '  also tagged ' "$W/out" || fail "no build's own tag"

echo "== a first mount; its DataLoader, with torch or with as much of it as the guide uses"
blocks guide/first-mount.md python >"$W/loader.py"
mkdir -p "$W/stub/torch/utils"
: >"$W/stub/torch/__init__.py"
: >"$W/stub/torch/utils/__init__.py"
cat >"$W/stub/torch/utils/data.py" <<'PYTHON'
import random


class Dataset:
    pass


def DataLoader(dataset, batch_size, shuffle, num_workers, collate_fn):
    order = random.sample(range(len(dataset)), len(dataset))
    return [collate_fn([dataset[i] for i in order[at:at + batch_size]]) for at in range(0, len(order), batch_size)]
PYTHON
python3 -c 'import torch' 2>"$W/null" || export PYTHONPATH=$W/stub
run guide/first-mount.md Mount || fail "see above"
python3 "$W/loader.py" "$W/faces" >"$W/epochs"
bytes=$(find "$W/raw/faces" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
diff "$W/epochs" <(for epoch in 0 1; do echo "epoch $epoch: 49 files, $bytes bytes"; done) || fail "the DataLoader read something else"
for section in "See what it does" "Take it down" "Pin a version" "Without root"; do
    run guide/first-mount.md "$section" || fail "see above"
done
cmp "$W/faces.img" <("$GRANARY" export "$W/images/faces:v1" -) || fail "nbdcopy copied something else"

sections guide/training.md >>"$W/ran" # flow/training runs them

echo "== containers, daily builds"
run guide/containers.md || fail "see above"
echo changed >"$W/raw/faces/val/1.jpg"
run guide/daily-builds.md || fail "see above"

echo "== security"
"$GRANARY" tag "$W/images/faces:v1" latest
for section in "What is verified" Signatures; do run operations/security.md "$section" || fail "see above"; done
grep -q ' fits, by a key that is trusted' "$W/out" || fail "inspect does not trust the key"
run operations/security.md Sockets || fail "see above"
[ "$(stat -c '%a %G' /run/granary/nbd.sock)" = "660 nogroup" ] || fail "the socket's group"

echo "== warming, operations: with a mount"
before=mounted
for section in Warming "What to warm" "Warm the next node with a trace" "How much room it needs" "Only what is warm"; do
    run guide/warming.md "$section" || fail "see above"
done
"$GRANARY" build --exclude val "$W/raw/faces" "$W/lake/images/inner" >"$W/null" # before there is a store around it
mkdir "$W/outer"
"$GRANARY" build "$W/raw/faces" "$W/outer/around" >"$W/null"
cp -r "$W/outer/." "$W/lake/"
awk '{ print $1 }' <(for i in 1 2 3 1 2; do echo "$i" | sha256sum; done) >"$W/reads.txt"
for page in operations/{monitoring,images,sizing}; do run $page.md || fail "see above"; done
if [ -e /sys/module/nbd ] || printf '6.9\n%s\n' "$(uname -r)" | sort -CV; then
    run operations/upgrades.md || fail "see above"
else
    sections operations/upgrades.md >>"$W/ran" # a mount by FUSE survives an upgrade from Linux 6.9 on
fi
mapfile -t symptoms < <(sections operations/runbook.md | cut -d' ' -f2-)
for section in "${symptoms[@]}"; do
    mounted
    holder=true
    [ "$section" != "umount says that it is in use" ] || { (cd "$W/faces" && exec sleep 600) & holder="kill $!"; }
    run operations/runbook.md "$section" || fail "see above"
    $holder
done
before=true

echo "== without a mount: servers of TCP, with TLS, with proxies"
granary serve "$W/images/faces:v1" --cache "$W/ssd/granary:64M" >"$W/null"
run guide/warming.md "Before anything mounts it" || fail "see above"
granary serve "$W/images/faces:v1" --cache "$W/ssd/granary:64M" --listen "127.0.0.1:$LISTEN" >"$W/null"
run guide/warming.md "If you can reach the server only by NBD" || fail "see above"

run operations/security.md TLS || fail "see above"
cmp "$W/faces.img" <("$GRANARY" export "$W/images/faces:latest" -) || fail "nbdcopy copied something else over TLS"
blocks operations/shared-cache.md '' "A list that changes" | grep '^http\|^#' >"$W/proxies"
run operations/shared-cache.md || fail "see above"
openssl rand -hex 32 >"$W/peer-key"
granary status --json | jq -e '.servers[0].l2 | map(.weight) == [1, 2]' >"$W/null" || fail "the server does not read the list of the page"
for section in "A list that changes" "Nodes that are each other's cache" "A proxy on every node"; do
    read -ra options < <(blocks operations/shared-cache.md '' "$section" | grep ^--)
    granary serve --check "$W/images/faces:v1" --cache "$W/ssd/granary:64M" "${options[@]}" || fail "${options[*]}"
done
run operations/console.md || fail "see above"
granary stop

echo "== the configuration file"
blocks reference/configuration.md '' "The configuration file" | sed '3s/cache/cach/' >"$W/granary.conf"
(unset GRANARY_CACHE; GRANARY_CONFIG=$W/granary.conf run reference/configuration.md) || fail "see above"

echo "== the examples of the man pages"
# man_page FILE: as a page, whose sections are what stands above the examples; without what needs a device of kernel nbd
man_page() {
    sed 's/\\-/-/g; s/\\e$/\\/' "man/$1" | awk '/^\.fi$/ { print "```"; on = 0 } on && !/^\.R/
        /^\.nf$/ { print "## " above "\n```sh"; on = 1 } !on && !/^\./ { above = $0 }' |
        grep -vxF -f <(sed -n "s,^docs/man/$1: ,,p" "$GRANARY_SOURCE/tests/data/docs-not-run.txt") | sed 's/ &$//' >"$W/$1.md"
}
"$GRANARY" build "$W/raw/faces/val" "$W/images/voices" >"$W/null"
"$GRANARY" build "$W/raw/faces/val" "$W/images/cars:2026-11-20" >"$W/null"
for page in granary.1 nbdkit-granary-plugin.1; do
    man_page $page
    run "$W/$page.md" || fail "see above"
done
[ "$(grep -lx '\.nf' man/* | wc -l)" = 3 ] || fail "there are other man pages with examples than these, and the line of fstab"

echo "== no section with commands is left out"
cd ..
for page in README.md docs/*.md docs/*/*.md; do sections "$page"; done | sed 's,^docs/,,' | sort >"$W/all"
grep -v "^$W/" "$W/ran" | sort -u | diff - "$W/all" || fail "it runs other sections (<) than have commands (>)"
