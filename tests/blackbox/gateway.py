"""Runs a rollgate process tree for tests: start, signals, requests, log, processes, descriptors, memory. RG_BUILD
names the tested build (default build/dev; build/asan ...)."""
import fcntl
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import http.client
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(p) for p in Path(__file__).resolve().parent.iterdir() if p.is_dir()]     # tests import helpers of other folders
BUILD = ROOT / os.environ.get("RG_BUILD", "build/dev")
SHARED = ROOT.parent / "shared"
MODELS = ROOT / "tests/data/models"
BINARY = BUILD / "rollgate"
STUB = BUILD / "tests/blackbox/supervisor_stub"
SANITIZER = re.compile(r"AddressSanitizer|ThreadSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|runtime error:")

_locks = []
_random = random.Random()   # separate from the generator that tests seed


def ports_to_choose():
    """Returns the ports outside of the kernel's ephemeral range. A test's port that is chosen but not open yet cannot
    become another process's outgoing or unnamed port."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return [p for p in range(10000, 65536) if not low <= p <= high] or range(10000, 65536)


_ports = ports_to_choose()


def free_port():
    """Returns a port that no other test uses. Binds it once to check that it is free, then locks its name until the
    test ends."""
    while True:
        port = _random.choice(_ports)
        lock = open(f"{tempfile.gettempdir()}/rollgate-test-port-{port}", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def release_ports():
    while _locks:
        lock = _locks.pop()
        os.unlink(lock.name)
        lock.close()


PATIENCE = 4  # a loaded machine may be slower than an idle one by this factor; only failing tests wait that long


def wait_until(condition, timeout=20.0, what="condition"):
    """Polls the condition, with short pauses at first, and returns its first true value. Fails with `what` after
    PATIENCE times the timeout."""
    end = time.monotonic() + PATIENCE * timeout
    gap = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {PATIENCE * timeout:g} s")
        time.sleep(gap)
        gap = min(2 * gap, 0.02)


def stays(condition, seconds, why):
    """Checks that the condition stays true for `seconds`. `why` states why that time is enough."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"it did not stay so for {seconds} s: {why}"
        time.sleep(0.02)


def pause(seconds, why):
    """Waits for time that no condition can replace: a client's pace, a deadline, a moment without an event. `why`
    names it. Use wait_until or stays for everything that can be observed."""
    assert why
    time.sleep(seconds)


def fresh_memory():
    """Returns the processor seconds for the first access to 4 MiB of pages. In a virtual machine these are
    milliseconds."""
    with mmap.mmap(-1, 4 << 20) as m:
        begin = time.thread_time()
        for at in range(0, len(m), mmap.PAGESIZE):
            m[at] = 1
        return time.thread_time() - begin


def in_parallel(fn, items):
    """Calls fn with every item, each in its own thread. Returns item -> result."""
    got, errors = {}, []

    def one(i):
        try:
            got[i] = fn(i)
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in items]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]
    return got


