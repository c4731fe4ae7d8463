"""Driver: an engine pool in a separate process (engine_driver.c), which receives orders as lines."""
import json
import queue
import subprocess
import threading
import time

import gateway as g

PROGRAM = g.BUILD / "tests/blackbox/engine_driver"

class Driver:
    def __init__(self, *engines, **options):
        self.args = [str(PROGRAM)]
        for e in engines:
            self.args += ["--engine", e if isinstance(e, str) else e.setting]
        for name, value in options.items():
            self.args += ["--" + name.replace("_", "-"), str(int(value) if isinstance(value, bool) else value)]
        self.next_id = 0

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events, self.log = queue.Queue(), []
        self.kept = []
        self.readers = [threading.Thread(target=self.read_out, daemon=True), threading.Thread(target=self.read_log, daemon=True)]
        for t in self.readers:
            t.start()
        return self

    def __exit__(self, kind, *_):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        status = self.process.wait(20)
        for t in self.readers:
            t.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        if kind is None:
            assert status == 0, (status, self.log[-20:])

    def read_out(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def tell(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def start(self, prompt=(1, 2, 3), session="s", **more):
        self.next_id += 1
        self.tell(op="call", id=self.next_id, session=session, prompt=list(prompt), **more)
        return self.next_id

    def event(self, *names, id=None, timeout=15):
        """Returns the next event with one of these names (and of this call). Other events are kept for later."""
        end = time.monotonic() + timeout
        for e in self.kept:
            if e["event"] in names and id in (None, e.get("id")):
                self.kept.remove(e)
                return e
        while True:
            left = end - time.monotonic()
            try:
                e = self.events.get(timeout=max(left, 0.001))
            except queue.Empty:
                raise AssertionError(f"no {names} of call {id} in {timeout} s; log: {''.join(self.log[-5:])}") from None
            if e["event"] in names and id in (None, e.get("id")):
                return e
            self.kept.append(e)

    def end(self, id, timeout=15):
        """Waits for the end of the call. Returns the event with all its deltas."""
        e = self.event("done", "failed", id=id, timeout=timeout)
        e["deltas"] = [d for d in self.kept if d["event"] == "delta" and d["id"] == id]
        self.kept = [d for d in self.kept if d not in e["deltas"]]
        return e

    def call(self, timeout=15, **request):
        return self.end(self.start(**request), timeout)

    def state(self):
        self.tell(op="state")
        return self.event("state")
