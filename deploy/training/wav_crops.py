"""wav_crops.py DIR INDEX: a random second of each WAV file of a mount. Only what is read is fetched, not whole files."""
import os
import random
import sys
import wave

from file_index import Index


def crop(path, seconds=1.0):
    with wave.open(path, "rb") as f:
        frames = min(int(f.getframerate() * seconds), f.getnframes())
        f.setpos(random.randint(0, f.getnframes() - frames))
        return f.readframes(frames)


index = Index(sys.argv[2])
files = [index[i][0] for i in range(len(index))]
crops = [crop(os.path.join(sys.argv[1], path)) for path in files if path.endswith(".wav")]
print(f"{len(crops)} crops, {sum(map(len, crops))} bytes")
