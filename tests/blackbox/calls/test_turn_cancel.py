"""Calls that fail: the client leaves, the session ends during the call, bad requests."""
import json
import threading

import pytest

from gateway import wait_until
from stub_engines import StubEngine
from test_streaming import new, open_chat, stream, user


def inflight(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}").json()["num_inflight_generations"]


def branches(gateway, session):
    return gateway.get(f"/sessions/{session['session_id']}").json()["num_branches"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_leaves_ends_its_call(start, streaming):
    gateway = start(engine="builtin:echo,delay_ms=20000", rejoin_window="100ms", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc"), "stream": streaming})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    wait_until(lambda: inflight(gateway, s) == 0, 5, "the call ends")
    assert branches(gateway, s) == 0


def test_a_client_that_leaves_mid_stream_ends_its_call(start):
    gateway = start(engine="builtin:echo,tokens_per_s=5", rejoin_window="100ms", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abcdefghijklmnopqrstuvwxyz" * 4), "stream": True})
    assert b"HTTP/1.1 200" in sock.recv(4096)
    sock.close()
    wait_until(lambda: inflight(gateway, s) == 0, 5, "the call ends")
    assert branches(gateway, s) == 0


def test_on_disconnect_finish_commits_anyway(start):
    gateway = start(engine="builtin:echo,delay_ms=500", on_disconnect="finish", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    wait_until(lambda: branches(gateway, s) == 1, 5, "the call commits")


@pytest.mark.parametrize("end", ["DELETE", "abort", "finalize"])
def test_ending_the_session_ends_its_calls_with_410(start, end):
    gateway = start(engine="builtin:echo,delay_ms=20000", workers=1)
    s = new(gateway)
    answers = []
    t = threading.Thread(target=lambda: answers.append(gateway.chat(s, "abc")))
    t.start()
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    if end == "DELETE":
        assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
    else:
        assert gateway.post(f"/sessions/{s['session_id']}/{end}").status in (200, 204)
    t.join(20)
    assert answers[0].status == 410 and answers[0].headers["x-should-retry"] == "false"


def test_ending_the_session_mid_stream_gives_an_error_event(start):
    gateway = start(engine="builtin:echo,tokens_per_s=5", workers=1)
    s = new(gateway)
    lines = []
    for _, line in stream(gateway, s, {"messages": user("abcdefghijklmnopqrstuvwxyz")}):
        lines.append(line)
        if len(lines) == 2:
            gateway.request("DELETE", f"/sessions/{s['session_id']}")
    assert b"error" in lines[-1] or b"error" in lines[-2]
    assert not any(l != b"[DONE]" and json.loads(l).get("choices") and
                   json.loads(l)["choices"][0]["finish_reason"] for l in lines)


def test_bad_requests_do_not_disturb_the_session(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway)
    path = f"/sessions/{s['session_id']}/v1/chat/completions"
    for body in (b"", b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": [{"role": "alien"}]}',
                 b'{"messages": [{"role":"user","content":"x"}], "max_tokens": 0}',
                 b'{"messages": [{"role":"user","content":"x"}], "temperature": "hot"}'):
        a = gateway.request("POST", path, body=body)
        assert a.status == 400, body
        assert a.json()["error"]["message"]
        assert a.headers["Rollgate-Session"] == s["session_id"]
    assert gateway.chat(s, "fine").status == 200
    assert branches(gateway, s) == 1


def test_max_tokens_stop_strings_and_cut_turns(start, tmp_path):
    script = tmp_path / "s.json"
    script.write_text(json.dumps(["one two STOP three", "abcdefgh", "whole"]))
    gateway = start(engine=f"builtin:script:{script}", workers=1)
    s = new(gateway)
    first = gateway.chat(s, "go", stop=["STOP"]).json()["choices"][0]
    assert first["message"]["content"] == "one two " and first["finish_reason"] == "stop"
    state = gateway.get(f"/sessions/{s['session_id']}?records=1").json()
    assert bytes(state["records"][0]["answers"][0]["output_ids"]) == b"one two STOP"
    second = gateway.chat(s, "other", max_tokens=3).json()["choices"][0]
    assert second["message"]["content"] == "abc" and second["finish_reason"] == "length"
    extended = gateway.chat(s, [*user("other"), second["message"], *user("more")])
    assert extended.status == 200 and extended.json()["choices"][0]["message"]["content"] == "whole"


def test_several_answers_are_siblings(start):
    gateway = start(engine="builtin:random:5", workers=1)
    s = new(gateway)
    choices = gateway.chat(s, "go", n=3).json()["choices"]
    assert [c["index"] for c in choices] == [0, 1, 2]
    assert len({c["message"]["content"] for c in choices}) == 3
    assert branches(gateway, s) == 3


def test_trusted_sampling_and_locks(start):
    gateway = start(engine="builtin:echo", workers=1)
    s = new(gateway, sampling_params={"max_tokens": 2}, lock_sampling=["max_tokens"])
    assert gateway.chat(s, "abcdef", max_tokens=5).json()["choices"][0]["message"]["content"] == "ab"
    t = new(gateway, sampling_params={"max_tokens": 2})
    assert gateway.chat(t, "abcdef").json()["choices"][0]["message"]["content"] == "ab"
    assert gateway.chat(t, "abcdef", max_tokens=5).json()["choices"][0]["message"]["content"] == "abcde"


class Chains:
    """A session of policy chains with one answered turn, and an engine whose next answer waits."""

    def __init__(self, start, engine, **options):
        self.engine, self.waits = engine, threading.Event()
        self.gateway = start(engine=engine.setting, workers=1, rejoin_window="60s")
        self.session = new(self.gateway, history="chains", **options)
        engine.plan.extend([{"ids": [65, 257]}, {"ids": [66, 257], "wait": self.waits}, {"ids": [67, 257]}])
        self.said = user("abc") + [self.gateway.chat(self.session, "abc").json()["choices"][0]["message"]]

    def leave(self, messages, streaming=False):
        """A call that runs, whose client leaves."""
        sock = open_chat(self.gateway, self.session, {"messages": messages, "max_tokens": 100, "stream": streaming})
        wait_until(lambda: inflight(self.gateway, self.session) == 1, 5, "the call runs")
        sock.close()

    def ask(self, messages, path="chat/completions"):
        answer = self.gateway.post(f"/sessions/{self.session['session_id']}/v1/{path}",
                                   {"model": "m", "messages": messages, "max_tokens": 100})
        assert answer.status == 200, answer.text
        return answer

    def chains(self):
        """The causes of each trajectory's turns."""
        told = self.gateway.get(f"/sessions/{self.session['session_id']}/trajectories").json()["trajectories"]
        return sorted([t["cause"] for t in trajectory["turns"]] for trajectory in told)


@pytest.mark.parametrize("streaming", [False, True])
def test_another_request_takes_the_chain_of_a_client_that_left(start, streaming):
    with StubEngine("sglang") as engine:
        c = Chains(start, engine)
        c.leave(c.said + user("left"), streaming)
        c.ask(c.said + user("other"))
        assert c.chains() == [["new_root", "extended"]]
        wait_until(lambda: inflight(c.gateway, c.session) == 0, 5, "the call that nobody waits for ends long before the window")
        engine.plan.append({"ids": [68, 257]})
        c.ask(c.said + user("left"))
        assert len(c.chains()) == 2, "its repeat comes too late: a sample of its own"
        assert c.gateway.metrics().get("rollgate_joins_total", 0) == 0


def test_another_request_takes_a_chain_that_it_rolls_back(start):
    with StubEngine("sglang") as engine:
        c = Chains(start, engine, rollback_last_assistant=True)
        engine.plan.insert(0, {"ids": [69, 257]})
        two = c.said + user("go on")
        said = c.ask(two).json()["choices"][0]["message"]
        c.leave(two + [said] + user("left"))
        c.ask(two + [{"role": "assistant", "content": "rewritten"}] + user("other"))
        assert len(c.chains()) == 1
        assert c.gateway.get(f"/sessions/{c.session['session_id']}").json()["rollback_count"] == 1


def test_a_repeated_request_has_its_chain_again(start):
    """Counting tokens takes no chain; what joined reserves the chain as before."""
    with StubEngine("sglang") as engine:
        c = Chains(start, engine)
        left = c.said + user("left")
        c.leave(left)
        c.ask(c.said + user("other"), "messages/count_tokens")
        joined = threading.Thread(target=lambda: c.ask(left))
        joined.start()
        wait_until(lambda: c.gateway.metrics().get("rollgate_joins_total") == 1, 5, "the repeat has joined")
        c.ask(c.said + user("other"))
        assert len(c.chains()) == 2, "its client waits: a chain of its own"
        c.waits.set()
        joined.join(10)
        assert c.chains() == [["new_root"], ["new_root", "extended"]] and len(engine.requests) == 3
