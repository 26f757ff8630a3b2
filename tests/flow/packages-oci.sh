#!/bin/bash
# The container image from its build to a read: built twice it is the same bytes, its SBOM names exactly the packages
# that dpkg has in it, by which a later image is pinned, and it has its labels. skopeo, podman and containerd take it. Run
# by crun as Kubernetes would (another user than root, no capability, a root that cannot be written), it builds an image of
# a tree and serves it over a unix socket. It has what the Helm chart runs: the programs of the node, and the script of a
# dataset.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"

need_debian
for tool in umoci crun skopeo podman ctr; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install umoci crun skopeo podman containerd)"
done

extra_cleanup() {
    local id
    for id in $(crun --root "$W/crun" list -q 2>"$W/null"); do crun --root "$W/crun" delete --force "$id"; done
}

echo "== two builds, by different settings, give the same bytes"
make_debs "$W/one"
"$GRANARY_SOURCE/tools/oci-image" "$W/one" || fail "the first build"
make_debs "$W/the-same-again"
version=$(dpkg-parsechangelog -l "$GRANARY_SOURCE/debian/changelog" -S Version)
name=granary-$version-$(dpkg --print-architecture)
sbom=$W/one/$name.spdx.json
(umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 "$GRANARY_SOURCE/tools/oci-image" "$W/the-same-again" "$sbom") || fail "the second build"
for file in "$name.oci.tar" "$name.spdx.json"; do
    cmp "$W/one/$file" "$W/the-same-again/$file" || fail "two builds differ"
done

echo "== pinned by an SBOM: a version that there is not any more gives no image"
make_debs "$W/pinned"
jq '(.packages[] | select(.name == "jq")).versionInfo = "0.1-1"' "$sbom" >"$W/old.spdx.json"
! "$GRANARY_SOURCE/tools/oci-image" "$W/pinned" "$W/old.spdx.json" >"$W/said" 2>&1 || fail "another version of jq is taken"
grep -q '^< jq 0.1-1$' "$W/said" && grep -q "than $W/old.spdx.json names" "$W/said" || fail "$(cat "$W/said")"
[ ! -e "$W/pinned/$name.oci.tar" ] || fail "an image is there"
! "$GRANARY_SOURCE/tools/oci-image" "$W/pinned" "$W/config" >"$W/said" 2>&1 || fail "a file that is not there"
mkdir "$W/layout"
tar -x -f "$W/one/$name.oci.tar" -C "$W/layout"

echo "== labels, entrypoint and user"
# blob DIGEST: the file of sha256:HEX in the layout
blob() { echo "$W/layout/blobs/sha256/${1#sha256:}"; }
digest=$(jq -r '.manifests[0].digest' "$W/layout/index.json")
jq .config "$(blob "$(jq -r '.config.digest' "$(blob "$digest")")")" >"$W/config"
jq -e --arg version "$version" '.Labels | .["org.opencontainers.image.version"] == $version
    and .["org.opencontainers.image.licenses"] == "Apache-2.0" and has("org.opencontainers.image.created")
    and has("org.opencontainers.image.title") and has("org.opencontainers.image.description")' "$W/config" >"$W/null" ||
    fail "labels: $(cat "$W/config")"
jq -e '.Entrypoint == ["granary"] and .User == "65532:65532"' "$W/config" >"$W/null" || fail "$(cat "$W/config")"

