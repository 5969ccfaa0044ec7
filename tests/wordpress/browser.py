"""Headless Chromium, driven by the Chrome DevTools Protocol with the standard library of Python."""

import base64
import json
import os
import re
import socket
import time
import urllib.request


class WebSocket:
    """Client of one WebSocket (RFC 6455), without extensions."""

    def __init__(self, host, port, path):
        self.stream = socket.create_connection((host, port), timeout=10)
        key = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.received = b""
        while b"\r\n\r\n" not in self.received:
            self._receive()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise RuntimeError(f"no WebSocket: {head!r}")

    def _receive(self):
        data = self.stream.recv(1 << 16)
        if not data:
            raise EOFError("the browser has closed its WebSocket")
        self.received += data

    def _take(self, length):
        while len(self.received) < length:
            self._receive()
        data, self.received = self.received[:length], self.received[length:]
        return data

    def send(self, text):
        data = text.encode()
        length = len(data)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 1 << 16:
            size = bytes([0x80 | 126]) + length.to_bytes(2, "big")
        else:
            size = bytes([0x80 | 127]) + length.to_bytes(8, "big")
        # The masking key 0 leaves the data as it is.
        self.stream.sendall(b"\x81" + size + bytes(4) + data)

    def receive(self, timeout):
        """Returns the next message. Control frames are ignored: the browser sends no pings."""
        self.stream.settimeout(max(timeout, 0.001))
        message = b""
        while True:
            first, size = self._take(2)
            if size == 126:
                size = int.from_bytes(self._take(2), "big")
            elif size == 127:
                size = int.from_bytes(self._take(8), "big")
            data = self._take(size)
            if first & 0x0F <= 2:
                message += data
                if first & 0x80:
                    return message.decode()


class Page:
    """The page of a browser. All waiting has a deadline."""

    PATIENCE = 60

    def __init__(self, port):
        deadline = time.monotonic() + self.PATIENCE
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as targets:
                pages = [target for target in json.load(targets) if target["type"] == "page"]
            if pages:
                break
            if time.monotonic() > deadline:
                raise TimeoutError("the browser has no page")
            time.sleep(0.05)
        path = re.sub("^ws://[^/]*", "", pages[0]["webSocketDebuggerUrl"])
        self.socket = WebSocket("127.0.0.1", port, path)
        self.last_id = 0
        self.messages = []  # of the console, and of the browser about the page
        self.responses = []  # of the server: status, path, media type, protocol
        self.documents = 0  # that have loaded
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.last_id += 1
        number = self.last_id
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        deadline = time.monotonic() + self.PATIENCE
        while True:
            message = json.loads(self.socket.receive(deadline - time.monotonic()))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._on_event(message.get("method"), message.get("params", {}))

    def _on_event(self, method, params):
        if method == "Network.responseReceived":
            response = params["response"]
            path = re.sub("^[a-z]+://[^/]*", "", response["url"])
            if response["url"].startswith("https:"):
                self.responses.append(
                    (response["status"], path, response["mimeType"], response.get("protocol"))
                )
        elif method == "Runtime.exceptionThrown":
            exception = params["exceptionDetails"].get("exception", {})
            self.messages.append(exception.get("description", "an exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            texts = [str(part.get("value", part.get("description"))) for part in params["args"]]
            self.messages.append(" ".join(texts))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            self.messages.append(f"{entry['text']} {entry.get('url')}")
        elif method == "Page.loadEventFired":
            self.documents += 1
        elif method == "Page.javascriptDialogOpening":
            # No answer is awaited here, because another call may be in progress.
            self.last_id += 1
            reply = {"id": self.last_id, "method": "Page.handleJavaScriptDialog"}
            self.socket.send(json.dumps(reply | {"params": {"accept": True}}))

    def evaluate(self, expression):
        """Returns the value of an expression in JavaScript, awaited if it is a promise."""
        result = self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression):
        """Waits until an expression has a value that is true, and returns it. No elements: they have
        no value outside of the browser."""
        deadline = time.monotonic() + self.PATIENCE
        while True:
            try:
                value = self.evaluate(expression)
            except RuntimeError:
                # A document that is replaced has no context in which scripts run.
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression} at {self.describe()}")
            time.sleep(0.05)

    def describe(self):
        """Returns what a failure needs: the URL, the text and the messages of the page."""
        text = self.evaluate("location.href + '\\n' + document.title + '\\n' + document.body?.innerText")
        return f"{text[:3000]}\nmessages: {self.messages}\nlast responses: {self.responses[-20:]}"

    def load(self, action):
        """Waits for the document that an action loads."""
        before = self.documents
        action()
        deadline = time.monotonic() + self.PATIENCE
        while self.documents == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no document was loaded: {self.describe()}")
            self.evaluate("0")  # receives events
            time.sleep(0.02)

    def open(self, url):
        def navigate():
            error = self.call("Page.navigate", url=url).get("errorText")
            if error:
                raise RuntimeError(f"{url}: {error}")

        self.load(navigate)

    def text(self):
        return self.evaluate("document.body.innerText")

    def exists(self, selector):
        return self.evaluate(f"!!document.querySelector({json.dumps(selector)})")

    def click(self, selector):
        """Clicks in the middle of an element with the mouse, once it is visible and still."""
        self.until(
            """new Promise(done => {
                 const at = () => {
                   const element = document.querySelector(SELECTOR);
                   if (!element || element.disabled) return null;
                   element.scrollIntoView({ block: 'center', behavior: 'instant' });
                   const box = element.getBoundingClientRect();
                   const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                   const top = document.elementFromPoint(x, y);
                   const isReached = top && (element.contains(top) || top.contains(element));
                   return box.width && isReached ? `${x} ${y}` : null;
                 };
                 const before = at();
                 setTimeout(() => {
                   const after = at();
                   done(window.clickAt = after === before && after);
                 }, 60);
               })""".replace("SELECTOR", json.dumps(selector))
        )
        x, y = map(float, self.evaluate("window.clickAt").split())
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def enter(self, selector, text):
        """Replaces the text of a field, as if it were typed."""
        quoted = json.dumps(selector)
        self.until(
            f"(() => {{ const field = document.querySelector({quoted}); if (!field) return false;"
            " field.scrollIntoView({ block: 'center' }); field.focus(); field.select?.();"
            " return document.activeElement === field; })()"
        )
        self.insert(text)

    def insert(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        """Presses a key, by its name and its number in Windows."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            if kind == "char" and key != "Enter":
                continue
            more = {"text": "\r"} if kind == "char" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more
            )

    def choose_file(self, selector, path):
        """Chooses a file for a field of a form."""
        self.until(f"!!document.querySelector({json.dumps(selector)})")
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
