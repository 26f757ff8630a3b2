"""Calls of the volume driver as kubelet makes them, by Debian's gRPC: messages are put together by hand, from the field
numbers of CSI 1.13, so that a wrong number in csi/csi.proto is seen."""
import grpc


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    """A field: an int, or the bytes of a string or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value if isinstance(value, bytes) else value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """The fields of a message: {number: [values]}."""
    out, at = {}, 0

    def number():
        nonlocal at
        shift = n = 0
        while True:
            byte = message[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(message):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = message[at:at + value], at + value
        out.setdefault(key >> 3, []).append(value)
    return out


def entries(number, dictionary):
    return b''.join(field(number, field(1, k) + field(2, v)) for k, v in (dictionary or {}).items())


def capability(mode=3, kind=2, flags=(), fs_type='', group=''):
    """A VolumeCapability: MULTI_NODE_READER_ONLY, a mount (1: a block device, None: neither)."""
    mount = (field(1, fs_type) if fs_type else b'') + b''.join(field(2, f) for f in flags) + (field(3, group) if group else b'')
    return (field(kind, mount) if kind else b'') + (b'' if mode is None else field(3, field(1, mode)))


class Driver:
    def __init__(self, socket):
        self.channel = grpc.insecure_channel('unix:' + socket)

    def call(self, path, request=b'', timeout=300):
        """(code, sentence or reply)"""
        try:
            return 'OK', self.channel.unary_unary(path)(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as e:
            return e.code().name, e.details()

    def create(self, name='pvc-1', parameters=None, cap=capability(), more=b''):
        """CreateVolume: (code, sentence or (id, attributes, topologies))"""
        code, reply = self.call('/csi.v1.Controller/CreateVolume', field(1, name) + (field(3, cap) if cap else b'') +
                                entries(4, parameters) + more)
        if code != 'OK':
            return code, reply
        volume = fields(fields(reply)[1][0])
        pairs = [fields(e) for e in volume[3]]
        return code, (volume[2][0].decode(), {e[1][0].decode(): e[2][0].decode() for e in pairs}, volume[5])

    def capacity(self, parameters=None, topology=None, cap=b''):
        """GetCapacity: (code, sentence or bytes)"""
        code, reply = self.call('/csi.v1.Controller/GetCapacity', (field(1, cap) if cap else b'') + entries(2, parameters) +
                                (field(3, entries(1, topology)) if topology else b''))
        return code, fields(reply).get(1, [0])[0] if code == 'OK' else reply

    def node(self, method, request, timeout=300):
        return self.call('/csi.v1.Node/Node' + method, request, timeout)

    def stage(self, volume, path, attributes=None, cap=capability(), secrets=None, timeout=300):
        return self.node('StageVolume', field(1, volume) + field(3, path) + (field(4, cap) if cap else b'') +
                         entries(5, secrets) + entries(6, attributes), timeout)

    def unstage(self, volume, path):
        return self.node('UnstageVolume', field(1, volume) + field(2, path))

    def publish(self, volume, staging, target, cap=capability(), secrets=None, attributes=None, timeout=300):
        return self.node('PublishVolume', field(1, volume) + field(3, staging) + field(4, target) +
                         (field(5, cap) if cap else b'') + field(6, 1) + entries(7, secrets) + entries(8, attributes), timeout)

    def unpublish(self, volume, target):
        return self.node('UnpublishVolume', field(1, volume) + field(2, target))

    def health(self, volume, target='', staging=''):
        """NodeGetVolumeHealth: (code, sentence or [status, reason, message])"""
        code, reply = self.node('GetVolumeHealth', field(1, volume) + field(2, target) + field(3, staging))
        if code != 'OK':
            return code, reply
        health = fields(fields(reply)[1][0])
        assert health[1] == [volume.encode()]
        return code, [v.decode() if isinstance(v, bytes) else v for e in health.get(2, []) for (v,) in fields(e).values()]

    def stats(self, volume, path):
        return self.node('GetVolumeStats', field(1, volume) + field(2, path))
