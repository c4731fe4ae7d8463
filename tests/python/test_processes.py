"""Clients in forked processes, in several event loops, and through pickle."""
import asyncio
import copy
import gc
import json
import os
import pickle
import select
import ssl
import sys
import threading
import traceback
import warnings
import weakref

import pytest

import gateway as g
import rollgate
from http_stub import Handler, HttpStub
from rollgate import errors, hooks, records
from test_trajectories import exported     # noqa: F401


class Mirror(HttpStub):
    """A server whose answers name the path that was asked and the connection that carried it. /groups/slow waits for `go`."""

    def __init__(self):
        mirror = self
        self.opened = self.closed = self.waiting = 0
        self.go = threading.Event()

        class Reflection(Handler):
            def setup(self):
                mirror.opened += 1
                self.number = mirror.opened
                super().setup()

            def finish(self):
                super().finish()
                mirror.closed += 1

            def do_GET(self):
                body = json.dumps({"path": self.path, "connection": self.number}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.path.endswith("slow"):
                    mirror.waiting += 1
                    mirror.go.wait(30)
                self.wfile.write(body)
        super().__init__(Reflection)

    def close(self):
        self.go.set()
        super().close()


class Fork:
    """A forked process that runs `work` and sends its value; it lives until `end`."""

    def __init__(self, work):
        self.answer, answer = os.pipe()
        hold, self.hold = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(answer)
            os.close(hold)
            return
        try:
            os.close(self.hold)
            os.write(answer, json.dumps(work()).encode())
            os.close(answer)
            os.read(hold, 1)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(0)

    def value(self):
        g.wait_until(lambda: bool(select.select([self.answer], [], [], 0)[0]), 20, "the child answers")
        return json.loads(os.read(self.answer, 1 << 16))

    def end(self):
        os.close(self.hold)
        os.close(self.answer)
        os.waitpid(self.pid, 0)


@pytest.fixture
def fork():
    made = []

    def make(work):
        made.append(Fork(work))
        return made[-1]
    yield make
    for child in made:
        child.end()


def test_a_forked_process_opens_its_own_connection(fork):
    with Mirror() as mirror, rollgate.Client(mirror.url) as client:
        assert client.group("before") == {"path": "/groups/before", "connection": 1}
        child = fork(lambda: [client.group("child"), client.group("again")])
        mine = [client.group(f"p{i}") for i in range(3)]
        assert [x["path"] for x in child.value()] == ["/groups/child", "/groups/again"]
        assert [x["path"] for x in mine] == [f"/groups/p{i}" for i in range(3)] and {x["connection"] for x in mine} == {1}
        assert mirror.opened == 2


def test_a_forked_process_holds_no_connection_of_its_parent(fork):
    """Else the gateway would not see that the parent closed one, and a cancelled call would go on."""
    with Mirror() as mirror, rollgate.Client(mirror.url) as client:
        client.group("before")
        fork(lambda: "lives").value()
        client.close()
        g.wait_until(lambda: mirror.closed == 1, 10, "the server sees the end of the connection")


def test_a_fork_while_other_threads_read_and_hold_the_lock(fork):
    with Mirror() as mirror, rollgate.Client(mirror.url) as client:
        got = []
        thread = threading.Thread(target=lambda: got.append(client.group("slow")))
        thread.start()
        g.wait_until(lambda: mirror.waiting == 1, 10, "the thread reads")
        with client._lock:
            child = fork(lambda: [client.group("child"), client.close()])
        assert child.value() == [{"path": "/groups/child", "connection": 2}, None]
        mirror.go.set()
        thread.join(10)
        assert got == [{"path": "/groups/slow", "connection": 1}]


def test_a_forked_process_has_an_async_client_of_its_own(fork):
    with Mirror() as mirror:
        client = rollgate.AsyncClient(mirror.url)

        async def scene():
            await client.group("before")
            child = fork(lambda: asyncio.run(ask(client, "child")))
            mine = [await client.group(f"p{i}") for i in range(3)]
            got = await asyncio.to_thread(child.value)
            await client.close()
            return got, mine
        got, mine = asyncio.run(scene())
        assert got == {"path": "/groups/child", "connection": 2} and {x["connection"] for x in mine} == {1}
        g.wait_until(lambda: mirror.closed == 2, 10, "no process holds a connection of the other")


async def ask(client, name):
    try:
        return await client.group(name)
    finally:
        await client.close()
        await asyncio.sleep(0.02)


def test_an_async_client_serves_a_second_event_loop():
    with Mirror() as mirror:
        client = rollgate.AsyncClient(mirror.url, connections=1)
        assert asyncio.run(client.group("first"))["connection"] == 1
        assert asyncio.run(client.group("second"))["connection"] == 2
        g.wait_until(lambda: mirror.closed == 1, 10, "the connection of the closed loop is closed")
        asyncio.run(client.close())

        async def crowd():      # more calls than connections: they wait in the loop that made them
            got = await asyncio.gather(*(client.group(f"c{i}") for i in range(4)))
            await client.close()
            await asyncio.sleep(0.02)
            return got
        for _ in range(2):
            assert [x["path"] for x in asyncio.run(crowd())] == [f"/groups/c{i}" for i in range(4)]


def test_an_async_client_serves_two_loops_at_once():
    with Mirror() as mirror:
        client = rollgate.AsyncClient(mirror.url, connections=1)

        async def several(name):
            got = [(await x)["connection"] for x in [client.group(f"{name}{i}") for i in range(20)]]
            await client.close()
            await asyncio.sleep(0.02)
            return got
        got = g.in_parallel(lambda i: asyncio.run(several(f"t{i}-")), range(4))
        assert all(len(set(numbers)) == 1 for numbers in got.values()) and mirror.opened == 4


def test_closed_event_loops_are_freed():
    """Trainers make a loop a step; a client that stays must not keep them, nor their connections."""
    with Mirror() as mirror:
        client = rollgate.AsyncClient(mirror.url)

        async def ask():
            await client.group("a")
            await hooks.connect(mirror.url).group("b")
            assert hooks.connect(mirror.url) is hooks.connect(mirror.url) is not hooks.connect(mirror.url, waits=True)
            return weakref.ref(asyncio.get_running_loop())
        loops = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)     # nobody closes them: that is the case
            for _ in range(3):
                loops.append(asyncio.run(ask()))
            gc.collect()
        assert [loop() for loop in loops] == [None] * 3
        g.wait_until(lambda: mirror.closed == mirror.opened == 6, 10, "their connections are closed")


