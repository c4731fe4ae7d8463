"""Exports of a long history: a helper audits it, and the JSON after the arrays is made in parts. The bytes equal
those of `rollgate export`, which uses one thread."""
import contextlib
import json
import socket
import subprocess

import msgpack
import pytest

import gateway as g
from export_readers import compare_all
from test_faults import folder_of
from test_streaming import new

MESSAGES, TURNS = 300, 40
FORMATS = ("json", "msgpack", "safetensors", "verl", "miles", "areal", "slime", "prime-rl", "openai-messages", "prefix-tree",
           "skyrl", "nemo-gym", "atif")


def long_session(gateway, messages=MESSAGES, turns=TURNS, words=12):
    """Its id. A first call with so many messages, then so many turns, some of them with a reward of their own."""
    sid = new(gateway)["session_id"]
    said = [{"role": ("user", "assistant")[i % 2], "content": f"message {i} " + "word " * words} for i in range(messages - 1)]
    for i in range(turns):
        said = said + [{"role": "user", "content": f"turn {i}"}]
        a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": said, "max_tokens": 24})
        assert a.status == 200, a.text
        said.append({"role": "assistant", "content": a.json()["choices"][0]["message"]["content"]})
        if i % 7 == 0:
            reward = {"reward_info": {"score": i, "why": {"deep": [1, [2]]}}, "response_id": a.json()["id"]}
            assert gateway.post(f"/sessions/{sid}/reward_info", reward).status == 200
    assert gateway.post(f"/sessions/{sid}/reward_info", {"reward_info": {"reward": 0.5, "notes": ["a", None]}}).status == 200
    return sid


def helped(gateway):
    return gateway.metrics()["rollgate_helper_work_seconds_count"]


def exported(gateway, sid, form):
    a = gateway.get(f"/sessions/{sid}/trajectories?format={form}", timeout=60)
    assert a.status == 200, a.text[:500]
    return a.body


@pytest.mark.parametrize("form", FORMATS)
def test_bytes_are_those_of_the_command(start, form):
    gateway = start(engine="builtin:echo", workers=1, context_length=200_000)
    sid = long_session(gateway)
    before = helped(gateway)
    data = exported(gateway, sid, form)
    assert helped(gateway) > before, "no helper has audited it"
    out = subprocess.run([str(g.BINARY), "export", folder_of(gateway), "--session", sid, "--format", form],
                         capture_output=True, timeout=120, check=True).stdout
    assert data == (out.removesuffix(b"\n") if form == "json" else out)


def test_formats_agree(start):
    gateway = start(engine="builtin:echo", workers=1, context_length=200_000)
    sid = long_session(gateway)
    compare_all(lambda form: exported(gateway, sid, form))


def test_clients_that_leave_while_a_helper_audits(start):
    """Whoever leaves, and a session that is deleted meanwhile: nothing is lost of others, and nothing stays."""
    gateway = start(engine="builtin:echo", workers=1, context_length=1_000_000)
    sid = long_session(gateway, messages=1000, turns=1, words=60)
    for i in range(12):
        c = gateway.connect()
        c.request("GET", f"/sessions/{sid}/trajectories?format={('json', 'prefix-tree')[i % 2]}&drift=on&select=all_checkpoints")
        if i % 3 == 0:
            c.getresponse().read(1)
        c.close()
    data = json.loads(exported(gateway, sid, "json"))
    assert data["trajectories"][0]["extra_fields"]["drift"]["count"] == 0
    other = long_session(gateway, messages=1000, turns=1, words=60)
    c = gateway.connect()
    c.request("GET", f"/sessions/{other}/trajectories")
    assert gateway.request("DELETE", f"/sessions/{other}").status in (200, 204)
    c.close()
    assert gateway.get(f"/sessions/{other}").status == 410
    assert json.loads(exported(gateway, sid, "json"))["trajectories"]


def test_the_spool_has_the_same(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1, context_length=200_000, sink=f"file:{tmp_path}/out", export_retention="1h")
    sid = long_session(gateway)
    assert gateway.post(f"/sessions/{sid}/finalize", {}, timeout=60).status == 200
    g.wait_until((tmp_path / "out" / f"{sid}.msgpack").exists, 30, "the sink's file")
    read = msgpack.unpackb((tmp_path / "out" / f"{sid}.msgpack").read_bytes(), strict_map_key=False)["trajectories"][0]
    want = msgpack.unpackb(exported(gateway, sid, "msgpack"), strict_map_key=False)
    assert len(want["trajectories"]) == 1
    for name in ("messages", "turns", "reward_info", "turn_rewards", "num_turns", "prompt_ids", "response_ids"):
        assert read[name] == want["trajectories"][0][name], name


def test_a_worker_that_drains_ends_it(start):
    """SIGTERM while the audit runs, or behind it: the answer comes whole."""
    gateway = start(engine="builtin:echo", workers=1, context_length=1_000_000)
    sid = long_session(gateway, messages=1000, turns=1, words=60)
    c = gateway.connect()
    c.request("GET", f"/sessions/{sid}/trajectories")
    a = c.getresponse()     # its head, which may come before the audit
    gateway.signal(15)
    assert a.status == 200 and json.loads(a.read())["trajectories"]
    c.close()
    gateway.wait()


def read_slowly(gateway, path, n, gap_s):
    """Reads n bytes at a time until the connection ends; their number."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        got = more = 1
        while more:
            g.pause(gap_s, "it is slow, but reads")
            with contextlib.suppress(ConnectionResetError):
                more = len(s.recv(n))
            got += more
        return got


def test_a_reader_below_the_least_rate_is_cut(start):
    """Each read is progress, so --send-timeout alone would let it hold the session for ever. One above the rate gets all."""
    gateway = start(engine="builtin:echo", workers=1, context_length=1_000_000, send_timeout="1s", min_body_rate="8MiB")
    sid = long_session(gateway, turns=10, words=400)
    path = f"/sessions/{sid}/trajectories?format=json"
    whole = len(exported(gateway, sid, "json"))
    assert whole > 2 << 20, whole
    assert read_slowly(gateway, path, 20_000, 0.05) < whole
    assert gateway.has_line("an answer is cut, because its client reads less than --min-body-rate")
    assert gateway.post(f"/sessions/{sid}/finalize").status == 200