echo "== skopeo copies it, podman and containerd load it and give it its name"
archive=$W/one/$name.oci.tar
skopeo copy -q "oci-archive:$archive" "dir:$W/copied" || fail "skopeo copy"
cmp "$(blob "$digest")" "$W/copied/manifest.json" || fail "skopeo copies another manifest"
podman=(podman --root "$W/podman" --runroot "$W/podman-run" --tmpdir "$W/podman-tmp" --storage-driver vfs --events-backend none)
"${podman[@]}" load -q -i "$archive" >"$W/out" 2>&1 || fail "podman load: $(cat "$W/out")"
"${podman[@]}" images --noheading --format '{{.Repository}}:{{.Tag}} {{.Digest}}' >"$W/out"
[ "$(cat "$W/out")" = "localhost/granary:$version $digest" ] || fail "podman has $(cat "$W/out")"
"${podman[@]}" rmi -f "localhost/granary:$version" >"$W/out"
cat >"$W/containerd.toml" <<TOML
version = 2
root = "$W/containerd"
state = "$W/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "$W/containerd.sock"
TOML
background containerd --config "$W/containerd.toml" >"$W/containerd.log" 2>&1
wait_for 60 ctr -a "$W/containerd.sock" version >"$W/null" 2>&1
ctr -a "$W/containerd.sock" images import --snapshotter native "$archive" >"$W/out" 2>&1 || fail "ctr images import: $(cat "$W/out")"
ctr -a "$W/containerd.sock" images ls >"$W/out"
grep -q "^localhost/granary:$version .* $digest " "$W/out" || fail "containerd has $(cat "$W/out")"
end_background

echo "== the SBOM has what SPDX 2.3 requires, and the packages that dpkg has"
umoci unpack --image "$W/layout:$version" "$W/bundle" >"$W/unpack.log" 2>&1 || fail "umoci unpack: $(cat "$W/unpack.log")"
for program in libexec/granary/fluid-{mount,worker} bin/{awk,find,jq,sed}; do # which Fluid's pods run
    [ -x "$W/bundle/rootfs/usr/$program" ] || fail "the image has no $program"
done
jq -e --arg digest "${digest#sha256:}" '
    (.packages | map(.SPDXID)) as $ids
    | .spdxVersion == "SPDX-2.3" and .dataLicense == "CC0-1.0" and .SPDXID == "SPDXRef-DOCUMENT" and (.name | length > 0)
    and (.documentNamespace | test("^https://[^#]+$"))
    and (.creationInfo.created | test("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$")) and (.creationInfo.creators[0] | test("^Tool: "))
    and ($ids | length == (unique | length)) and all($ids[]; test("^SPDXRef-[A-Za-z0-9.-]+$"))
    and all(.packages[]; (.name | length > 0) and (.versionInfo | length > 0) and .downloadLocation == "NOASSERTION"
        and .filesAnalyzed == false and has("licenseDeclared") and has("licenseConcluded") and has("copyrightText"))
    and .packages[0].checksums[0].checksumValue == $digest
    and all(.packages[].externalRefs[]?; .referenceLocator | test("^pkg:deb/debian/[A-Za-z0-9.%-]+@[A-Za-z0-9.%~_-]+[?]arch="))
    and .relationships[0] == {spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: "SPDXRef-Image"}
    and (.relationships[1:] | map(.relatedSpdxElement)) == $ids[1:]' "$sbom" >"$W/null" || fail "the SBOM lacks something"
jq -r '.packages[1:][] | "\(.name) \(.versionInfo)"' "$sbom" | sort >"$W/sbom.packages"
dpkg-query --admindir="$W/bundle/rootfs/var/lib/dpkg" -W -f '${Package} ${Version}\n' | sort | diff - "$W/sbom.packages" || fail "other packages"
for package in granary granary-fuse granary-csi; do
    grep -q "^$package $version$" "$W/sbom.packages" || fail "the SBOM has no $package"
done

size=$(jq '[.layers[].size] | add' "$(blob "$digest")")
echo "compressed: $size bytes in $(wc -l <"$W/sbom.packages") packages"