# --- pickle ---

COPIES = [lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)] + [copy.deepcopy]


def arrays_of(t):
    return {name: getattr(t, name) for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "response_versions")}


def test_closed_event_loops_are_freed():
    """Trainers make a loop a step; a client that stays must not keep them, nor their connections."""
    with Mirror() as mirror:
        client = rollgate.AsyncClient(mirror.url)

        async def ask():
            await client.group("a")
            await hooks.connect(mirror.url).group("b")
            assert hooks.connect(mirror.url) is hooks.connect(mirror.url) is not hooks.connect(mirror.url, waits=True)
            return weakref.ref(asyncio.get_running_loop())
        loops = []
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)     # nobody closes them: that is the case
                loops.append(asyncio.run(ask()))
                gc.collect()
        assert [loop() for loop in loops] == [None] * 3
        g.wait_until(lambda: mirror.closed == mirror.opened == 6, 10, "their connections are closed")


@pytest.mark.parametrize("form", ["msgpack", "safetensors", "json"])
def test_exports_and_trajectories_can_be_pickled(exported, form):    # noqa: F811
    client, session_id, _ = exported
    export = client.finalize(session_id, form)
    for copied in COPIES:
        whole = copied(export)
        assert repr(whole) == repr(export) and whole.summary == export.summary and vars(whole).keys() == vars(export).keys()
        for mine, t in zip([*whole, copied(export[0])], [*export, export[0]]):
            assert not rollgate.diff(mine, t) and repr(mine) == repr(t) and dict(mine).keys() == dict(t).keys()
            for name, array in arrays_of(t).items():
                assert (arrays_of(mine)[name] == array).all() and arrays_of(mine)[name].dtype == array.dtype, name
        assert (rollgate.pad(whole)["input_ids"] == rollgate.pad(export)["input_ids"]).all()


