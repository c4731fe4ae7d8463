"""Client and AsyncClient against a real gateway, and against servers that misbehave."""
import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import gateway as g
import rollgate
from http_stub import Handler, HttpStub
from rollgate import errors
from rollgate.records import reader

FORMATS = ("json", "msgpack", "safetensors", "verl", "miles", "areal", "slime", "prime-rl", "openai-messages", "prefix-tree",
           "skyrl", "nemo-gym", "atif")


class Blocking:
    """An AsyncClient whose calls block: both clients pass the same tests."""

    def __init__(self, url, key=None, **more):
        self.loop = asyncio.new_event_loop()
        self.inner = rollgate.AsyncClient(url, key, **more)

    def __getattr__(self, name):
        method = getattr(self.inner, name)

        def call(*args, **more):
            got = method(*args, **more)
            if hasattr(got, "__aiter__"):
                return self.loop.run_until_complete(self.all(got))
            return self.loop.run_until_complete(got)
        return call

    async def all(self, rows):
        return [row async for row in rows]

    def close(self):
        self.loop.run_until_complete(self.inner.close())
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()


@pytest.fixture(params=[rollgate.Client, Blocking], ids=["threads", "asyncio"])
def connect(request):
    made = []

    def make(url, key=None, **more):
        made.append(request.param(url, key, **more))
        return made[-1]
    yield make
    for client in made:
        client.close()


def test_core_needs_the_standard_library_alone():
    code = ("import sys; sys.path.insert(0, %r)\n"
            "import rollgate, rollgate.executor, rollgate.pace, rollgate.redis_sink\n"
            "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'msgpack', 'torch', 'redis')])"
            % str(g.ROOT / "python"))
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "[]", out.stderr


def test_every_code_has_a_class():
    rows = re.search(r"^## Errors$(.*)", (g.ROOT / "docs/api.md").read_text(), re.M | re.S)[1]
    told = set(re.findall(r"^\| \d+ \| `(\w+)`", rows, re.M))
    assert len(told) > 40 and told <= set(errors.BY_CODE)
    assert len({c.__name__ for c in errors.BY_CODE.values()}) == len(errors.BY_CODE)


def test_a_session_from_beginning_to_end(start, connect):
    gateway = start(engine="builtin:echo")
    client = connect(gateway.url)
    s = client.create_session(labels={"task": "42"}, metadata={"uid": "u7"})
    answer = client.chat(s["session_id"], [{"role": "user", "content": "hello"}])
    assert answer["choices"][0]["message"]["content"]
    assert client.wait(s["session_id"], timeout_s=1) is None
    client.reward(s["session_id"], {"acc": 1, "reward": 0.25})
    client.complete(s["session_id"], finished=True)
    assert client.wait(s["session_id"])["phase"] == "completed"
    assert [x["session_id"] for x in client.all_sessions(label="task=42")] == [s["session_id"]]
    assert client.session(s["session_id"])["session_id"] == s["session_id"]
    assert len(client.session(s["session_id"], records=True)["records"]) == 1
    look = client.trajectories(s["session_id"], drift=False)
    assert look[0].reward == 0.25 and look[0]["uid"] == "u7"
    for form in FORMATS:
        assert client.finalize(s["session_id"], form) is not None, form
    with pytest.raises(errors.SessionEnded) as e:
        client.chat(s["session_id"], [{"role": "user", "content": "again"}])
    assert e.value.status == 410 and not e.value.retry and e.value.request_id
    client.delete(s["session_id"])
    client.abort(s["session_id"])
    with pytest.raises(errors.SessionEnded):
        client.session(s["session_id"])


