"""The list of files that `granary index -0 -o FILE IMAGE` writes."""
import os
from array import array


class Index:
    """Its files as (path, size), in the order in which they lie in the image.

    The text and one number a file are two objects, however many files there are: workers that are forked share them.
    Tuples in a list would be copied page by page, as soon as their reference counts are touched.
    """

    def __init__(self, name):
        with open(name, "rb") as f:
            self.text = f.read()
        starts, offsets, at = array("Q"), array("Q"), 0
        while at < len(self.text):
            end = self.text.index(b"\0", at)
            starts.append(at)
            offsets.append(int(self.text[at:end].split(b"\t", 2)[1]))
            at = end + 1
        self.starts = array("Q", (starts[i] for i in sorted(range(len(starts)), key=offsets.__getitem__)))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        start = self.starts[i]
        size, _, path = self.text[start : self.text.index(b"\0", start)].split(b"\t", 2)
        return os.fsdecode(path), int(size)
