#!/bin/bash
# ctest: long
# The page about training jobs and its examples, over a real mount: its commands run in order, what they print is right,
# and the stream reads every file once an epoch, on any number of ranks and workers, in the order of the image.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-docs.sh"

needs_fuse
python3 -c 'import torch, torchvision, lmdb, PIL' 2>"$W/null" || skip "no torch here (apt-get install python3-torch python3-torchvision python3-lmdb)"

cat >"$W/stand-ins" <<SED
s,s3://lake/images,$W/images,g
s,/usr/share/doc/granary/examples/training,$W/examples,g
s,/data/env,$W/env-mount,g
s,/data/faces,$W/faces,g
s,/build/env,$W/env,g
s,/scratch/,$W/scratch/,g
s,/writable/faces,$W/writable,g
SED
cp -r "$GRANARY_SOURCE/deploy/training" "$W/examples"
mkdir "$W/bin" "$W/faces"
printf '#!/bin/bash\nexec %s "$@"\n' "$GRANARY" >"$W/bin/granary"
chmod +x "$W/bin/granary"
export PATH=$W/bin:$PATH PYTHONDONTWRITEBYTECODE=1
extra_cleanup() {
    umount "$W/writable"
    for dir in "$W/env-mount" "$W/faces"; do "$GRANARY" umount --force "$dir"; done
} 2>"$W/null"

# section NAME: its commands, whose output is in $W/out
section() {
    echo "== $1"
    blocks "$GRANARY_SOURCE/docs/guide/training.md" sh "$1" >"$W/commands"
    [ -s "$W/commands" ] || fail "the page has no section $1"
    (cd "$W/examples" && bash -euo pipefail "$W/commands") >"$W/out" 2>"$W/err" </dev/null || fail "$1: $(cat "$W/out" "$W/err")"
    echo "$1" >>"$W/ran"
}
# says LINE...: the section printed just that
says() { diff "$W/out" <(printf '%s\n' "$@") || fail "printed something else: $(cat "$W/err")"; }

python3 - "$W/tree" <<'PYTHON'
import os, random, sys, wave

import lmdb
from PIL import Image

top = sys.argv[1]
for name, count in (("cats", 30), ("dogs/deep", 20)):
    os.makedirs(f"{top}/train/{name}")
    for i in range(count):
        Image.new("RGB", (40, 30), (i, 2 * i, 3 * i)).save(f"{top}/train/{name}/{i}.png")
