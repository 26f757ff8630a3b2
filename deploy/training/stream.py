"""stream.py DIR INDEX: every file of a mounted image once an epoch, shuffled, read in the order in which they lie there.

What is read side by side is fetched together, so the epoch with an empty cache costs few, large requests. The files are
dealt out in blocks of neighbours, in another order each epoch; a worker reads its blocks one after the other, and draws
the samples from a buffer.
"""
import os
import random
import sys

from file_index import Index
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Files(IterableDataset):
    """Samples (path, bytes) of the files below `top`; decode them in a subclass, or in collate_fn."""

    def __init__(self, top, index, block=256, buffer=1024, seed=0):
        self.top, self.index, self.block, self.buffer, self.seed = top, index, block, buffer, seed
        self.epoch = 0  # set it before each epoch, on every rank alike
        self.rank = int(os.environ.get("RANK", 0))  # as torchrun sets them
        self.ranks = int(os.environ.get("WORLD_SIZE", 1))

    def read(self):
        worker = get_worker_info()
        part, parts = self.rank, self.ranks
        if worker:
            part, parts = part * worker.num_workers + worker.id, parts * worker.num_workers
        blocks = list(range(0, len(self.index), self.block))
        random.Random(f"{self.seed} {self.epoch}").shuffle(blocks)
        for start in blocks[part::parts]:
            for i in range(start, min(start + self.block, len(self.index))):
                path, _ = self.index[i]
                with open(os.path.join(self.top, path), "rb") as f:
                    yield path, f.read()

    def __iter__(self):
        draw, waiting = random.Random(f"{self.seed} {self.epoch} draw"), []
        for sample in self.read():
            if len(waiting) < self.buffer:
                waiting.append(sample)
                continue
            i = draw.randrange(len(waiting))
            waiting[i], sample = sample, waiting[i]
            yield sample
        draw.shuffle(waiting)
        yield from waiting


if __name__ == "__main__":
    files = Files(sys.argv[1], Index(sys.argv[2]))
    loader = DataLoader(files, batch_size=64, num_workers=8, collate_fn=list)
    for files.epoch in range(2):  # workers start anew each epoch, and see it
        samples = [sample for batch in loader for sample in batch]
        print(f"epoch {files.epoch}: {len(samples)} files, {sum(len(data) for _, data in samples)} bytes")
