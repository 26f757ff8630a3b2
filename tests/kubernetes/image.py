"""image.py OUT.tar NAME COMMAND WORD...: a container image as a docker-archive of one layer, without an engine: the files
that standard input names, one `SOURCE DESTINATION` a line; SOURCE @TARGET makes a link."""
import hashlib
import io
import json
import platform
import sys
import tarfile

out, name, *command = sys.argv[1:]


def add(tar, path, data=None, **how):
    info = tarfile.TarInfo(path)
    for key, value in how.items():
        setattr(info, key, value)
    info.size = len(data or b'')
    tar.addfile(info, io.BytesIO(data or b''))


layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode='w', dereference=True) as tar:
    for directory in 'bin', 'data', 'dev', 'etc', 'proc', 'run', 'sys', 'tmp', 'usr', 'var':
        add(tar, directory, type=tarfile.DIRTYPE, mode=0o755)
    for line in sys.stdin.read().splitlines():
        source, destination = line.split(' ')
        if source.startswith('@'):
            add(tar, destination, type=tarfile.SYMTYPE, linkname=source[1:])
        else:
            tar.add(source, destination)
layer = layer.getvalue()
config = {'architecture': {'x86_64': 'amd64', 'aarch64': 'arm64'}[platform.machine()], 'os': 'linux',
          'config': {'Cmd': command, 'Env': ['PATH=/usr/sbin:/usr/bin:/sbin:/bin']},
          'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + hashlib.sha256(layer).hexdigest()]}}
manifest = [{'Config': 'config.json', 'RepoTags': [name], 'Layers': ['layer.tar']}]
with tarfile.open(out, 'w') as tar:
    add(tar, 'layer.tar', layer)
    add(tar, 'config.json', json.dumps(config).encode())
    add(tar, 'manifest.json', json.dumps(manifest).encode())
