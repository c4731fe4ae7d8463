"""A worker that dies loses no answered turn: sessions continue from the journal with their exact tokens. Torn tails
are cut. Durability levels."""
import itertools
import json
import os
import signal
import subprocess

import pytest

from gateway import BINARY, pause, wait_until
from test_streaming import new, open_chat, user
from test_turn_cancel import inflight


def kill_worker(gateway, name="worker-0"):
    """kill -9; waits until its successor serves."""
    old = gateway.child(name)
    gateway.allow("process died")
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: gateway.child(name) != old, 20, f"{name} is replaced")


def records(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}?records=1").json()


@pytest.mark.parametrize("durability", ["process", "power"])
def test_sessions_go_on_with_exact_tokens_after_kill_9(start, durability):
    gateway = start(engine="builtin:random:3", workers=1, durability=durability)
    s = new(gateway, labels={"a": "b"})
    messages = user("first")
    for turn in range(3):
        a = gateway.chat(s, messages)
        assert a.status == 200
        messages += [a.json()["choices"][0]["message"], *user(f"turn {turn}")]
    gateway.post(f"/sessions/{s['session_id']}/reward_info", {"reward_info": {"r": 2}})
    before = records(gateway, s)
    kill_worker(gateway)
    after = records(gateway, s)
    assert after == before
    a = gateway.chat(s, messages)
    usage = a.json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(before["accumulated_token_ids"])
    known = before["accumulated_token_ids"]
    assert records(gateway, s)["records"][-1]["prompt_ids"][:len(known)] == known


def kinds(gateway, session):
    """Of the session's records in the journal."""
    dumped = subprocess.run([str(BINARY), "journal", "dump", f"{gateway.folder}/state/worker-0"], capture_output=True, text=True,
                            timeout=60, check=True).stdout
    return [json.loads(line)["kind"] for line in dumped.splitlines() if session["session_id"] in line]


@pytest.mark.parametrize("durability", ["process", "power", "none"])
def test_long_new_texts_are_recorded_in_parts(start, durability):
    """Before their commit; they are whole after kill -9, in a fork and in a snapshot."""
    gateway = start(engine="builtin:echo,delay_ms=1", workers=1, durability=durability, context_length=4_000_000)
    s = new(gateway)
    messages = [{"role": "system", "content": "\u00e9\"\n" + "0123456789 " * 30_000}, *user("abc " * 100_000)]
    for turn in range(2):
        a = gateway.chat(s, messages, max_tokens=8)
        assert a.status == 200, a.text
        messages = [*messages, a.json()["choices"][0]["message"], *user(f"{turn} " * 200_000)]
    whole = records(gateway, s)
    stored = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"][0]["messages"]
    assert [m["content"] for m in stored] == [m["content"] for m in messages[:-1]]
    if durability == "none":
        return
    # 730 KB of new texts, then 400 KB; and as many tokens, 4 bytes each, before each commit, too
    written = kinds(gateway, s)
    assert [k for k, _ in itertools.groupby(written)] == ["create", "bulk", "commit", "bulk", "commit"]
    first = written.index("commit")
    assert written[:first].count("bulk") >= 5 * 730 // 128 and written[first:].count("bulk") >= 5 * 400 // 128
    kill_worker(gateway)
    assert records(gateway, s) == whole
    fork = gateway.post(f"/sessions/{s['session_id']}/fork", {}).json()
    snapshot = gateway.get(f"/sessions/{s['session_id']}/snapshot").json()
    copy = gateway.post("/sessions/import", snapshot).json()
    for one in (s, fork, copy):
        told = gateway.get(f"/sessions/{one['session_id']}/trajectories").json()["trajectories"][0]
        assert [m["content"] for m in told["messages"]] == [m["content"] for m in messages[:-1]]
        a = gateway.chat(one, messages, max_tokens=8)
        cached = a.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert a.status == 200 and cached == len(whole["accumulated_token_ids"])


def test_ended_sessions_stay_ended_and_exports_stay(start):
    gateway = start(engine="builtin:echo", workers=1)
    s, t = new(gateway), new(gateway)
    gateway.chat(s, "hello")
    first = gateway.post(f"/sessions/{s['session_id']}/finalize").json()
    gateway.request("DELETE", f"/sessions/{t['session_id']}")
    kill_worker(gateway)
    assert gateway.chat(s, "x").status == 410
    assert gateway.chat(t, "x").status == 410
    again = gateway.post(f"/sessions/{s['session_id']}/finalize")
    assert again.status == 200 and again.json()["trajectories"] == first["trajectories"]


