"""csi-calls.py SOCKET KUBELET-DIR TREE IMAGE OTHER-IMAGE ALLOWED-IMAGE: every call of the volume driver, right and wrong (csi.sh)."""
import errno
import glob
import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading

sys.path.append(os.environ['GRANARY_SOURCE'] + '/tests/servers')
from csi_client import Driver, capability, entries, field, fields  # noqa: E402

socket, kubelet, tree, image, other, allowed = sys.argv[1:]
driver = Driver(socket)
staging_root = kubelet + '/plugins/kubernetes.io/csi/csi.granary.io'
staging = staging_root + '/hash/globalmount'
volumes = kubelet + '/pods/0a1b/volumes/kubernetes.io~csi'
target = volumes + '/faces/mount'
os.makedirs(staging)
os.makedirs(os.path.dirname(target))
failed = False


def mounts():
    with open('/proc/self/mountinfo') as f:
        return [line.split()[4] for line in f if line.split()[4].startswith(kubelet)]


def expect(what, answer, code, text=''):
    """The answer has that code, and for a failure text in its sentence."""
    global failed
    sentence = answer[1] if answer[0] != 'OK' else ''
    if answer[0] != code or text not in sentence or (code != 'OK' and not sentence):
        failed = True
        print(f'FAILED: {what}: {answer}, not {code} with "{text}"')
    return answer[1]


def check(what, true):
    global failed
    if not true:
        failed = True
        print('FAILED:', what)


def step(text):
    print('==', text, flush=True)


step('what the driver is')
nodes = {'csi.granary.io/driver': 'yes'}
this_node = {**nodes, 'csi.granary.io/node': 'node1'}
check('its name', fields(expect('GetPluginInfo', driver.call('/csi.v1.Identity/GetPluginInfo'), 'OK'))[1] == [b'csi.granary.io'])
check('a controller, and nodes without the driver', expect('GetPluginCapabilities', driver.call('/csi.v1.Identity/GetPluginCapabilities'), 'OK') ==
      b''.join(field(1, field(1, field(1, n))) for n in (1, 2)))
check('volumes of StorageClasses, capacity', expect('ControllerGetCapabilities', driver.call('/csi.v1.Controller/ControllerGetCapabilities'), 'OK') ==
      b''.join(field(1, field(1, field(1, n))) for n in (1, 4)))
check('it is ready', expect('Probe', driver.call('/csi.v1.Identity/Probe'), 'OK') == field(1, field(1, 1)))
check('the node', expect('NodeGetInfo', driver.node('GetInfo', b''), 'OK') == field(1, 'node1') + field(3, entries(1, this_node)))
check('stage, statistics and health', expect('NodeGetCapabilities', driver.node('GetCapabilities', b''), 'OK') ==
      b''.join(field(1, field(1, field(1, n))) for n in (1, 2, 7)))
check('what kubelet registers', fields(expect('GetInfo', driver.call('/pluginregistration.Registration/GetInfo'), 'OK')) ==
      {1: [b'CSIPlugin'], 2: [b'csi.granary.io'], 3: [socket.encode()], 4: [b'1.0.0']})
expect('a registration', driver.call('/pluginregistration.Registration/NotifyRegistrationStatus', field(1, 1)), 'OK')
expect('no method', driver.node('ExpandVolume', b''), 'UNIMPLEMENTED', 'NodeExpandVolume')
expect('no message', driver.node('StageVolume', b'\xff\xff\xff'), 'INVALID_ARGUMENT', 'no request of')

