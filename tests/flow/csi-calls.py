"""csi-calls.py SOCKET KUBELET-DIR TREE IMAGE OTHER-IMAGE: every call of the volume driver, right and wrong (csi.sh)."""
import os
import subprocess
import sys

sys.path.append(os.environ['GRANARY_SOURCE'] + '/tests/servers')
from csi_client import Driver, capability, field, fields  # noqa: E402

socket, kubelet, tree, image, other = sys.argv[1:]
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
check('its name', fields(expect('GetPluginInfo', driver.call('/csi.v1.Identity/GetPluginInfo'), 'OK'))[1] == [b'csi.granary.io'])
check('no capabilities', expect('GetPluginCapabilities', driver.call('/csi.v1.Identity/GetPluginCapabilities'), 'OK') == b'')
check('it is ready', expect('Probe', driver.call('/csi.v1.Identity/Probe'), 'OK') == field(1, field(1, 1)))
check('the node', expect('NodeGetInfo', driver.node('GetInfo', b''), 'OK') == field(1, 'node1'))
check('stage and statistics', expect('NodeGetCapabilities', driver.node('GetCapabilities', b''), 'OK') ==
      b''.join(field(1, field(1, field(1, n))) for n in (1, 2)))
check('what kubelet registers', fields(expect('GetInfo', driver.call('/pluginregistration.Registration/GetInfo'), 'OK')) ==
      {1: [b'CSIPlugin'], 2: [b'csi.granary.io'], 3: [socket.encode()], 4: [b'1.0.0']})
expect('a registration', driver.call('/pluginregistration.Registration/NotifyRegistrationStatus', field(1, 1)), 'OK')
expect('no method', driver.node('ExpandVolume', b''), 'UNIMPLEMENTED', 'NodeExpandVolume')
expect('no message', driver.node('StageVolume', b'\xff\xff\xff'), 'INVALID_ARGUMENT', 'no request of')

step('fields that are missing, too long or hostile')
attributes = {'image': image}
expect('no id', driver.stage('', staging, attributes), 'INVALID_ARGUMENT', 'volume_id is missing')
expect('a long id', driver.stage('v' * 2000, staging, attributes), 'INVALID_ARGUMENT', 'longer than 1024')
expect('no path', driver.stage('v', '', attributes), 'INVALID_ARGUMENT', 'staging_target_path is missing')
expect('a long path', driver.stage('v', staging + '/d' * 3000, attributes), 'INVALID_ARGUMENT', 'longer than')
expect('no capability', driver.stage('v', staging, attributes, cap=None), 'INVALID_ARGUMENT', 'volume_capability')
expect('a block device', driver.stage('v', staging, attributes, cap=capability(kind=1)), 'INVALID_ARGUMENT', 'Filesystem')
expect('mount options', driver.stage('v', staging, attributes, cap=capability(flags=['rw'])), 'INVALID_ARGUMENT', 'mountOptions')
expect('secrets', driver.stage('v', staging, attributes, secrets={'key': 'hunter2'}), 'INVALID_ARGUMENT', 'not supported')
expect('no image', driver.stage('v', staging), 'INVALID_ARGUMENT', 'image')
expect('a long image', driver.stage('v', staging, {'image': 'x' * 2000}), 'INVALID_ARGUMENT', 'longer than')
expect('too much', driver.stage('v', staging, {'image': 'x' * 70000}), 'RESOURCE_EXHAUSTED', '64 KiB')
for key in ('foreground', 'help', 'json', 'mkdir', 'cache', 'metrics', 'env-file', 'keys', 'cache=/x', '-', '', 'Fence', 'a b', '../x'):
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

step('a mount that fails leaves nothing')
sentence = expect('no such image', driver.stage('v', staging, {'image': other + '-missing'}), 'INTERNAL', '-missing')
check('the sentence is that of granary mount: ' + sentence, not sentence.startswith('granary') and '\n' not in sentence)
check('no state', not [n for n in os.listdir('/run/granary') if not n.endswith('.lock') and n != 'lock'])

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
try:
    open(target + '/new', 'w')
    check('the volume is writable', False)
except OSError:
    pass

step('publish: what is wrong')
expect('no id', driver.publish('', staging, target), 'INVALID_ARGUMENT', 'volume_id')
expect('no target', driver.publish('v', staging, ''), 'INVALID_ARGUMENT', 'target_path is missing')
expect('no capability', driver.publish('v', staging, target, cap=None), 'INVALID_ARGUMENT', 'volume_capability')
expect('secrets', driver.publish('v', staging, target, secrets={'key': 'hunter2'}), 'INVALID_ARGUMENT', 'not supported')
expect('an inline volume', driver.publish('v', '', target), 'INVALID_ARGUMENT', 'inline')
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
expect('to publish over a mount', driver.publish('v', staging, volumes + '/tmpfs/mount'), 'ALREADY_EXISTS')

step('statistics')
usage = [fields(u) for u in fields(expect('of the target', driver.stats('v', target), 'OK'))[1]]
st = os.statvfs(target)
size = st.f_blocks * st.f_frsize
check(f'{usage}: bytes used, none available, and no inodes, which erofs does not count', usage == [{2: [size], 3: [size], 4: [1]}])
expect('of the staging directory', driver.stats('v', staging), 'OK')
expect('without id', driver.stats('', target), 'INVALID_ARGUMENT', 'volume_id')
expect('without path', driver.stats('v', ''), 'INVALID_ARGUMENT', 'volume_path')
expect("of another's mount", driver.stats('v', volumes + '/tmpfs/mount'), 'NOT_FOUND')

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
check('the tree is untouched', os.path.exists(tree + '/hello'))
sys.exit(failed)
