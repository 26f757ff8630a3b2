#!/bin/bash
# Kubernetes' own csi-sanity against granary-csi: what it says of a driver's node. Go builds it once for a build tree.
# ctest: long
# ctest: lock=loop
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

VERSION=v5.6.0
[ "$(id -u)" = 0 ] || skip "mounting needs root"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"
CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
/usr/bin/python3 -c "import grpc" 2>"$W/null" || skip "no gRPC for Python: apt-get install python3-grpcio"
sanity=$GRANARY_BUILD/tests/csi-sanity-$VERSION/csi-sanity
if [ ! -x "$sanity" ]; then
    command -v go >"$W/null" || skip "no Go here, which builds csi-sanity: CSI's own tests are not run"
    GOBIN=${sanity%/*} go install "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@$VERSION" >"$W/go.log" 2>&1 ||
        skip "Go cannot install csi-sanity $VERSION: $(tail -1 "$W/go.log")"
fi

export PATH=$GRANARY_BUILD/cli:$PATH PYTHONDONTWRITEBYTECODE=1
kubelet=$W/kubelet
socket=$kubelet/plugins_registry/csi.granary.io-reg.sock
volumes=$kubelet/pods/0a1b/volumes/kubernetes.io~csi
mkdir -p "$kubelet/plugins_registry" "$volumes" "$kubelet/plugins/kubernetes.io/csi/csi.granary.io" "$W/tree"
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
background "$CSI" --kubelet-dir "$kubelet" --node-id node1 2>"$W/driver.log"
wait_for 60 listens "$socket"
# The driver has no Controller service, as volumes are images, made by granary build. So its specs are left out, with
# those of snapshots, groups and ModifyVolume; but Node's need volumes, which a stand-in makes.
background /usr/bin/python3 "$GRANARY_SOURCE/tests/servers/csi_controller.py" "$W/proxy.sock" "$socket" "$W/store/faces"
wait_for 60 listens "$W/proxy.sock"
"$sanity" --csi.endpoint "unix://$W/proxy.sock" \
    --csi.mountdir "$volumes/sanity" --csi.stagingdir "$kubelet/plugins/kubernetes.io/csi/csi.granary.io/sanity" \
    --ginkgo.focus '(Identity|Node) Service' --ginkgo.no-color --ginkgo.json-report "$W/report.json" >"$W/said" 2>&1 ||
    fail "$(cat "$W/said" "$W/driver.log")"

jq -r '.[0].SpecReports[] | select(.LeafNodeType == "It" and (.ContainerHierarchyTexts[0] | test("^(Identity|Node) Service"))) |
    .State + " " + (.ContainerHierarchyTexts | join(" ")) + " " + .LeafNodeText' "$W/report.json" | LC_ALL=C sort >"$W/specs"
# Skipped, each for its reason: an image does not grow; the driver does not tell its volumes' health yet; access modes
# are not told apart, as every volume is read-only.
diff - <(sed -n 's/^skipped //p' "$W/specs") <<'SPECS' || fail "other specs are skipped than these"
Node Service NodeExpandVolume should fail when no volume id is provided
Node Service NodeExpandVolume should fail when no volume path is provided
Node Service NodeExpandVolume should fail when volume is not found
Node Service NodeExpandVolume should work if node-expand is called after node-publish
Node Service NodeGetStorageHealth should return appropriate response
Node Service NodeGetVolumeHealth should fail when no volume id is provided
Node Service NodeGetVolumeHealth should return health for a valid volume
Node Service NodePublishVolume with single node multi writer capability should fail when volume with single node single writer access mode is already mounted at a different target path
SPECS
[ "$(grep -c '^passed ' "$W/specs")" = 22 ] || fail "not 22 specs passed: $(cat "$W/specs")"
! grep -F " $kubelet" /proc/self/mountinfo || fail "a mount is left"
