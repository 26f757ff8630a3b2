"""provision.py SOCKET STORAGE-CLASS: for the claim on standard input, ask the controller for a volume as external-provisioner does
(with --extra-create-metadata), and print the PersistentVolume that it makes of the answer. The class is JSON, and so is the claim."""
import json
import os
import sys

sys.path.append(os.environ['GRANARY_SOURCE'] + '/tests/servers')
from csi_client import Driver, fields  # noqa: E402

claim, storage_class = json.load(sys.stdin), json.loads(sys.argv[2])
name, meta = 'pvc-' + claim['metadata']['uid'], claim['metadata']
code, volume = Driver(sys.argv[1]).create(name, {
    **storage_class['parameters'], 'csi.storage.k8s.io/pvc/name': meta['name'],
    'csi.storage.k8s.io/pvc/namespace': meta['namespace'], 'csi.storage.k8s.io/pv/name': name})
if code != 'OK':
    sys.exit(f'{code}: {volume}')
handle, attributes, topologies = volume
terms = [{'matchExpressions': [{'key': e[1][0].decode(), 'operator': 'In', 'values': [e[2][0].decode()]}
                               for e in map(fields, fields(t)[1])]} for t in topologies]
json.dump({
    'apiVersion': 'v1', 'kind': 'PersistentVolume', 'metadata': {'name': name},
    'spec': {
        'accessModes': claim['spec']['accessModes'], 'capacity': claim['spec']['resources']['requests'],
        'storageClassName': storage_class['metadata']['name'], 'persistentVolumeReclaimPolicy': storage_class['reclaimPolicy'],
        'claimRef': {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', **{k: meta[k] for k in ('name', 'namespace', 'uid')}},
        'nodeAffinity': {'required': {'nodeSelectorTerms': terms}},
        'csi': {'driver': 'csi.granary.io', 'volumeHandle': handle, 'volumeAttributes': attributes}}}, sys.stdout)