def test_the_figures_of_the_run_and_a_trainers_logprobs(start, connect):
    client = connect(start(engine="builtin:echo").url)
    s = client.create_session(labels={"task": "42"})["session_id"]
    client.chat(s, [{"role": "user", "content": "hello"}])
    client.complete(s, 1.0)
    [t] = client.finalize(s)
    stats = client.stats(by="task")
    assert stats["total"]["sessions"] == 1 and stats["total"]["reward_mean"] == 1
    assert [r["name"] for r in stats["rows"]] == ["42"]
    assert client.stats(start=60, end=120, step=60)["total"]["sessions"] == 0
    own = [float(v) for v in t.response_logprobs]
    own[0] -= 0.5
    own[1] = float("nan")
    told = client.report_logprobs(t, own, version=8, session_id=s)
    assert told["turns"] == 1 and told["tokens"] == len(own) - 1 and told["max"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match=f"1 logprobs for {len(own)} response ids"):
        client.report_logprobs(t, own[:1], version=8, session_id=s)
    with pytest.raises(errors.RollgateError) as e:
        client.report_logprobs(t, [v + 1e3 for v in own], version=8, session_id=s)
    assert e.value.status == 400 and "turns[0].logprobs[0]" in str(e.value)


def test_engines_come_and_go(start, connect):
    client = connect(start(engine="a=builtin:echo").url)
    assert [e["name"] for e in client.engines()["engines"]] == ["a"]
    assert client.add_engines(["b=builtin:echo"])["added"] == ["b"]
    assert client.remove_engines(["a"], timeout_s=1)["removed"] == ["a"]
    with pytest.raises(errors.RollgateError) as e:
        client.remove_engines(["a"])
    assert e.value.status == 404
    done = client.set_engines(["c=builtin:echo", "d=builtin:echo"], probe=False)
    assert done["added"] == ["c", "d"] and done["removed"] == ["b"] and done["edition"] == 3


def test_run_control(start, connect):
    client = connect(start(engine="builtin:echo").url)
    s = client.create_session(max_turns=1, labels={"step": "1"})["session_id"]
    client.chat(s, [{"role": "user", "content": "a"}])
    with pytest.raises(errors.BudgetExhausted) as e:
        client.chat(s, [{"role": "user", "content": "b"}])
    assert e.value.param == "max_turns" and not e.value.retry
    made = client.fork(s, labels={"step": "2"})
    assert made["forked_from"] == s and client.session(made["session_id"])["stop_reason"] is None
    client.complete(s, stopped_by="infrastructure", reason="lost")
    assert client.session(s)["stop_reason"] == {"by": "infrastructure", "reason": "stated", "said": "lost"}
    assert client.finalize_all({"step": "2"}) == {"status": "ok", "ended": 1, "failed": 0}
    assert client.abort_all({"step": 1}, stopped_by="agent")["ended"] == 1


def test_groups_of_sessions_and_admin(start, connect):
    gateway = start(engine="builtin:echo")
    client = connect(gateway.url)
    made = client.create_session(count=3)["sessions"]
    assert len({s["session_id"] for s in made}) == 3
    client.weight_version(7)
    client.pause("hold")
    client.resume()
    client.chat(made[0]["session_id"], [{"role": "user", "content": "x"}])
    export = client.finalize(made[0]["session_id"])
    assert export.rollout == 0 and export.group_size == 3 and export[0].versions == (7, 7)
    assert any(name.startswith("rollgate_") for name in client.metrics())
    assert client.health() is not None and client.ready() is not None


def test_what_is_wrong_is_told(start, connect):
    gateway = start(engine="builtin:echo")
    client = connect(gateway.url)
    with pytest.raises(errors.InvalidRequest) as e:
        client.create_session(labls={})
    assert e.value.param == "labls" and "labels" in str(e.value)
    with pytest.raises(errors.UnknownSession):
        client.session("w0-" + "0" * 32)
    with pytest.raises(ValueError, match="format must be one of"):
        reader("parquet")
    with pytest.raises(TypeError, match="a reward is a number"):
        client.reward("w0-" + "0" * 32, "good")
    with pytest.raises(ValueError, match="URL"):
        rollgate.Client("localhost:8600")