step('volumes of StorageClasses')
claim = {'csi.storage.k8s.io/pvc/name': 'faces.v2', 'csi.storage.k8s.io/pvc/namespace': 'team-a', 'csi.storage.k8s.io/pv/name': 'pvc-1'}
pattern = 's3://lake/${pvc.metadata.namespace}/x-${pvc.metadata.name}:v1'
first = expect('CreateVolume', driver.create(parameters={'image': pattern, 'noexec': 'true', **claim}), 'OK')
check(f'nodes that have the driver: {first[2]}', first[2] == [entries(1, nodes)])
check(f'the image of the claim: {first}', first[1] == {'image': 's3://lake/team-a/x-faces.v2:v1', 'noexec': 'true'})
check('the same again', expect('CreateVolume', driver.create(parameters={'image': pattern, 'noexec': 'true', **claim}), 'OK') == first)
check('another id', expect('CreateVolume', driver.create('pvc-2', {'image': image}), 'OK')[0] != first[0])
check('ids are short', len(expect('a long name', driver.create('p' * 1000, {'image': image}), 'OK')[0]) < 129)
expect('no name', driver.create('', {'image': image}), 'INVALID_ARGUMENT', 'name is missing')
expect('a long name', driver.create('p' * 2000, {'image': image}), 'INVALID_ARGUMENT', 'longer than')
expect('no capability', driver.create(parameters={'image': image}, cap=None), 'INVALID_ARGUMENT', 'volume_capability')
expect('a block device', driver.create(parameters={'image': image}, cap=capability(kind=1)), 'INVALID_ARGUMENT', 'Filesystem')
expect('no image', driver.create(), 'INVALID_ARGUMENT', 'image')
expect('no claim', driver.create(parameters={'image': pattern}), 'INVALID_ARGUMENT', '--extra-create-metadata')
for bad in ('../x', 'a/b', 'a:b', '', '-a', 'a@b', 'n' * 200, '${pvc.metadata.name}'):
    expect('a claim named ' + bad, driver.create(parameters={'image': pattern, **claim, 'csi.storage.k8s.io/pvc/name': bad}), 'INVALID_ARGUMENT')
for bad in ('s3://lake/$x', 's3://lake/${pvc.metadata.uid}', 's3://lake/${', 'faces', 's3://lake/x:-', 'http://user:hunter2@host/x',
            's3://lake/' + '${pvc.metadata.name}' * 250 + '/x'):
    expect('the image ' + bad[:50], driver.create(parameters={'image': bad, **claim}), 'INVALID_ARGUMENT')
for key in ('cache', 'env-file', 'peer-key', 'socket', 'trust', 'Fence', '-', ''):
    expect('the parameter ' + key, driver.create(parameters={'image': image, key: '1'}), 'INVALID_ARGUMENT', 'volumeAttributes may not')
for name, more in (('secrets', entries(5, {'key': 'hunter2'})), ('a source', field(6, field(1, field(1, 's')))), ('changes', entries(8, {'a': 'b'}))):
    expect(name, driver.create(parameters={'image': image}, more=more), 'INVALID_ARGUMENT')
for capacity, code in ((field(1, 1 << 40), 'OK'), (field(1, 2) + field(2, 1), 'OUT_OF_RANGE'), (field(1, (1 << 64) - 1), 'OUT_OF_RANGE')):
    expect('a capacity', driver.create(parameters={'image': image}, more=field(2, capacity)), code)
validate = '/csi.v1.Controller/ValidateVolumeCapabilities'
confirmed = fields(expect('to validate', driver.call(validate, field(1, first[0]) + field(3, capability())), 'OK'))
check(f'confirmed: {confirmed}', list(confirmed) == [1] and fields(confirmed[1][0]) == {2: [capability()]})
check('not confirmed', list(fields(expect('a block device', driver.call(validate, field(1, first[0]) + field(3, capability(kind=1))), 'OK'))) == [2])
expect('to validate nothing', driver.call(validate, field(1, first[0])), 'INVALID_ARGUMENT', 'volume_capability')
expect('to validate without id', driver.call(validate, field(3, capability())), 'INVALID_ARGUMENT', 'volume_id')
expect('to validate another volume', driver.call(validate, field(1, 'v') + field(3, capability())), 'NOT_FOUND')
for _ in range(2):
    expect('DeleteVolume', driver.call('/csi.v1.Controller/DeleteVolume', field(1, first[0])), 'OK')
expect('to delete without id', driver.call('/csi.v1.Controller/DeleteVolume'), 'INVALID_ARGUMENT', 'volume_id')