def children_of(pid):
    """Returns the pids of all living descendants of a process, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):
        if name[0] in "123456789":
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
            except OSError:
                continue
            try:
                stat = os.read(fd, 512)
            except OSError:
                continue
            finally:
                os.close(fd)
            state, parent = stat[stat.rindex(b")") + 2:].split(None, 2)[:2]
            if state != b"Z":
                parents.setdefault(int(parent), []).append(int(name))
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def birth(pid):
    """Returns the start of the process in ticks since the boot, which identifies it if its pid is reused. None: no
    such process."""
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")


class Gateway:
    """One gateway. Arguments are settings by name: workers=2, engine="builtin:echo", a list for a repeatable one,
    True for a switch. start() waits until it serves, unless wait=False."""

    everybody = []

    def __init__(self, binary=None, command="serve", env=None, **settings):
        self.binary = str(binary or BINARY)
        self.command = command
        self.folder = tempfile.mkdtemp(prefix="rgt")
        self.port = free_port()
        self.settings = {"listen": f"127.0.0.1:{self.port}", "state-dir": f"{self.folder}/state",
                         "workers": 2, "routers": 1, "log-level": "info", "grace": "10s"}
        self.settings.update({k.replace("_", "-"): v for k, v in settings.items()})
        self.env = dict(os.environ, **(env or {}))
        self.env.setdefault("ASAN_OPTIONS", "abort_on_error=0:exitcode=99:detect_leaks=1:handle_sigill=1")
        self.log_path = f"{self.folder}/log"
        self.process = None
        self.log_start = 0
        self.allowed = []       # patterns of error lines that the test causes
        self.checked = 0        # characters of the log that unasked_errors() has seen, for tests of a file that share a gateway
        self.seen = {}          # pid -> birth of every process that ever belonged to it
        Gateway.everybody.append(self)

    # --- life ---

    def arguments(self):
        out = [self.binary, self.command]
        for name, value in self.settings.items():
            for one in value if isinstance(value, list) else [value]:
                if one is True or one is False:
                    out.append(f"--{name}={'on' if one else 'off'}")
                elif one is not None:
                    out.append(f"--{name}={one}")
        return out

    def start(self, wait=True, **popen):
        with open(self.log_path, "ab") as log:
            self.log_start = log.tell()     # a later start of the same gateway continues the file
            self.process = subprocess.Popen(self.arguments(), stderr=log, stdout=log,
                                            stdin=subprocess.DEVNULL, env=self.env, **popen)
        self.remember(self.process.pid)
        if wait:
            self.wait_serving()
        return self

    def wait_serving(self, timeout=60):
        def serving():
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()}")
            return re.search(r"supervisor \d+ serving ", self.log()[self.log_start:])
        wait_until(serving, timeout, "the gateway serves")
        self.family()
        return self

    def signal(self, signo):
        self.process.send_signal(signo)

    def stop(self, timeout=30):
        """Drains the gateway. Returns its exit status."""
        if self.process and self.process.poll() is None:
            self.family()
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout=30):
        return self.process.wait(PATIENCE * timeout) if self.process else None

    def kill(self):
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process:
            self.process.wait(10)
        wait_until(lambda: not self.leftovers(), 10, "all of it is gone, and its port free")

    def destroy(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- processes ---

    def remember(self, pid):
        self.seen[pid] = birth(pid)

    def leftovers(self):
        """Returns the living processes of the gateway. Reused pids do not count."""
        return [p for p, born in self.seen.items() if born and alive(p) and birth(p) == born]

    def family(self):
        """Returns the living processes, with the supervisor first."""
        pids = [self.process.pid] + children_of(self.process.pid) if self.process else []
        for pid in pids:
            self.remember(pid)
        return [p for p in pids if alive(p)]

    def child(self, name):
        """Returns the last reported pid of "worker-0", "router-1" ...; None: not reported."""
        found = re.findall(rf"process serves process={re.escape(name)} ready_pid=(\d+)", self.log())
        return int(found[-1]) if found else None

    def descriptors(self, pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    def resident(self, pid):
        """Returns the resident memory of a process in bytes."""
        return int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # --- log ---

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def has_line(self, pattern):
        return re.search(pattern, self.log()) is not None

    def wait_line(self, pattern, timeout=20):
        wait_until(lambda: self.has_line(pattern), timeout, f"log line /{pattern}/")

    def unasked_errors(self):
        """Returns error lines that the test did not announce with allow(), and reports of sanitizers. Only a pattern
        with a sanitizer's words excuses such a report."""
        faults = []
        for line in self.log()[self.checked:].split("\n"):
            sanitizer = SANITIZER.search(line)
            bad = re.match(r"\S+Z error ", line) or sanitizer or "check failed" in line
            patterns = [p for p in self.allowed if not sanitizer or SANITIZER.search(p)]
            if bad and not any(re.search(p, line) for p in patterns):
                faults.append(line)
        return faults

    def allow(self, *patterns):
        self.allowed += patterns
        return self

    # --- requests ---

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout=30):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE * timeout)

    def request(self, method, path, body=None, headers=None, timeout=30):
        """Sends one request on its own connection. body: bytes, or a value that is sent as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        c = self.connect(timeout)
        try:
            c.request(method, path, body=body, headers=headers)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.request("POST", path, {} if body is None else body, **more)

    def metrics(self):
        """Returns /metrics as name{labels} -> value."""
        out = {}
        for line in self.get("/metrics").text.split("\n"):
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def settled(self, name):
        """Returns a gauge that a worker publishes once a second, when it was unchanged for more than two seconds."""
        seen = [self.metrics()[name], time.monotonic()]

        def stands():
            value = self.metrics()[name]
            if value != seen[0]:
                seen[:] = value, time.monotonic()
            return time.monotonic() - seen[1] > 2.2
        wait_until(stands, what=f"{name} stands still")
        return seen[0]

    def ask_while_held(self, worker, asked):
        """Sends requests of (method, path, body) while the worker is stopped, so that all arrive in this order before
        it reads any. Returns the answers."""
        name, answers, threads = 'rollgate_relayed_bytes_total{direction="to_worker"}', {}, []

        def ask(n):
            answers[n] = self.request(*asked[n], timeout=60)
        os.kill(self.child(worker), signal.SIGSTOP)
        try:
            for n, (_, _, body) in enumerate(asked):
                least = self.metrics()[name] + len(json.dumps(body))
                threads.append(threading.Thread(target=ask, args=(n,)))
                threads[-1].start()
                wait_until(lambda least=least: self.metrics()[name] >= least, what="it is at the worker")
        finally:
            os.kill(self.child(worker), signal.SIGCONT)
        for t in threads:
            t.join()
        return [answers[n] for n in sorted(answers)]

    def chat(self, session, text, **more):
        """Makes one non-streaming call on a session (the JSON of POST /sessions)."""
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        return self.post(f"/sessions/{session['session_id']}/v1/chat/completions",
                         {"model": "m", "messages": messages, **more})