open(f"{top}/train/cats/not-an-image.txt", "w").write("text")
os.makedirs(f"{top}/wavs")
for i in range(5):
    with wave.open(f"{top}/wavs/{i}.wav", "wb") as f:
        f.setparams((1, 2, 8000, 0, "NONE", None))
        f.writeframes(random.randbytes(16000 * (i + 1) // 2))
with lmdb.open(f"{top}/records", map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
    for i in range(300):
        transaction.put(b"%d" % i, bytes(i))
PYTHON
# mounted: an image of the tree, at $W/faces
mounted() {
    "$GRANARY" umount "$W/faces" 2>"$W/null"
    "$GRANARY" build -q "$W/tree" "$W/images/faces:v1" >"$W/built"
    "$GRANARY" mount "$W/images/faces:v1" "$W/faces" >"$W/mounted"
}

mounted
section "Training jobs"
section "The list of files"
[ "$(wc -l <"$W/examples/faces.tsv")" = "$(find "$W/tree" -type f | wc -l)" ] || fail "faces.tsv"
[ "$(tr -cd '\0' <"$W/examples/train.index" | wc -c)" = 51 ] || fail "train.index"

for i in {1..40}; do head -c $((i * 100)) /dev/urandom >"$W/tree/"$'odd \xff\n'"$i"; done
: >"$W/tree/nothing"
mounted
files=$(find "$W/tree" -type f -printf x | wc -c)
bytes=$(find "$W/tree" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')

echo "== Arrow and Parquet, by what PyPI has"
if python3 -m venv "$W/arrow" >"$W/null" 2>&1 && "$W/arrow/bin/pip" install -q pyarrow >"$W/null" 2>&1; then
    "$GRANARY" index --json "$W/faces" -o "$W/faces.jsonl"
    "$W/arrow/bin/python" - "$W/faces.jsonl" "$W/faces.parquet" "$files" "$bytes" <<'PYTHON'
import sys

import pyarrow.compute, pyarrow.json, pyarrow.parquet

pyarrow.parquet.write_table(pyarrow.json.read_json(sys.argv[1]), sys.argv[2])
table = pyarrow.parquet.read_table(sys.argv[2])
found = table.num_rows, pyarrow.compute.sum(table["size"]).as_py()
assert found == (int(sys.argv[3]), int(sys.argv[4])), found
PYTHON
else
    echo "no pyarrow from PyPI here: not tested"
fi

section ImageFolder
says "cats: 30" "dogs: 20"
python3 - "$W/examples" "$W/faces" <<'PYTHON'
import sys

sys.path.insert(0, sys.argv[1])
from file_index import Index
from imagefolder import IndexedImageFolder
from torchvision.datasets import ImageFolder

walked, listed = ImageFolder(sys.argv[2] + "/train"), IndexedImageFolder(sys.argv[2], "train", Index(sys.argv[1] + "/faces.index"))
assert sorted(walked.samples) == sorted(listed.samples) and walked.classes == listed.classes, "another dataset"
PYTHON

section "A stream in the order of the image"
says "epoch 0: $files files, $bytes bytes" "epoch 1: $files files, $bytes bytes"
"$GRANARY" index -0 "$W/faces" | cmp - "$W/examples/faces.index"
python3 - "$W/examples" "$W/faces" <<'PYTHON'
import os, sys

sys.path.insert(0, sys.argv[1])
from file_index import Index
from stream import Files
from torch.utils.data import DataLoader

top, index = sys.argv[2], Index(sys.argv[1] + "/faces.index")
offsets = {}
for line in open(sys.argv[1] + "/faces.index", "rb").read().split(b"\0")[:-1]:
    size, offset, path = line.split(b"\t", 2)
    offsets[os.fsdecode(path)] = int(offset)
place = [offsets[index[i][0]] for i in range(len(index))]
assert place == sorted(place), "the index is not in the order of the image"

for ranks, workers in ((1, 0), (1, 3), (3, 2)):
    orders = []
    for epoch in range(2):
        seen = []
        for rank in range(ranks):
            files = Files(top, index, block=4, buffer=8)
            files.rank, files.ranks, files.epoch = rank, ranks, epoch
            for path, data in DataLoader(files, batch_size=None, num_workers=workers):
                assert data == open(os.path.join(top, path), "rb").read(), "wrong bytes: " + ascii(path)
                seen.append(path)
        assert sorted(seen) == sorted(offsets), f"not every file once: {ranks} ranks, {workers} workers"
        orders.append(seen)
    assert orders[0] != orders[1], "the same order in both epochs"

files = Files(top, index, block=4, buffer=8)
read = [offsets[path] for path, _ in files.read()]
starts = {place[i] for i in range(0, len(place), 4)}
assert all(a <= b or b in starts for a, b in zip(read, read[1:])), "not in the order of the image within a block"
assert [path for path, _ in files] != [path for path, _ in files.read()], "not shuffled"
PYTHON

section LMDB
says "300 records, $((299 * 300 / 2)) bytes"

section WAV
says "5 crops, $((8000 + 4 * 16000)) bytes"

section "A Python environment"
grep -qE "^$W/env-mount/lib/python3[.0-9]*/site-packages/file_index.py$" "$W/out" || fail "imported from elsewhere: $(cat "$W/out")"
"$GRANARY" mount "$W/images/env:v1" "$W/env-mount" >"$W/mounted"
"$W/env-mount/bin/python" -I -v -c 'import file_index' 2>"$W/imports"
grep -q "file_index.cpython-.*.pyc matches $W/env-mount/" "$W/imports" || fail "compiled again: $(grep file_index "$W/imports")"
"$GRANARY" umount "$W/env-mount"

section "Jobs that must write"
[ "$(cat "$W/scratch/upper/threshold.txt")" = 0.7 ] || fail "it was written elsewhere"
[ ! -e "$W/faces/threshold.txt" ] || fail "it was written into the mount"
mount -t overlay overlay -o "lowerdir=$W/faces,upperdir=$W/scratch/upper,workdir=$W/scratch/work" "$W/writable"
rm "$W/writable/threshold.txt"
diff -r "$W/tree" "$W/writable"
echo more >>"$W/writable/train/cats/not-an-image.txt"
[ "$(cat "$W/writable/train/cats/not-an-image.txt")" = "textmore" ] || fail "a file is not copied up"
[ "$(cat "$W/faces/train/cats/not-an-image.txt")" = text ] || fail "the mount has changed"
umount "$W/writable"
"$GRANARY" umount "$W/faces"

sections "$GRANARY_SOURCE/docs/guide/training.md" | sed "s,^$GRANARY_SOURCE/docs/guide/training.md ,," | diff "$W/ran" - || fail "it runs other sections (<) than the page has (>)"
