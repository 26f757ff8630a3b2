#!/bin/bash
# Kubernetes' own csi-sanity against granary-csi: what it says of a driver's node. Go builds it once for a build tree.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

VERSION=v5.6.0
needs_fuse
CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
sanity=$GRANARY_BUILD/tests/csi-sanity-$VERSION/csi-sanity
if [ ! -x "$sanity" ]; then
    command -v go >"$W/null" || skip "no Go here, which builds csi-sanity: CSI's own tests are not run"
    GOBIN=${sanity%/*} go install "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@$VERSION" >"$W/go.log" 2>&1 ||
        skip "Go cannot install csi-sanity $VERSION: $(tail -1 "$W/go.log")"
fi

export PATH=$GRANARY_BUILD/cli:$PATH
kubelet=$W/kubelet
socket=$kubelet/plugins_registry/csi.granary.io-reg.sock
volumes=$kubelet/pods/0a1b/volumes/kubernetes.io~csi
mkdir -p "$kubelet/plugins_registry" "$volumes" "$kubelet/plugins/kubernetes.io/csi/csi.granary.io" "$W/tree"
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
background "$CSI" --kubelet-dir "$kubelet" --node-id node1 2>"$W/driver.log"
wait_for 60 listens "$socket"
# the node's server: GetCapacity reports the size of its cache
mkdir -p /run/granary/fuse
background env -u GRANARY_CACHE "$GRANARY" serve --fuse /run/granary/fuse --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>&1
wait_for 60 listens /run/granary/fuse.control
echo "image: $W/store/faces" >"$W/parameters.yaml"
# Left out are the services that the driver has not: snapshots, groups, ModifyVolume.
"$sanity" --csi.endpoint "unix://$socket" --csi.testvolumeparameters "$W/parameters.yaml" \
    --csi.mountdir "$volumes/sanity" --csi.stagingdir "$kubelet/plugins/kubernetes.io/csi/csi.granary.io/sanity" \
    --ginkgo.focus '(Identity|Controller|Node) Service' --ginkgo.no-color --ginkgo.json-report "$W/report.json" >"$W/said" 2>&1 ||
    fail "$(cat "$W/said" "$W/driver.log")"

jq -r '.[0].SpecReports[] | select(.LeafNodeType == "It" and (.ContainerHierarchyTexts[0] | test("^(Identity|Controller|Node) Service"))) |
    .State + " " + (.ContainerHierarchyTexts | join(" ")) + " " + .LeafNodeText' "$W/report.json" | LC_ALL=C sort >"$W/specs"
# Skipped, each spec below its reason. The list is what csi-sanity says it skips, no more and no less.
cat >"$W/reasons" <<'SPECS'
# there is nothing to attach (attachRequired: false)
Controller Service [Controller Server] ControllerPublishVolume should fail when no node id is provided
Controller Service [Controller Server] ControllerPublishVolume should fail when no volume capability is provided
Controller Service [Controller Server] ControllerPublishVolume should fail when no volume id is provided
Controller Service [Controller Server] ControllerPublishVolume should fail when publishing more volumes than the node max attach limit
Controller Service [Controller Server] ControllerPublishVolume should fail when the node does not exist
Controller Service [Controller Server] ControllerPublishVolume should fail when the volume does not exist
Controller Service [Controller Server] ControllerPublishVolume should fail when the volume is already published but is incompatible
Controller Service [Controller Server] ControllerUnpublishVolume should fail when no volume id is provided
Controller Service [Controller Server] volume lifecycle should be idempotent
Controller Service [Controller Server] volume lifecycle should work
# an image is no copy of a snapshot or a volume
Controller Service [Controller Server] CreateVolume should create volume from an existing source snapshot
Controller Service [Controller Server] CreateVolume should create volume from an existing source volume
Controller Service [Controller Server] CreateVolume should fail when the volume source snapshot is not found
Controller Service [Controller Server] CreateVolume should fail when the volume source volume is not found
# images do not change: no VolumeAttributesClass has an effect
Controller Service [Controller Server] CreateVolume should create volume with a volume attribute class
Controller Service [Controller Server] CreateVolume should not create volume with an invalid volume attribute class
# volumes are not remembered, so one of the same name and another capacity is no conflict
Controller Service [Controller Server] CreateVolume should fail when requesting to create a volume with already existing name and different capacity
# the driver keeps no list of volumes: Kubernetes has one, the PersistentVolumes
Controller Service [Controller Server] ListVolumes check the presence of new volumes and absence of deleted ones in the volume list
Controller Service [Controller Server] ListVolumes should fail when an invalid starting_token is passed
Controller Service [Controller Server] ListVolumes should return appropriate values (no optional values added)
# an image does not grow
Node Service NodeExpandVolume should fail when no volume id is provided
Node Service NodeExpandVolume should fail when no volume path is provided
Node Service NodeExpandVolume should fail when volume is not found
Node Service NodeExpandVolume should work if node-expand is called after node-publish
# a node has no storage of the driver's own
Node Service NodeGetStorageHealth should return appropriate response
# access modes are not told apart: every volume is read-only
Node Service NodePublishVolume with single node multi writer capability should fail when volume with single node single writer access mode is already mounted at a different target path
SPECS
[[ $(sed -n 1p "$W/reasons") = "# "* ]] || fail "a spec is skipped without a reason"
grep -v '^# ' "$W/reasons" | LC_ALL=C sort | diff - <(sed -n 's/^skipped //p' "$W/specs") || fail "other specs are skipped than these"
[ "$(grep -c '^passed ' "$W/specs")" = 39 ] || fail "not 39 specs passed: $(cat "$W/specs")"
! grep -F " $kubelet" /proc/self/mountinfo || fail "a mount is left"