step('fields that are missing, too long or hostile')
attributes = {'image': image}
expect('no id', driver.stage('', staging, attributes), 'INVALID_ARGUMENT', 'volume_id is missing')
expect('a long id', driver.stage('v' * 2000, staging, attributes), 'INVALID_ARGUMENT', 'longer than 1024')
expect('no path', driver.stage('v', '', attributes), 'INVALID_ARGUMENT', 'staging_target_path is missing')
expect('a long path', driver.stage('v', staging + '/d' * 3000, attributes), 'INVALID_ARGUMENT', 'longer than')
expect('no capability', driver.stage('v', staging, attributes, cap=None), 'INVALID_ARGUMENT', 'volume_capability')
expect('a block device', driver.stage('v', staging, attributes, cap=capability(kind=1)), 'INVALID_ARGUMENT', 'Filesystem')
expect('mount options', driver.stage('v', staging, attributes, cap=capability(flags=['rw'])), 'INVALID_ARGUMENT', 'mountOptions')
expect('no image', driver.stage('v', staging), 'INVALID_ARGUMENT', 'image')
expect('a long image', driver.stage('v', staging, {'image': 'x' * 2000}), 'INVALID_ARGUMENT', 'longer than')
expect('too much', driver.stage('v', staging, {'image': 'x' * 70000}), 'RESOURCE_EXHAUSTED', '64 KiB')
for key in ('foreground', 'help', 'json', 'mkdir', 'cache', 'metrics', 'env-file', 'join', 'keys', 'peer-keep', 'peer-key', 'peer-listen', 'peer-tls', 'socket', 'trust', 'cache=/x', '-', '', 'Fence', 'a b', '../x'):
    expect('the attribute ' + key, driver.stage('v', staging, {'image': image, key: '1'}), 'INVALID_ARGUMENT', 'volumeAttributes may not')
expect('a long value', driver.stage('v', staging, {'image': image, 'fence': 'x' * 5000}), 'INVALID_ARGUMENT', 'longer than')
expect('an unknown option', driver.stage('v', staging, {'image': image, 'no-such': '1'}), 'INVALID_ARGUMENT', 'no-such')
expect('a wrong value', driver.stage('v', staging, {'image': image, 'fence': 'often'}), 'INVALID_ARGUMENT', 'fence')
expect('an option in place of the image', driver.stage('v', staging, {'image': '--mkdir'}), 'INVALID_ARGUMENT', 'names no store')

os.symlink(tree, staging_root + '/link')
os.symlink(tree, staging_root + '/hash/link')
for bad in ('/etc', 'x', staging_root, staging_root + '/', staging_root + '/../csi.granary.io/hash/globalmount', staging + '/..',
            staging + '/.', staging_root + '//hash', kubelet + '/plugins/kubernetes.io/csi/csi.other.io/hash/globalmount',
            target, staging_root + '/link/d', staging_root + '/hash/link', staging_root + '/' + 'n' * 300):
    expect('to stage at ' + bad, driver.stage('v', bad, attributes), 'INVALID_ARGUMENT')
    if not bad.endswith('hash/link'):
        expect('to unstage ' + bad, driver.unstage('v', bad), 'INVALID_ARGUMENT')
    expect('to publish from ' + bad, driver.publish('v', bad, target), 'FAILED_PRECONDITION' if bad.endswith('hash/link') else 'INVALID_ARGUMENT')
expect('to unstage a link', driver.unstage('v', staging_root + '/hash/link'), 'OK')
expect('to stage where nothing is', driver.stage('v', staging_root + '/none', attributes), 'INTERNAL', 'No such file')
expect('to stage where no parent is', driver.stage('v', staging_root + '/none/globalmount', attributes), 'NOT_FOUND')
expect('to unstage what is gone', driver.unstage('v', staging_root + '/none/globalmount'), 'OK')
expect('to unstage without id', driver.unstage('', staging), 'INVALID_ARGUMENT', 'volume_id')
expect('to unstage nothing', driver.unstage('v', ''), 'INVALID_ARGUMENT', 'staging_target_path')
expect('to publish what is not staged', driver.publish('v', staging, target), 'FAILED_PRECONDITION', 'stage the volume')
check('no directory', not os.path.exists(target))
check('nothing is mounted', not mounts())

