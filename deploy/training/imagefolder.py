"""imagefolder.py DIR SUBDIR INDEX: torchvision's ImageFolder of DIR/SUBDIR on a mount, a directory a class, no walk."""
import os
import sys

import torch
from file_index import Index
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms import Compose, Resize, ToTensor


class IndexedImageFolder(ImageFolder):
    """An ImageFolder whose classes and images come from an index of the image that is mounted on `top`."""

    def __init__(self, top, subdir, index, **options):
        paths = sorted(index[i][0] for i in range(len(index)))
        below = [path[len(subdir) + 1 :] for path in paths if path.startswith(subdir + "/")]
        self.images = [path for path in below if "/" in path and path.lower().endswith(IMG_EXTENSIONS)]
        super().__init__(os.path.join(top, subdir), **options)

    def find_classes(self, directory):
        names = sorted({path.split("/", 1)[0] for path in self.images})
        return names, {name: i for i, name in enumerate(names)}

    def make_dataset(self, directory, class_to_idx, *_, **__):
        return [(os.path.join(directory, path), class_to_idx[path.split("/", 1)[0]]) for path in self.images]


if __name__ == "__main__":
    top, subdir, index = sys.argv[1:]
    images = IndexedImageFolder(top, subdir, Index(index), transform=Compose([Resize((32, 32)), ToTensor()]))
    loader = DataLoader(images, batch_size=16, shuffle=True, num_workers=4)
    counts = torch.zeros(len(images.classes), dtype=torch.int64)
    for pixels, labels in loader:
        counts += torch.bincount(labels, minlength=len(counts))
    for name, count in zip(images.classes, counts.tolist()):
        print(f"{name}: {count}")
