"""An HTTP server of ROOT's files that answers nobody while the file DEAD exists: silent.py ROOT PORT_FILE DEAD."""
import os
import sys
import time

import ranged

root, port_file, dead = sys.argv[1:]


class Handler(ranged.Files):
    def ready(self):
        while os.path.exists(dead):
            time.sleep(0.1)
        return True


ranged.serve(Handler, root, port_file)