step('ids and paths that are hostile, in every call')
by_id = {'CreateVolume': lambda v: driver.create(v, {'image': image}), 'DeleteVolume': lambda v: driver.call('/csi.v1.Controller/DeleteVolume', field(1, v)),
         'ValidateVolumeCapabilities': lambda v: driver.call(validate, field(1, v) + field(3, capability())),
         'NodeStageVolume': lambda v: driver.stage(v, staging, {'image': other + '-missing'}),
         'NodeUnstageVolume': lambda v: driver.unstage(v, staging), 'NodePublishVolume': lambda v: driver.publish(v, staging, target),
         'NodeUnpublishVolume': lambda v: driver.unpublish(v, target), 'NodeGetVolumeStats': lambda v: driver.stats(v, target),
         'NodeGetVolumeHealth': lambda v: driver.health(v, target)}
codes = {'CreateVolume': 'OK', 'DeleteVolume': 'OK', 'ValidateVolumeCapabilities': 'NOT_FOUND', 'NodeStageVolume': 'INTERNAL', 'NodeUnstageVolume': 'OK',
         'NodePublishVolume': 'FAILED_PRECONDITION', 'NodeUnpublishVolume': 'OK', 'NodeGetVolumeStats': 'NOT_FOUND', 'NodeGetVolumeHealth': 'NOT_FOUND'}
for name, call in by_id.items():
    expect(name + ' without id', call(''), 'INVALID_ARGUMENT', 'is missing')
    expect(name + ' with a NUL for an id', call(b'\0'), 'INVALID_ARGUMENT', 'is missing')
    expect(name + ' with a long id', call('v' * 1025), 'INVALID_ARGUMENT', 'longer than 1024')
    for bad in ('../../etc', 'v\ngranary: error: forged', b'--%n\xff\xfe', 'v' * 1024):
        expect(f'{name} of {bad[:30]!r}', call(bad), codes[name])
by_path = {'NodeUnstageVolume': lambda p: driver.unstage('v', p), 'NodeUnpublishVolume': lambda p: driver.unpublish('v', p),
           'NodeStageVolume': lambda p: driver.stage('v', p, attributes), 'NodePublishVolume': lambda p: driver.publish('v', staging, p),
           'NodePublishVolume, from': lambda p: driver.publish('v', p, target)}
for name, call in by_path.items():
    expect(name + ' without path', call(''), 'INVALID_ARGUMENT', 'path is missing')
    for bad in ('/' + 'd' * 5000, '/d' * 2500, '/', '.', '\n', b'/\xff', '/proc/self/root' + staging, staging + '\n/../x', '%n%n'):
        expect(f'{name} of {bad[:30]!r}', call(bad), 'INVALID_ARGUMENT')
for name, call in (('NodeGetVolumeStats', lambda p: driver.stats('v', p)), ('NodeGetVolumeHealth', lambda p: driver.health('v', p))):
    expect(name + ' of a long path', call('/' + 'd' * 5000), 'INVALID_ARGUMENT', 'longer than')
    for bad in ('/', '.', '\n', b'/\xff', '/proc/self/root' + staging, '%n%n'):
        expect(f'{name} of {bad!r}', call(bad), 'NOT_FOUND')
for cut in (b'\x0a', b'\x0a\x05v', b'\x2a\x02\x0a\x09', b'\xff' * 11, field(6, b'\x0a\xff'), field(4, b'\x12\xff\xff\xff\x0f')):
    for name in ('/csi.v1.Controller/CreateVolume', '/csi.v1.Node/NodeStageVolume'):
        expect(f'{name}: {cut!r}', driver.call(name, cut), 'INVALID_ARGUMENT')
check('nothing is mounted', not mounts())