def test_a_stream_is_refused_before_the_engine_is_asked(start, connect):
    client = connect(start(engine="builtin:echo").url)
    sid = client.create_session()["session_id"]
    with pytest.raises(ValueError, match="chat does not stream"):
        client.chat(sid, [{"role": "user", "content": "x"}], stream=True)
    client.chat(sid, [{"role": "user", "content": "y"}], stream=False)
    assert client.finalize(sid).summary["calls"] == 1


def test_keys(start, connect, tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text("the-admin-of-this-test\n")
    path.chmod(0o600)
    gateway = start(engine="builtin:echo", admin_key_file=path)
    with pytest.raises(errors.MissingKey):
        connect(gateway.url).create_session()
    monkeypatch.setenv("ROLLGATE_KEY_FILE", str(path))
    admin = connect(gateway.url)
    s = admin.create_session()
    agent = connect(gateway.url, s["api_key"])
    agent.chat(s["session_id"], [{"role": "user", "content": "x"}])
    with pytest.raises(errors.WrongScope):
        agent.reward(s["session_id"], 1)
    agent.reward(s["session_id"], 1, key=s["runner_key"])
    agent.complete(s["session_id"], key=s["runner_key"])
    assert admin.finalize(s["session_id"])[0].reward == 1.0


# --- servers that misbehave ---

class Fake(HttpStub):
    """A server that answers by a plan: each entry is (status, headers, body) or "close"."""

    def __init__(self, *plan):
        fake = self
        self.plan, self.asked, self.heads, self.connections = list(plan), [], [], 0

        class Plan(Handler):
            def setup(self):
                fake.connections += 1
                super().setup()

            def do(self):
                fake.asked.append((self.command, self.path, self.body()))
                fake.heads.append(self.headers)
                step = fake.plan.pop(0) if fake.plan else (200, {}, b"{}")
                if step == "close":
                    self.close_connection = True
                    return
                status, headers, body = step
                if "Transfer-Encoding" in headers:
                    self.send_response(status)
                    for k, v in headers.items():
                        self.send_header(k, v)
                    self.end_headers()
                    for piece in (body[:3], body[3:]):
                        self.wfile.write(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\nTail: 1\r\n\r\n")
                    return
                self.answer(status, body, **headers)
            do_GET = do_POST = do_PUT = do_DELETE = do
        super().__init__(Plan)


def refusal(status, code, **headers):
    body = json.dumps({"error": {"message": "no", "code": code}}).encode()
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, body


def test_is_sent_again_as_the_gateway_asks(connect):
    with Fake(refusal(429, "overloaded", x_should_retry="true", Retry_After="0.2"),
              refusal(503, "draining", x_should_retry="true")) as fake:
        began = time.monotonic()
        assert connect(fake.url).pause("hold") == {}
        assert len(fake.asked) == 3 and time.monotonic() - began >= 0.2
        assert fake.connections == 1, "connections are kept"


def test_long_reports_are_several_requests(connect):
    n = [12_000, 12_000, 12_000, 60_000, 10]
    ends = [sum(n[:i + 1]) for i in range(len(n))]
    turns = [{"response_id": f"r{i}", "start": end - n[i], "end": end} for i, end in enumerate(ends)]
    t = {"session_id": "s", "response_ids": [100_000] * ends[-1], "turns": turns}

    def answer(turns, tokens, mean, most):
        told = {"status": "ok", "turns": turns, "tokens": tokens, "mean": mean, "mean_abs": mean, "p99": most, "max": most}
        return 200, {}, json.dumps(told).encode()
    with Fake(answer(2, 30, 0.5, 0.75), answer(1, 10, 0.1, 2.0), answer(1, 0, None, None), answer(1, 10, 0.0, 0.0)) as fake:
        told = connect(fake.url).report_logprobs(t, [-0.123456789] * ends[-1], version=8)
        bodies = [body for _, path, body in fake.asked if path == "/sessions/s/logprobs"]
    sent = [json.loads(body) for body in bodies]
    assert [[turn["response_id"] for turn in one["turns"]] for one in sent] == [["r0", "r1"], ["r2"], ["r3"], ["r4"]]
    assert {one["version"] for one in sent} == {8} and max(len(b) for i, b in enumerate(bodies) if i != 2) <= 512 << 10
    assert [len(turn["ids"]) for one in sent for turn in one["turns"]] == n
    assert told == {"status": "ok", "turns": 5, "tokens": 50, "mean": pytest.approx(0.32), "mean_abs": pytest.approx(0.32),
                    "p99": 2.0, "max": 2.0}


def test_the_gateway_takes_a_report_in_requests(start, connect, monkeypatch):
    client = connect(start(engine="builtin:echo").url)
    s, messages = client.create_session()["session_id"], []
    for text in ("hello", "and on"):
        messages.append({"role": "user", "content": text})
        messages.append(client.chat(s, messages)["choices"][0]["message"])
    [t] = client.finalize(s)
    own = [float(v) - 0.5 for v in t.response_logprobs]
    whole = client.report_logprobs(t, own, version=8, session_id=s)
    monkeypatch.setattr("rollgate.calls.REPORT_BYTES", 1)
    told = client.report_logprobs(t, own, version=9, session_id=s)
    assert told["turns"] == whole["turns"] == 2 and told["tokens"] == whole["tokens"]
    assert told["mean"] == pytest.approx(whole["mean"]) and told["max"] == pytest.approx(whole["max"])


def test_is_not_sent_again_otherwise(connect):
    with Fake(refusal(503, "storage_full", x_should_retry="false")) as fake:
        with pytest.raises(errors.StorageFull):
            connect(fake.url).pause()
        assert len(fake.asked) == 1
    with Fake(*[refusal(503, "storage_full", x_should_retry="true")] * 99) as fake:
        with pytest.raises(errors.StorageFull):
            connect(fake.url, retry_s=0.5).pause()
        assert 2 <= len(fake.asked) < 9


def test_what_came_too_slowly_is_sent_again(connect):
    """As of a machine that stood still. Nothing of it was done: sessions are asked for again, too."""
    with Fake(refusal(408, "request_timeout", x_should_retry="false"), (201, {}, b'{"session_id": "s"}')) as fake:
        assert connect(fake.url).create_session() == {"session_id": "s"}
        assert len(fake.asked) == 2


def test_lost_answers_are_asked_for_again_where_that_is_safe(connect):
    with Fake("close", (200, {}, b'{"state": "x"}')) as fake:
        assert connect(fake.url).group("g") == {"state": "x"}
        assert len(fake.asked) == 2
    with Fake("close") as fake:     # a session may have been made
        with pytest.raises(errors.Unreachable):
            connect(fake.url).create_session()
        assert len(fake.asked) == 1
    with Fake("close") as fake:     # groups without ids would be made twice
        with pytest.raises(errors.Unreachable):
            connect(fake.url).submit([{"runner": "r", "input": 1}])
        assert len(fake.asked) == 1


def test_every_try_of_a_chat_has_its_key(connect):
    """The gateway may have seen the answer leave: the same body once more would be a sample more, and trained."""
    again = refusal(503, "engine_unavailable", x_should_retry="true")
    with Fake(again, "close", again, "close") as fake:
        assert connect(fake.url).chat("s", [{"role": "user", "content": "x"}]) == {}
        keys = [h.get("idempotency-key") for h in fake.heads]
        assert len(keys) == 5 and keys[0] and len(set(keys)) == 1
        assert connect(fake.url).chat("s", [{"role": "user", "content": "x"}]) == {}
        assert fake.heads[-1]["idempotency-key"] != keys[0], "another call, another sample"
        assert len({body for _, _, body in fake.asked}) == 1


class Losing:
    """Passes bytes to a gateway and back, and keeps back the first answer that `of` asks for: it has left the gateway."""

    def __init__(self, port, of):
        self.port, self.of, self.kept, self.client = port, of, 0, None
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self.port)) as gateway:
                self.client = client
                self.exchanges(client, gateway)

    def exchanges(self, client, gateway):
        while request := self.message(client):
            gateway.sendall(request)
            answer = self.message(gateway)
            if self.of in request and not self.kept:
                self.kept += 1
                return
            client.sendall(answer)

    @staticmethod
    def message(source):
        got = b""
        while b"\r\n\r\n" not in got:
            part = source.recv(1 << 16)
            if not part:
                return got
            got += part
        head, _, body = got.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: *(\d+)", head)
        while len(body) < (int(found.group(1)) if found else 0):
            body += source.recv(1 << 16)
        return head + b"\r\n\r\n" + body

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (self.server, self.client):
            one.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join(10)


