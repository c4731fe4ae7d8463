"""Fixtures of the black-box tests, and the checks after each of them. Every gateway is stopped. Then none of its
processes may live, its port must be free, and its log must have no sanitizer report and no error line that the test
did not announce (Gateway.allow). This process must have as many descriptors as before."""
import collections
import gc
import itertools
import os
import signal
import socket
import subprocess

import pytest

import gateway as g
import vision_kit as kit
from stub_engines import StubEngine


def pytest_configure(config):
    # an assertion that fails in a thread fails its test
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")
    config.addinivalue_line("markers", "alone: loads the machine; scripts/test runs it beside no other")
    config.addinivalue_line("markers", "whole: too long for CI; `scripts/test blackbox` and `python` run it")
    config.addinivalue_line("markers", "cases(n): n cases of the function are enough for CI; the others are `whole`")


def pytest_addoption(parser):
    parser.addoption("--cases", type=int, metavar="N", help="only N cases of each test function, the first among them")
    parser.addoption("--per-file", type=int, metavar="N", help="only N tests of each file, the first among them")


def keep_some(config, items, n, group_of):
    """Deselects all but n items of each group: keeps the first, and others at equal distances."""
    groups = collections.defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)
    kept = {group[i * len(group) // n] for group in groups.values() for i in range(n)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def choose_varied(items, n):
    """Chooses n cases of one function. First each value of each parameter has a case, then each pair of values."""
    traits = {}
    for item in items:
        values = [(name, id(value)) for name, value in item.callspec.params.items()]
        traits[item] = set(values), set(itertools.combinations(values, 2))
    chosen, values, pairs = [], set(), set()
    while len(chosen) < min(n, len(items)):
        best = max((item for item in items if item not in chosen),
                   key=lambda item: (len(traits[item][0] - values), len(traits[item][1] - pairs)))
        chosen.append(best)
        values |= traits[best][0]
        pairs |= traits[best][1]
    return chosen


def mark_whole(items):
    """Marks the cases that `cases(n)` leaves out of CI."""
    functions = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("cases"):
            functions[item.nodeid.split("[")[0]].append(item)
    for cases in functions.values():
        chosen = set(choose_varied(cases, cases[0].get_closest_marker("cases").args[0]))
        for item in cases:
            if item not in chosen:
                item.add_marker("whole")


@pytest.hookimpl(hookwrapper=True)  # marks before -m, and sorts after it
def pytest_collection_modifyitems(config, items):
    """Sorts the longest files first, so that parallel processes end at about the same time. Applies --cases and
    --per-file."""
    mark_whole(items)
    yield
    if config.getoption("--cases"):
        keep_some(config, items, config.getoption("--cases"), lambda item: item.nodeid.split("[")[0])
    if config.getoption("--per-file"):
        keep_some(config, items, config.getoption("--per-file"), lambda item: item.path)
    long = ("long_copies", "memory", "read_back", "long_messages", "golden", "gateway_faults", "known_bodies", "agents_page", "long_recall",
            "large_answers", "rollouts_whole", "clients", "tokens_corpus", "runner", "rollouts", "traces", "tasks", "router_relay",
            "gateway_signatures", "engine_obedience", "gateway_odd_engines", "waits", "history", "leaks", "endings", "scripts", "long_bulk",
            "control_bodies", "left_finish", "long_values", "upgrade", "sinks", "snapshots_faults", "scoring", "events", "discovery")
    rank = {f"test_{name}": n for n, name in enumerate(long)}
    items.sort(key=lambda item: rank.get(item.module.__name__, len(rank)))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Collects without the garbage collector: collecting makes no garbage, and every process collects all tests."""
    gc.disable()
    yield
    gc.enable()


def pytest_collection_finish():
    """Freezes the collection's objects, which live to the end, so that the garbage collector ignores them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def start():
    """start(workers=2, ...) returns a serving Gateway."""
    def make(**settings):
        return g.Gateway(**settings).start()
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    return make


@pytest.fixture
def stub():
    """stub(workers=2, ...) returns a Gateway whose children only answer (supervisor_stub.c). It is not started."""
    def make(**settings):
        return g.Gateway(binary=g.STUB, **settings)
    if not g.STUB.exists():
        pytest.skip(f"{g.STUB} is not built")
    return make


@pytest.fixture
def engine():
    """engine("a", ...) returns a running stub that answers everything. stub=: its class."""
    running = []

    def make(*args, stub=StubEngine, **options):
        e = stub(*args, **options)
        e.otherwise = lambda body: {"ids": list(b"ok") + [257], "matched": 257}
        running.append(e.__enter__())
        return e
    yield make
    for e in running:
        if e.loop.is_running():
            e.__exit__()


@pytest.fixture
def small_disk(tmp_path):
    """small_disk("4m") returns a folder that is a file system of that size. Skips the test if none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def make(size):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True,
                          check=False).returncode:
            pytest.skip("cannot mount a tmpfs here")
        return disk
    yield make
    if disk.is_mount():
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def vision(start, tmp_path):
    """vision(**settings) returns engine and gateway of a model that takes images. vision.engines lists all engines."""
    engines = []

    def make(kind="sglang", stub=None, processor=kit.PROCESSOR, made_by=kit.VisionStub, **settings):
        engine = made_by(kind, **(stub or {})).__enter__()
        engines.append(engine)
        engine.otherwise = lambda body: kit.GOOD
        folder = tmp_path / "vision-model"
        if not folder.exists():
            kit.model_folder(folder, processor)
        settings.setdefault("workers", 1)
        gateway = start(engine=engine.setting, model=folder, **settings)
        if kind != "llamacpp" and processor == kit.PROCESSOR and "routed_experts" not in settings:
            g.wait_until(lambda: len(engine.looks) >= settings["workers"], what="every worker asks how the engine takes images")
        return engine, gateway
    make.engines = engines
    yield make
    for e in engines:
        e.__exit__()


@pytest.fixture
def shared():
    if not g.SHARED.exists():
        pytest.skip("../shared is absent")
    return g.SHARED


class Kept:
    """Gateways that the tests of a file share: equal settings return the same gateway. For tests that only read, that
    are refused, or that use sessions of their own."""

    open = 0    # number of shared gateways of this process, whose connections open and close during other tests of the file

    def __init__(self):
        self.made = {}      # settings -> (engine or None, gateway)

    def _get(self, kind, settings):
        key = repr((kind, sorted(settings.items())))
        if key not in self.made:
            engine = StubEngine(kind).__enter__() if kind else None
            gateway = g.Gateway(**settings, **({"engine": engine.setting} if engine else {}))
            g.Gateway.everybody.remove(gateway)     # the gateway outlives the test
            self.made[key] = engine, gateway
            Kept.open += 1
            gateway.start()
        assert self.made[key][1].process, "the gateway of this file did not start"
        return self.made[key]

    def gateway(self, **settings):
        return self._get(None, settings)[1]

    def pair(self, kind, **settings):
        """Returns (engine, gateway): a stub engine of that kind, without requests and plan."""
        engine, gateway = self._get(kind, settings)
        engine.plan.clear()
        engine.requests.clear()
        engine.otherwise = None
        return engine, gateway

    def faults(self):
        """Returns error lines that the last test did not announce."""
        found = []
        for _, gateway in self.made.values():
            found += [f"log: {line}" for line in gateway.unasked_errors()]
            gateway.checked, gateway.allowed = len(gateway.log()), []
        return found

    def end(self):
        """Ends all gateways after the last test. Returns all faults that check() finds."""
        found = []
        for engine, gateway in self.made.values():
            try:
                own = check(gateway)
            except Exception as e:  # a stuck gateway must not prevent the end of the others
                own = [f"{type(e).__name__}: {e}"]
            found += own
            if own:
                print(f"--- log of {gateway.port} ---\n{gateway.log()[-6000:] if gateway.process else ''}")
            gateway.destroy()
            if engine:
                engine.__exit__()
            Kept.open -= 1
        g.release_ports()
        return found


@pytest.fixture(scope="module")
def kept_of_file():
    before, kept = descriptors(), Kept()
    yield kept
    faults = kept.end()
    assert not faults, "\n".join(faults)
    g.wait_until(lambda: descriptors() <= before, 3, "descriptors are back")


@pytest.fixture
def kept(kept_of_file):
    """kept.gateway(workers=1, ...), kept.pair("sglang", workers=1, ...): like start(), but tests of the file with
    equal settings share the gateway."""
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    yield kept_of_file
    faults = kept_of_file.faults()
    assert not faults, "\n".join(faults)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def check(gateway):
    """Stops one gateway at the end of a test. Returns everything that is wrong with it."""
    faults = []
    if gateway.process is None:
        return faults
    ended_by_test = gateway.process.poll() is not None
    status = gateway.process.returncode if ended_by_test else gateway.stop(60)
    if not ended_by_test and status != 0:
        faults.append(f"exit status {status} on SIGTERM")
    try:
        g.wait_until(lambda: not gateway.leftovers(), 10, "all processes end")
    except AssertionError:
        faults.append(f"processes left: {gateway.leftovers()}")
        for pid in gateway.leftovers():
            os.kill(pid, signal.SIGKILL)
    try:  # the kernel frees the memory of a killed process before its sockets, so its port may still be in use
        g.wait_until(lambda: is_free(gateway.port), 10, "the port is free")
    except AssertionError:
        faults.append(f"port {gateway.port} is still taken")
    faults += [f"log: {line}" for line in gateway.unasked_errors()]
    return faults


def check_all(gateways):
    """Checks and removes these gateways. Returns everything that is wrong with them."""
    faults = []
    for gateway in gateways:
        try:
            faults += check(gateway)
        except Exception as e:  # a stuck gateway must not prevent the end of the others
            faults.append(f"{type(e).__name__}: {e}")
        if faults:
            print(f"--- log of {gateway.port} ---\n{gateway.log()[-6000:] if gateway.process else ''}")
        gateway.destroy()
    return faults


@pytest.fixture(scope="module", autouse=True)
def hygiene_of_file():
    """Checks the gateways of the file's own fixtures after they have ended."""
    g.Gateway.everybody.clear()
    yield
    faults = check_all(g.Gateway.everybody)
    g.release_ports()
    assert not faults, "\n".join(faults)


@pytest.fixture(autouse=True)
def hygiene(request, hygiene_of_file):
    before, n_of_file = descriptors(), len(g.Gateway.everybody)
    yield
    faults = check_all(g.Gateway.everybody[n_of_file:])
    del g.Gateway.everybody[n_of_file:]
    g.release_ports()
    if getattr(request.module, "KEEPS_CONNECTIONS", False) or "kept" in request.fixturenames or Kept.open:
        before = 1 << 20  # fake servers or gateways of the file have connections; kept_of_file counts at its end
    if descriptors() > before:
        gc.collect()  # frees sockets in reference cycles
    try:  # threads of the test may still be closing their descriptors
        g.wait_until(lambda: descriptors() <= before, 3, "descriptors are back")
    except AssertionError:
        faults.append(f"the test leaks {descriptors() - before} descriptors")
    assert not faults, "\n".join(faults)