step('secrets that are no keys')
inline = {'image': allowed, 'csi.storage.k8s.io/ephemeral': 'true', 'csi.storage.k8s.io/pod.name': 'p'}
keys = {'AWS_ACCESS_KEY_ID': 'someone', 'AWS_SECRET_ACCESS_KEY': 'hunter2'}
with_keys = {'stage': lambda s: driver.stage('v', staging, attributes, secrets=s), 'publish': lambda s: driver.publish('v', staging, target, secrets=s),
             'inline': lambda s: driver.publish('v', '', target, attributes=inline, secrets=s)}
for secrets, text in (({**keys, 'endpoint': 'hunter2'}, 'has another one'), ({'hunter2': 'AWS_SECRET_ACCESS_KEY'}, 'has another one'),
                      ({**keys, 'AWS_SESSION_TOKEN\0': 'hunter2'}, 'has another one'), ({**keys, '': 'hunter2'}, 'has another one'),
                      ({'AWS_SECRET_ACCESS_KEY': 'hunter2'}, 'AWS_ACCESS_KEY_ID is missing'),
                      ({'AWS_ACCESS_KEY_ID': 'hunter2'}, 'AWS_SECRET_ACCESS_KEY is missing'), ({'AWS_SESSION_TOKEN': 'hunter2'}, 'AWS_ACCESS_KEY_ID is missing'),
                      *(({**keys, 'AWS_SECRET_ACCESS_KEY': value}, 'the secret AWS_SECRET_ACCESS_KEY is empty, or')
                        for value in ('', 'hunter2\n', 'hunter2\0', 'hunter2\0x', ' hunter2', 'hunter2\nAWS_SESSION_TOKEN=x', 'hunter2\x7f', 'hunter2\xe4')),
                      ({**keys, 'AWS_SESSION_TOKEN': 'hunter2' * 3000}, 'more than 16383 bytes')):
    for name, call in with_keys.items():
        sentence = expect(f'{name} with {secrets!r:.80}', call(secrets), 'INVALID_ARGUMENT', text)
        check('no secret in the sentence: ' + sentence, 'hunter2' not in sentence)
for name, code in (('stage', 'INTERNAL'), ('publish', 'FAILED_PRECONDITION'), ('inline', 'INTERNAL')):
    sentence = expect(f'{name}: keys for a directory', with_keys[name](keys), code, "are for s3" if code == 'INTERNAL' else '')
    check('no secret in the sentence: ' + sentence, 'hunter2' not in sentence)
check('nothing is mounted', not mounts() and not os.path.exists(target))

step('capabilities that no image has, in every call that has one')
with_capability = {'CreateVolume': lambda c: driver.create(parameters={'image': image}, cap=c),
                   'NodeStageVolume': lambda c: driver.stage('v', staging, attributes, cap=c),
                   'NodePublishVolume': lambda c: driver.publish('v', staging, target, cap=c),
                   'an inline volume': lambda c: driver.publish('v', '', target, cap=c, attributes=inline)}
wrong = ((capability(kind=None), 'access_type'), (capability(kind=1), 'Filesystem'), (capability(None), 'access_mode'),
         (capability(0), 'access_mode'), (field(2, '') + field(3, ''), 'access_mode'), (capability(flags=['rw']), 'mountOptions'),
         (capability(flags=['']), 'mountOptions'), (capability(group='1000'), 'volume_mount_group'),
         *((capability(fs_type=t), 'fsType') for t in ('xfs', 'EROFS', 'erofs ', '../ext4', 'ext4\nforged', b'\xff', 'x' * 5000, '%n')))
for cap, text in wrong:
    for name, call in with_capability.items():
        expect(f'{name} with {cap[:40]!r}', call(cap), 'INVALID_ARGUMENT', text)
    reply = fields(expect(f'to validate {cap[:40]!r}', driver.call(validate, field(1, first[0]) + field(3, cap)), 'OK'))
    check(f'not confirmed, with the sentence: {reply}', list(reply) == [2] and text.encode() in reply[2][0])
for fs_type in ('erofs', 'ext4'):
    expect('a filesystem that images have', driver.create(parameters={'image': image}, cap=capability(fs_type=fs_type)), 'OK')