def test_a_lost_answer_is_no_second_sample(start, connect):
    gateway = start(engine="builtin:echo")
    admin = connect(gateway.url)
    sid = admin.create_session()["session_id"]
    with Losing(gateway.port, b"/v1/chat/completions") as between:
        client = connect(between.url)
        answer = client.chat(sid, [{"role": "user", "content": "x"}])
        assert between.kept == 1 and answer["choices"][0]["message"]["content"]
    assert admin.finalize(sid).summary["calls"] == 1


def test_silence_ends_with_the_time_out(connect):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3, retry_s=0)
        began = time.monotonic()
        with pytest.raises(errors.Unreachable):
            client.group("g")
        assert time.monotonic() - began > 0.2
    with pytest.raises(errors.Unreachable, match="cannot be reached"):
        connect("http://127.0.0.1:9", retry_s=0).group("g")


def test_answers_that_are_none(connect):
    with Fake((200, {}, b"{"), (502, {"x-should-retry": "false"}, b"<html>bad gateway</html>")) as fake:
        client = connect(fake.url)
        with pytest.raises(errors.BadAnswer):
            client.group("g")
        with pytest.raises(errors.RollgateError, match="bad gateway") as e:
            client.group("g")
        assert e.value.status == 502


def test_chunked_answers(connect):
    with Fake((200, {"Transfer-Encoding": "chunked"}, b'{"a": 1}')) as fake:
        client = connect(fake.url)
        assert client.group("g") == {"a": 1} and client.group("h") == {}
        assert fake.connections == 1