echo "== it runs as another user, without capabilities, in a root that cannot be written"
mkdir "$W/tree" "$W/store"
cp -r "$GRANARY_SOURCE/deploy/helm/granary" "$W/chart"
cp -r "$GRANARY_SOURCE/docs" "$W/tree/"
head -c 4000000 /dev/urandom >"$W/tree/large"
chmod -R go+rX "$W/tree" "$W/chart"
chown 65532:65532 "$W/store"
chmod 711 "$W"
cp "$W/bundle/config.json" "$W/as-unpacked.json"
mount -t tmpfs tmpfs /sys/fs/cgroup # in this test's namespace: crun refuses some machines' control groups, even unused
# container NAME PROGRAM ARG...: a program of the image with these arguments, none with a space; /tree and /store are
# those of $W, /chart is the chart's. The network and the control groups are this machine's.
container() {
    local id=granary-test-$$-$1
    shift
    jq --arg w "$W" --arg args "$*" '.process.args = ($args / " ") | .process.terminal = false | .root.readonly = true
        | .process.noNewPrivileges = true | del(.process.capabilities, .process.rlimits, .linux.resources, .linux.seccomp)
        | .linux.namespaces |= map(select(.type | IN("mount", "pid", "ipc", "uts"))) | .mounts |= map(select(.type != "cgroup"))
        | .mounts += [{destination: "/tree", type: "bind", source: ($w + "/tree"), options: ["rbind", "ro"]},
            {destination: "/store", type: "bind", source: ($w + "/store"), options: ["rbind", "rw"]},
            {destination: "/chart", type: "bind", source: ($w + "/chart"), options: ["rbind", "ro"]},
            {destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev"]}]' \
        "$W/as-unpacked.json" >"$W/bundle/config.json"
    crun --root "$W/crun" --cgroup-manager=disabled run --no-pivot --bundle "$W/bundle" "$id"
}
container version granary --version >"$W/out" 2>&1 || fail "crun: $(cat "$W/out")"
[ "$(cat "$W/out")" = "granary $version" ] || fail "it is $(cat "$W/out")"
container build granary build -q /tree /store/docs:v1 >"$W/out" 2>&1 || fail "granary build: $(cat "$W/out")"
[ "$(stat -c %u "$W"/store/*/ | sort -u)" = 65532 ] || fail "the store belongs to somebody else"
container ls granary ls -R /store/docs:v1 >"$W/list" || fail "granary ls"
"$GRANARY" ls -R "$W/store/docs:v1" | diff - "$W/list" || fail "granary ls: another list"
container doctor granary doctor --json /store/docs:v1 >"$W/doctor" || true # it says FAIL: nothing can be mounted there
jq -e '.findings | map({key: .check, value: .level}) | from_entries | ."granary-nbd" == "OK" and ."granary-fuse" == "OK"
    and .image == "OK" and ."store-speed" == "OK"' "$W/doctor" >"$W/null" || fail "granary doctor: $(cat "$W/doctor")"
"$GRANARY" export -q "$W/store/docs:v1" "$W/image"
background container serve granary serve /store/docs:v1 --cache none --socket /store/nbd.sock >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
nbdcopy "nbd+unix:///docs?socket=$W/store/nbd.sock" - | cmp - "$W/image" || fail "wrong bytes from the socket"
crun --root "$W/crun" kill "granary-test-$$-serve" TERM
wait "$BACKGROUND_PID" || fail "SIGTERM: exit $?: $(cat "$W/serve.err")"

echo "== what the Helm chart runs in it"
for program in granary granary-csi /bin/bash /bin/sh mkdir setsid test umount; do
    grep -rqw -- "${program##*/}" "$W/chart/templates" || fail "the chart does not run $program any more"
    container which which $program >"$W/out" 2>&1 || fail "the image has no $program"
done
container csi granary-csi --version >"$W/out" 2>&1 || fail "granary-csi: $(cat "$W/out")"
# dataset STEP ARG...: a container of its Job, of one node
dataset() {
    container dataset env IMAGE=/store/faces TAG=current SOURCE=/tree NODES=1 JOB_ID=one JOB_COMPLETION_INDEX=0 \
        TERMINATION_LOG=/tmp/message /bin/bash /chart/files/dataset.sh "$@" >"$W/out" 2>&1 || fail "dataset.sh $1: $(cat "$W/out")"
}
dataset build
dataset warm
"$GRANARY" ls -R "$W/store/faces:current" | diff "$W/list" - || fail "dataset.sh: another image"