check('nothing is mounted', not mounts() and not os.path.exists(target))

step('a mount that fails leaves nothing')
sentence = expect('no such image', driver.stage('v', staging, {'image': other + '-missing'}), 'INTERNAL', '-missing')
check('the sentence is that of granary mount: ' + sentence, not sentence.startswith('granary') and '\n' not in sentence)
check('no state', not [n for n in os.listdir('/run/granary') if not n.endswith('.lock') and n != 'lock'])
check('its directory is kubelet\'s to remove', os.listdir(staging) == [])

step('stage, publish and read, each twice')
for mode in (3, 1, 5, 99):
    expect('to stage', driver.stage('../v', staging, {'image': image, 'csi.storage.k8s.io/pod.name': 'p', 'noexec': 'true',
                                                       'cache-compressed': 'false'}, cap=capability(mode)), 'OK')
check('mounted once', mounts() == [staging])
expect('another image there', driver.stage('v', staging, {'image': other}), 'ALREADY_EXISTS', image)
for mode in (3, 1):
    expect('to publish', driver.publish('v', staging, target, cap=capability(mode)), 'OK')
check('mounted twice', mounts() == [staging, target])
subprocess.run([os.environ['TREECMP'], tree, target], check=True)
with open('/proc/self/mountinfo') as f:
    options = [line.split()[5] for line in f if line.split()[4] == target]
check(f'read-only: {options}', options and set('ro nosuid nodev noexec'.split()) <= set(options[0].split(',')))
for path, flags in ((target + '/new', os.O_CREAT | os.O_WRONLY), (target + '/hello', os.O_RDWR), (staging + '/hello', os.O_TRUNC | os.O_WRONLY)):
    try:
        os.open(path, flags)
        check('the volume is writable', False)
    except OSError as e:
        check(f'{path}: {e}', e.errno == errno.EROFS)
second = volumes + '/again/mount'
os.makedirs(os.path.dirname(second))
expect('a second target', driver.publish('v', staging, second), 'OK')
expect('the first goes', driver.unpublish('v', target), 'OK')
check('the second reads on', mounts() == [staging, second] and open(second + '/hello').read() == 'hello\n')
expect('the first again', driver.publish('v', staging, target), 'OK')
expect('the second goes', driver.unpublish('v', second), 'OK')
check('mounted twice again', mounts() == [staging, target] and open(target + '/hello').read() == 'hello\n')

step('publish: what is wrong')
expect('no id', driver.publish('', staging, target), 'INVALID_ARGUMENT', 'volume_id')
expect('no target', driver.publish('v', staging, ''), 'INVALID_ARGUMENT', 'target_path is missing')
expect('no capability', driver.publish('v', staging, target, cap=None), 'INVALID_ARGUMENT', 'volume_capability')
expect('no staging directory', driver.publish('v', '', target), 'INVALID_ARGUMENT', 'staging_target_path is missing')
expect('the same', driver.publish('v', '', target, attributes={'image': image, 'csi.storage.k8s.io/ephemeral': 'false'}), 'INVALID_ARGUMENT',
       'staging_target_path is missing')
os.makedirs(volumes + '/tmpfs/mount')
subprocess.run(['mount', '-t', 'tmpfs', '-o', 'ro', 'tmpfs', volumes + '/tmpfs/mount'], check=True)
os.symlink(tree, volumes + '/faces/link')
os.makedirs(kubelet + '/pods/0a1b/volumes/kubernetes.io~empty-dir/x')
hostile = ['/etc', kubelet, kubelet + '/pods', kubelet + '/pods/0a1b', volumes, volumes + '/faces/../faces/mount', target + '/',
           kubelet + '/pods/0a1b/volumes/kubernetes.io~empty-dir/x', staging, target + '/' + 'n' * 300, volumes + '/faces/link/d']
for bad in hostile:
    expect('to publish at ' + bad, driver.publish('v', staging, bad), 'INVALID_ARGUMENT')
    expect('to unpublish ' + bad, driver.unpublish('v', bad), 'INVALID_ARGUMENT')
    if bad != staging:
        expect('statistics of ' + bad, driver.stats('v', bad), 'NOT_FOUND')