def test_tensors_can_be_pickled(exported):      # noqa: F811
    client, session_id, _ = exported
    tensors = client.finalize(session_id, "verl")
    for copied in COPIES:
        mine = copied(tensors)
        assert mine.notes == tensors.notes and all((mine[k] == tensors[k]).all() for k in tensors) and repr(mine) == repr(tensors)


def test_a_trajectory_is_pickled_without_its_neighbours():
    """A view of a large answer would carry the whole of it to every Ray worker; buffers go by themselves in protocol 5."""
    large = memoryview(bytes(4 << 20))
    fields = {"prompt_ids": large[:400].cast("i"), "response_ids": None, "turns": [{"start": 0}]}
    t = rollgate.Trajectory(fields, [{"sha256": "a", "data": large[400:500]}])
    assert len(pickle.dumps(t)) < 4096
    buffers = []
    rest = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert [len(b.raw()) for b in buffers] == [400, 100] and len(rest) < 1024
    again = pickle.loads(rest, buffers=buffers)
    assert again["prompt_ids"].format == "i" and len(again["prompt_ids"]) == 100


def test_an_export_is_pickled_with_one_table_of_images():
    """Each of its trajectories refers to the same pictures."""
    row = {"sha256": "a", "data": memoryview(bytes(1 << 20))}
    bare = {"prompt_ids": [1], "response_ids": [2], "images": [{"media": "a"}]}
    export = records.Export({"session_id": "s", "phase": "finalized", "summary": {"media": [row]}, "trajectories": [bare] * 4})
    text = pickle.dumps(export)
    assert len(text) < 1.5 * (1 << 20)
    again = pickle.loads(text)
    assert [t.image_files() for t in again] == [[bytes(1 << 20)]] * 4


def test_clients_can_be_pickled():
    with Mirror() as mirror, rollgate.Client(mirror.url, "the-key", timeout=5, retry_s=1) as client:
        client.group("before")
        for copied in COPIES:
            with copied(client) as mine:
                assert mine.group("x")["connection"] > 1 and (mine.key, mine.timeout, mine.retry_s) == ("the-key", 5, 1)
        other = rollgate.AsyncClient(mirror.url, "the-key", connections=3)
        mine = pickle.loads(pickle.dumps(other))
        assert asyncio.run(ask(mine, "y"))["path"] == "/groups/y" and (mine.key, mine._limit) == ("the-key", 3)
    for kind in (rollgate.Client, rollgate.AsyncClient):
        with pytest.raises(TypeError, match="TLS context"):
            pickle.dumps(kind("https://127.0.0.1:1", tls=ssl.create_default_context()))


def test_errors_can_be_pickled():
    """A Ray worker's error reaches its trainer by pickle."""
    error = errors.from_answer(429, {"retry-after": "2", "x-should-retry": "true"}, b'{"error": {"message": "m", "code": "overloaded"}}')
    mine = pickle.loads(pickle.dumps(error))
    assert type(mine) is errors.Overloaded and str(mine) == str(error) and vars(mine) == vars(error)
    failed = hooks.RolloutFailed({"id": "g", "state": "failed", "succeeded": 0, "n": 1, "members": [{"outcome": "error", "reason": "r"}]})
    mine = pickle.loads(pickle.dumps(failed))
    assert str(mine) == str(failed) and mine.result == failed.result
