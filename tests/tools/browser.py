"""A real Chromium, driven over its debugging pipe: what tests of a page need, and no more.

    browser = Browser(scratch_directory)
    page = browser.page(1280, 800)
    page.go("http://127.0.0.1:9465/")
    page.wait("document.querySelector('h1')")
    page.press("Tab")
    page.close(); browser.close()

Everything that a page complains of is in page.complaints, and the addresses that it asked for in page.requests.
"""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32}
WAIT_S = 60  # for what comes soon, unless the machine is busy


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self, scratch):
        here, there = os.pipe(), os.pipe()  # what it reads from us, and we from it
        self.out, self.into = here[1], there[0]
        # Its pipe is descriptors 3 and 4, which may be others' here: the shell moves ours away first.
        place = f'exec {{a}}<&{here[0]} {{b}}>&{there[1]}; exec 3<&$a 4>&$b; exec "$@"'
        self.child = subprocess.Popen(
            ["bash", "-c", place, "bash", find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--no-proxy-server", "--disable-dev-shm-usage",
             "--force-color-profile=srgb", f"--user-data-dir={scratch}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(f"{scratch}/chromium.log", "w"),
            pass_fds=(here[0], there[1]))
        os.close(here[0])
        os.close(there[1])
        self.numbers = itertools.count(1)
        self.rest = b""
        self.pages = {}

    def _message(self, until):
        """The next message; an error when there is none in time."""
        while b"\0" not in self.rest:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.into, 1 << 20)
            if not piece:
                raise EOFError("the browser has ended: see chromium.log")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        if message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].note(message["method"], message["params"])

    def call(self, method, session=None, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        until = time.monotonic() + WAIT_S
        while True:
            answer = self._message(until)
            if answer.get("id") != number:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def page(self, width, height):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        return page

    def close(self):
        try:
            self.call("Browser.close")
        except (EOFError, TimeoutError, OSError):
            self.child.kill()
        self.child.wait()


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.complaints, self.requests = [], []

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def before(self, script):
        """Run it in each document that the page opens from now on, before the document's own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def wait(self, script):
        """Until an expression is true."""
        until = time.monotonic() + WAIT_S
        while True:
            if self.run(f"(() => {{ try {{ return !!({script}) }} catch {{ return false }} }})()"):
                return
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {script}; the page says: {self.run('document.body.innerText')[:600]}")
            time.sleep(0.05)

    def press(self, key, shift=False):
        code = KEYS[key]
        text = {"Enter": "\r", "Space": " "}.get(key)
        common = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code,
                  "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common,
                  **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def tree(self):
        """The accessibility tree, as a screen reader gets it: (role, name, node) of what is not ignored."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", ""), n) for n in nodes if not n["ignored"]]

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        del self.browser.pages[self.session]