expect('to publish at a link', driver.publish('v', staging, volumes + '/faces/link'), 'INVALID_ARGUMENT', 'not a directory')
expect('to publish without parent', driver.publish('v', staging, volumes + '/none/mount'), 'NOT_FOUND')
before = mounts()
expect('to publish over a mount', driver.publish('v', staging, volumes + '/tmpfs/mount'), 'ALREADY_EXISTS')
expect('an inline volume over a mount', driver.publish('v', '', volumes + '/tmpfs/mount', attributes=inline), 'ALREADY_EXISTS', "not granary's")
expect('an inline volume over a volume', driver.publish('w', '', target, attributes={**inline, 'image': allowed}), 'ALREADY_EXISTS', 'another image')
expect('keys for a volume without', driver.publish('v', staging, target, attributes=attributes, secrets=keys), 'UNAVAILABLE', 'keeps its earlier keys')
expect('the same by another stage', driver.stage('v', staging, attributes, secrets=keys), 'UNAVAILABLE', 'keeps its earlier keys')
check('all is as before', mounts() == before)

step('statistics')
usage = [fields(u) for u in fields(expect('of the target', driver.stats('v', target), 'OK'))[1]]
st = os.statvfs(target)
size = st.f_blocks * st.f_frsize
check(f'{usage}: bytes used, none available, and no inodes, which erofs does not count', usage == [{2: [size], 3: [size], 4: [1]}])
expect('of the staging directory', driver.stats('v', staging), 'OK')
expect('without id', driver.stats('', target), 'INVALID_ARGUMENT', 'volume_id')
expect('without path', driver.stats('v', ''), 'INVALID_ARGUMENT', 'volume_path')
expect("of another's mount", driver.stats('v', volumes + '/tmpfs/mount'), 'NOT_FOUND')

step('health')
for paths in ((target, ''), ('', staging), (target, staging), ('', '')):
    check(f'healthy at {paths}', expect('health', driver.health('v', *paths), 'OK') == [])
expect('without id', driver.health('', target), 'INVALID_ARGUMENT', 'volume_id')
for bad in hostile[:-1] + [volumes + '/tmpfs/mount', staging_root + '/none']:
    expect('of ' + bad, driver.health('v', bad if bad != staging else '/etc'), 'NOT_FOUND')


class Server(http.server.BaseHTTPRequestHandler):
    """In place of the mount's server: it says status."""
    status = {}

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.status).encode())

    def log_message(self, *args):
        pass


class UnixServer(socketserver.ThreadingUnixStreamServer):
    def get_request(self):
        return self.socket.accept()[0], ('unix', 0)


[state] = glob.glob('/run/granary/*/state.json')
with open(state) as f:
    true_state = f.read()
false_control = os.path.dirname(kubelet) + '/control'


def write_state(text):
    with open(state + '.new', 'w') as f:
        f.write(text)
    os.rename(state + '.new', state)


