"""memory.py PID WORD...: print which of the words are in a process's memory."""
import re
import sys

found, words = set(), [w.encode() for w in sys.argv[2:]]
with open(f'/proc/{sys.argv[1]}/maps') as maps, open(f'/proc/{sys.argv[1]}/mem', 'rb') as mem:
    for line in maps:
        m = re.match(r'([0-9a-f]+)-([0-9a-f]+) r', line)
        if not m:
            continue
        try:
            mem.seek(int(m[1], 16))
            part = mem.read(int(m[2], 16) - int(m[1], 16))
        except (OSError, ValueError, OverflowError):
            continue
        found |= {w for w in words if w in part}
print(*sorted(w.decode() for w in found))
