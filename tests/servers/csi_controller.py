"""csi_controller.py SOCKET DRIVER-SOCKET IMAGE: a driver with a Controller service, for csi-sanity: it makes volumes,
each of IMAGE, and hands every other call to the driver."""
import concurrent.futures
import os
import sys
import time

import grpc

sys.path.append(os.path.dirname(__file__))
from csi_client import Driver, entries, field, fields  # noqa: E402

socket, driver_socket, image = sys.argv[1:]
driver = Driver(driver_socket)
CREATE_DELETE_VOLUME = CONTROLLER_SERVICE = field(1, field(1, field(1, 1)))
ANSWERS = {'CreateVolume': lambda q: field(1, field(2, fields(q)[1][0]) + entries(3, {'image': image})),
           'DeleteVolume': lambda q: b'',
           'ControllerGetCapabilities': lambda q: CREATE_DELETE_VOLUME,
           'GetPluginCapabilities': lambda q: CONTROLLER_SERVICE}


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        def answer(request, context):
            own = ANSWERS.get(call.method.rsplit('/', 1)[1])
            code, reply = ('OK', own(request)) if own else driver.call(call.method, request)
            if code != 'OK':
                context.abort(grpc.StatusCode[code], reply)
            return reply
        return grpc.unary_unary_rpc_method_handler(answer)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[Handler()])
server.add_insecure_port('unix:' + socket)
server.start()
while True:
    time.sleep(3600)
