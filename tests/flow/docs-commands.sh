#!/bin/bash
# The commands in the ```sh blocks of the guides and of docs/operations do what the pages say: they are run in order, on
# a small set in directories in place of the bucket. The DataLoader of the guide reads every byte of the mount.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse
for tool in jq python3 minisign; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install jq python3 minisign)"
done

extra_cleanup() { "$GRANARY" umount --force "$W/faces" 2>"$W/null"; }
export PATH=$GRANARY_BUILD/cli:$PATH

# blocks PAGE LANGUAGE: what stands in its ```LANGUAGE blocks, about this test's directories
blocks() {
    awk -v begin="\`\`\`$2" '$0 == begin { on = 1; next } /^```$/ { on = 0 } on' "$1" |
        sed "s,s3://lake/raw/faces,$W/raw/faces,g; s,s3://lake/images,$W/images,g; s,s3://other/images,$W/other,g; s,/ssd/granary:[0-9]*G,$W/cache:64M,g; s,/data/faces,$W/faces,g"
}
ran=()
# run PAGE: its commands, one after the other; the first that fails ends it
run() {
    ran+=("$1")
    blocks "$1" sh >"$W/commands"
    [ -s "$W/commands" ] || { echo "no \`\`\`sh block in $1"; return 1; }
    (cd "$W" && bash -euxo pipefail "$W/commands") >"$W/out" 2>&1 || { echo "$1:"; cat "$W/out"; return 1; }
}

printf '```sh\ngranary build s3://lake/raw/faces s3://lake/images/faces:v1 --no-such-option\n```\n' >"$W/page.md"
! run "$W/page.md" >"$W/null" || fail "the test does not see a command that fails"

mkdir -p "$W/raw/faces/train" "$W/raw/faces/val"
for i in {1..40}; do head -c $((i * 997)) /dev/urandom >"$W/raw/faces/train/$i.jpg"; done
for i in {1..9}; do head -c 3000 /dev/urandom >"$W/raw/faces/val/$i.jpg"; done

cd "$GRANARY_SOURCE/docs"
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
# between the page's mount and its umount
sed '/^granary umount/,$d' guide/first-mount.md >"$W/mounting.md"
ran+=(guide/first-mount.md)
echo '```' >>"$W/mounting.md"
run "$W/mounting.md" || fail "see above"
python3 "$W/loader.py" "$W/faces" >"$W/epochs"
bytes=$(find "$W/raw/faces" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
diff "$W/epochs" <(for epoch in 0 1; do echo "epoch $epoch: 49 files, $bytes bytes"; done) || fail "the DataLoader read something else"
granary umount "$W/faces" >"$W/out"

echo "== daily builds"
echo changed >"$W/raw/faces/val/1.jpg"
run guide/daily-builds.md || fail "see above"

echo "== signatures"
run operations/security.md || fail "see above"
grep -q ' fits, by a key that is trusted' "$W/out" || fail "inspect does not trust the key"
granary umount "$W/faces" >"$W/out"

echo "== warming, operations: with a mount"
granary mount "$W/images/faces:v1" "$W/faces" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/out"
for page in guide/warming operations/{monitoring,runbook,upgrades,images}; do
    run $page.md || fail "see above"
done
granary umount "$W/faces" >"$W/out"

echo "== no page with commands is left out"
printf '%s\n' "${ran[@]}" | grep -v "^$W/" | sort >"$W/ran"
grep -lx '```sh' guide/*.md operations/*.md | sort | diff "$W/ran" - || fail "it runs other pages (<) than have commands (>)"