def test_names_in_paths_are_quoted(connect):
    with Fake() as fake:
        connect(fake.url).group("a/../b?c")
        assert fake.asked[0][1] == "/groups/a%2F..%2Fb%3Fc"


def test_one_connection_a_thread(start):
    """Closed when its thread is over: a trainer may have begun any number of threads."""
    gateway = start(engine="builtin:echo")
    seen = set()

    def five(i):
        ids = []
        for _ in range(5):
            ids.append(client.create_session()["session_id"])
            seen.add(client._connection())
        return ids
    with rollgate.Client(gateway.url) as client:
        ids = g.in_parallel(five, range(8))
        assert len({x for some in ids.values() for x in some}) == 40 and len(seen) == 8
        g.wait_until(lambda: all(c.sock is None for c in seen), 10, "the connections are closed")
        seen.clear()
        assert len(client._all) == 0, "nor is any of them kept"


def test_in_a_process_with_many_descriptors():
    """select takes none above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("no more than 1024 descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    null = os.open("/dev/null", os.O_RDONLY)
    many = [null]
    try:
        while many[-1] < 1100:
            many.append(os.dup(null))
        with Fake() as fake, rollgate.Client(fake.url) as client:
            for _ in range(2):
                assert client.group("g") == {}
            assert fake.connections == 1
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
