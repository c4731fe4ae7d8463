"""Streams of events in tests."""
import json
import socket
import threading

import gateway as g


class Follower:
    """Follows a stream of events in a thread of its own."""

    def __init__(self, gateway, path, headers=None):
        self.connection = gateway.connect(timeout=60)
        self.connection.request("GET", path, headers=headers or {})
        self.answer = self.connection.getresponse()
        self.events, self.ended = [], False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        name = None
        try:
            while line := self.answer.readline():
                if line.startswith(b"event: "):
                    name = line[7:-1].decode()
                elif line.startswith(b"data: "):
                    self.events.append((name, json.loads(line[6:])))
        except (OSError, ValueError):
            pass
        self.ended = True

    def of(self, name):
        return [data for event, data in list(self.events) if event == name]

    def wait(self, name, fits=lambda data: True):
        return g.wait_until(lambda: [d for d in self.of(name) if fits(d)][:1], 20, f"an event {name}")[0]

    def close(self):
        try:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        self.thread.join(10)
        self.answer.close()
        self.connection.close()