write_state(json.dumps({**json.loads(true_state), 'control': false_control}))
answer = expect('health', driver.health('v', target), 'OK')
check(f'no server: {answer}', answer[:2] == [2, 'ServerNotAnswering'] and false_control in answer[2])
server = UnixServer(false_control, Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
for status, want in (({'health': 'failing', 'health_reason': 'store x has been failing'}, [2, 'ServerFailing', 'store x has been failing']),
                     ({'health': 'degraded', 'health_reason': 'a proxy is down'}, [1, 'ServerDegraded', 'a proxy is down']),
                     ({'health': 'failing'}, [2, 'ServerFailing']), ({'health': 'healthy'}, []), ({'health': 3}, [])):
    Server.status = status
    for paths in ((target, ''), ('', staging)):
        answer = expect('health', driver.health('v', *paths), 'OK')
        check(f'{status}: {answer}', answer == want)
server.shutdown()
write_state(true_state)
check('healthy again', expect('health', driver.health('v', target), 'OK') == [])

step('undo it, each twice')
expect('no id', driver.unpublish('', target), 'INVALID_ARGUMENT', 'volume_id')
expect('no path', driver.unpublish('v', ''), 'INVALID_ARGUMENT', 'target_path')
expect("another's mount", driver.unpublish('v', volumes + '/tmpfs/mount'), 'INTERNAL', "not granary's")
check('it is still there', volumes + '/tmpfs/mount' in mounts())
expect('a link', driver.unpublish('v', volumes + '/faces/link'), 'INTERNAL')
check('the link is still there', os.path.islink(volumes + '/faces/link'))
subprocess.run(['umount', volumes + '/tmpfs/mount'], check=True)
for _ in range(2):
    expect('to unpublish', driver.unpublish('v', target), 'OK')
check('the directory is gone', not os.path.exists(target))
expect('to unpublish what is gone', driver.unpublish('v', volumes + '/none/mount'), 'OK')
for _ in range(2):
    expect('to unstage', driver.unstage('v', staging), 'OK')
check('nothing is mounted', not mounts())

step('inline volumes')


def publish_inline(to=target, **attributes):
    return driver.publish('csi-1', '', to, cap=capability(1), attributes={**inline, **attributes})


for key in ('warm', 'readahead', 'endpoint', 'l2', 'socket', 'trust', 'cache', 'fuse', 'env-file', '-', ''):
    expect('the attribute ' + key, publish_inline(**{key: '1'}), 'PERMISSION_DENIED', 'image and noexec')
store = os.path.dirname(allowed)
for bad in (image, 'file://' + image, store + '2/faces', store + '/../faces', store + '/./faces', store + '//x/faces', store + '/a/../../faces',
            store + '/%2e%2e/faces', store + '/.hidden/faces', os.path.dirname(store) + '/faces', 's3://inline/faces', store,
            store + '/' + 'n' * 200 + '/faces', store + '/%/below/faces'):
    expect('an image of ' + bad, publish_inline(image=bad), 'PERMISSION_DENIED', '--inline-stores')
for bad in ('', 'faces', '--mkdir', store + '/../', 'http://user:hunter2@host/x'):
    expect('the image ' + bad, publish_inline(image=bad), 'INVALID_ARGUMENT')
for bad in hostile + [volumes + '/faces/link']:
    expect('an inline volume at ' + bad, publish_inline(bad), 'INVALID_ARGUMENT')
expect('no such image', publish_inline(image=store + '/below/none'), 'INTERNAL', 'below')
check('no directory is left', not os.path.exists(target))
check('nothing is mounted', not mounts())
expect('a wrong value', publish_inline(noexec='often'), 'INVALID_ARGUMENT', 'noexec')
for given in (allowed, allowed, allowed + ':latest'):
    expect('to publish', publish_inline(image=given, noexec='true'), 'OK' if given == allowed else 'ALREADY_EXISTS')
check('mounted once', mounts() == [target])
subprocess.run([os.environ['TREECMP'], tree, target], check=True)
expect('a second pod', publish_inline(volumes + '/second/mount', image='file://' + store + '/faces'), 'NOT_FOUND')
os.makedirs(volumes + '/second')
expect('a second pod', publish_inline(volumes + '/second/mount', image='file://' + store + '//faces:latest'), 'OK')
check('it is mounted too', len(mounts()) == 2)
check('the second has no noexec', not os.statvfs(volumes + '/second/mount').f_flag & os.ST_NOEXEC and os.statvfs(target).f_flag & os.ST_NOEXEC)
expect('statistics', driver.stats('csi-1', target), 'OK')
for _ in range(2):
    expect('to unpublish', driver.unpublish('csi-1', target), 'OK')
    expect('to unpublish', driver.unpublish('csi-2', volumes + '/second/mount'), 'OK')
check('the directory is gone', not os.path.exists(target))
check('nothing is mounted', not mounts())
check('no state', not [n for n in os.listdir('/run/granary') if not n.endswith('.lock') and n != 'lock'])
check('the tree is untouched', os.path.exists(tree + '/hello'))
sys.exit(failed)