def test_a_call_in_flight_fails_retryable_and_its_retry_is_one_turn(start):
    gateway = start(engine="builtin:echo,delay_ms=1500", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    kill_worker(gateway)
    answer = sock.recv(65536)
    sock.close()
    assert answer.startswith(b"HTTP/1.1 503") and b"x-should-retry: true" in answer.lower()
    assert gateway.chat(s, "abc").status == 200
    assert len(records(gateway, s)["records"]) == 1


def test_a_torn_tail_is_cut_and_said(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    a = gateway.chat(s, "one")
    whole = records(gateway, s)
    segment = f"{gateway.folder}/state/worker-0/seg-00000001"
    size = os.path.getsize(segment)
    messages = [*user("one"), a.json()["choices"][0]["message"], *user("two")]
    gateway.chat(s, messages)
    full = os.path.getsize(segment)
    assert full > size
    assert gateway.stop() == 0
    for cut in (full - 1, size + 9, size + 1):
        os.truncate(segment, cut)
        gateway.start()
        assert records(gateway, s)["records"] == whole["records"]
        assert gateway.has_line("torn tail cut off")
        assert os.path.getsize(segment) == size
        gateway.chat(s, messages)  # goes on, and makes a new tail to be torn
        assert len(records(gateway, s)["records"]) == 2
        assert gateway.stop() == 0


def test_a_flipped_bit_is_not_replayed(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    gateway.chat(s, "one")
    segment = f"{gateway.folder}/state/worker-0/seg-00000001"
    commit_end = os.path.getsize(segment)
    new(gateway)    # a record behind it: not a torn end
    assert gateway.stop() == 0
    with open(segment, "r+b") as f:
        f.seek(commit_end - 5)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 16]))
    gateway.allow("damaged segment")
    gateway.start()
    assert gateway.has_line("damaged segment")
    assert records(gateway, s)["num_branches"] == 0


def test_segments_follow_each_other(start):
    gateway = start(engine="builtin:echo", workers=1, journal_segment_bytes=8192)
    sessions = [new(gateway) for _ in range(4)]
    for turn in range(4):
        for s in sessions:
            assert gateway.chat(s, f"{turn}" + "x" * 900).status == 200
    before = [records(gateway, s) for s in sessions]
    segments = [n for n in os.listdir(f"{gateway.folder}/state/worker-0") if n.startswith("seg-")]
    assert len(segments) > 3
    kill_worker(gateway)
    assert [records(gateway, s) for s in sessions] == before


def test_durability_none_keeps_nothing(start):
    gateway = start(engine="builtin:echo", workers=1, durability="none")
    s = new(gateway)
    assert gateway.chat(s, "hi").status == 200
    kill_worker(gateway)
    assert gateway.get(f"/sessions/{s['session_id']}").status == 404


def test_restart_of_everything(start):
    gateway = start(engine="builtin:echo", workers=2)
    sessions = [new(gateway) for _ in range(6)]
    for s in sessions:
        gateway.chat(s, "hello")
    before = [records(gateway, s) for s in sessions]
    assert gateway.stop() == 0
    gateway.start()
    assert [records(gateway, s) for s in sessions] == before


def test_drain_lets_running_calls_finish(start):
    gateway = start(engine="builtin:echo,delay_ms=1200", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    gateway.family()
    gateway.signal(signal.SIGTERM)
    pause(0.2, "once more while the call runs")
    gateway.signal(signal.SIGTERM)
    assert b"HTTP/1.1 200" in sock.recv(65536)
    sock.close()
    assert gateway.wait(20) == 0


def test_a_linear_fork_from_a_completion_begins_anew(start):
    """A completion has no messages: the fork's history is empty, live and from the journal."""
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway, history="linear")
    path = f"/sessions/{s['session_id']}"
    assert gateway.chat(s, user("hi")).status == 200
    assert gateway.post(f"{path}/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 4}).status == 200
    fork = gateway.post(f"{path}/fork", {}).json()
    again = gateway.post(f"{path}/fork", {}).json()
    assert gateway.chat(fork, user("hello")).status == 200
    kill_worker(gateway)
    assert gateway.chat(again, user("hello")).status == 200
    assert gateway.chat(s, user("hi")).status == 200
