#!/bin/bash
# csi.sh [VOLUMES]: NodeStageVolume of that many volumes (100) of one image, one after another and at once, by FUSE
# where the kernel has no nbd; and the memory of granary-csi, at its start and afterwards.
. "$(dirname "$(readlink -f "$0")")/../tests/own-mounts.sh"
. "$(dirname "$(readlink -f "$0")")/lib.sh"

export PATH=$GRANARY_BUILD/cli:$PATH PYTHONDONTWRITEBYTECODE=1
kubelet=$W/kubelet
mkdir -p "$kubelet/plugins_registry" "$kubelet/plugins/kubernetes.io/csi/csi.granary.io"
"$GRANARY" build --quiet /usr/share/perl "$W/store/set" >"$W/built"
background "$GRANARY_BUILD/csi/granary-csi" --kubelet-dir "$kubelet" --node-id node1 2>"$W/driver.log"
wait_for 60 grep serving "$W/driver.log" >"$W/null"
memory() { awk '/VmRSS/ { print "granary-csi:", $2, $3 }' "/proc/$BACKGROUND_PID/status"; }
memory
/usr/bin/python3 - "$SOURCE/tests/servers" "$kubelet" "$W/store/set" "${1:-100}" <<'PYTHON'
import concurrent.futures
import os
import sys
import time

sys.path.append(sys.argv[1])
from csi_client import Driver  # noqa: E402

kubelet, image, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
driver = Driver(kubelet + '/plugins_registry/csi.granary.io-reg.sock')
staging = [f'{kubelet}/plugins/kubernetes.io/csi/csi.granary.io/{n}/globalmount' for n in range(count)]


def stage(n):
    began = time.monotonic()
    code, sentence = driver.stage(f'v{n}', staging[n], {'image': image})
    if code != 'OK':
        raise SystemExit(f'{code} {sentence}')
    return time.monotonic() - began


for directory in staging:
    os.makedirs(directory)
for what, threads in ('one after another', 1), ('at once', count):
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        slowest = max(pool.map(stage, range(count)))
    staged = time.monotonic()
    for n, directory in enumerate(staging):
        driver.unstage(f'v{n}', directory)
    print(f'{count} volumes {what}: {staged - began:.1f} s, the slowest {slowest:.2f} s; '
          f'unstaged in {time.monotonic() - staged:.1f} s')
PYTHON
memory
