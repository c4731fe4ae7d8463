"""Retries are not samples (spec sessions.md section 6)."""
import json
import threading
import time

import pytest

from gateway import wait_until
from test_streaming import new, open_chat, user
from test_turn_cancel import branches, inflight
from test_turn_recovery import kill_worker


def test_a_repeated_request_joins_the_running_call_of_a_client_that_left(start):
    gateway = start(engine="builtin:random:1,delay_ms=1500", rejoin_window="10s", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    a = gateway.chat(s, "abc")
    assert a.status == 200
    state = gateway.get(f"/sessions/{s['session_id']}?records=1").json()
    assert state["num_branches"] == 1 and len(state["records"]) == 1
    assert gateway.metrics()["rollgate_joins_total"] == 1


def test_a_join_may_ask_for_a_stream(start):
    gateway = start(engine="builtin:echo,tokens_per_s=8", rejoin_window="10s", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abcdefghijkl"), "stream": False})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    a = gateway.chat(s, "abcdefghijkl", stream=True)
    assert a.status == 200 and "[DONE]" in a.text
    assert branches(gateway, s) == 1


def test_an_answer_that_was_not_delivered_is_replayed(start):
    gateway = start(engine="builtin:random:1,delay_ms=300", on_disconnect="finish", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("abc")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    wait_until(lambda: branches(gateway, s) == 1, 5, "the call commits")
    a = gateway.chat(s, "abc")
    assert a.headers["Rollgate-Replayed"] == "1"
    state = gateway.get(f"/sessions/{s['session_id']}?records=1").json()
    assert len(state["records"]) == 1
    assert a.json()["choices"][0]["message"]["content"] == state["records"][0]["answers"][0]["message"]["content"]
    b = gateway.chat(s, "abc")
    assert "Rollgate-Replayed" not in b.headers, "the replay was delivered: this is a new sample"


def test_a_delivered_answer_is_sampled_anew(start):
    gateway = start(engine="builtin:random:1", workers=1)
    s = new(gateway)
    a, b = gateway.chat(s, "abc"), gateway.chat(s, "abc")
    assert "Rollgate-Replayed" not in b.headers
    assert a.json()["choices"][0]["message"] != b.json()["choices"][0]["message"]
    assert branches(gateway, s) == 2


def test_a_marked_retry_is_replayed_even_when_delivered(start):
    gateway = start(engine="builtin:random:1", workers=1)
    s = new(gateway)
    path = f"/sessions/{s['session_id']}/v1/chat/completions"
    body = {"model": "m", "messages": user("abc")}
    a = gateway.post(path, body)
    for mark in ({"x-stainless-retry-count": "1"}, {"Idempotency-Key": "k1"}):
        b = gateway.post(path, body, headers=mark)
        assert b.headers["Rollgate-Replayed"] == "1"
        assert b.json()["choices"][0]["message"] == a.json()["choices"][0]["message"]
    assert branches(gateway, s) == 1


BODIES = {
    "/v1/chat/completions": {"messages": user("abc"), "logprobs": True, "top_logprobs": 2, "n": 2},
    "/v1/messages": {"messages": user("abc"), "max_tokens": 50, "stop_sequences": ["e"]},
    "/v1/responses": {"input": "abc", "include": ["message.output_text.logprobs"],
                      "metadata": {"a": "b"}},
    "/v1/completions": {"prompt": "abc", "logprobs": 2},
}


@pytest.mark.parametrize("path", list(BODIES))
def test_a_replayed_answer_is_the_first_one_byte_for_byte(start, tmp_path, path):
    """Also its time, its cached and its reasoning tokens, its stop string, its alternatives."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["<think>\nhm\n</think>\n\nOne answer to read"] * 3))
    gateway = start(engine=f"builtin:script:{script}", reasoning_parser="qwen3", workers=1)
    s = new(gateway)
    gateway.chat(s, "abc")  # what follows stands on stored tokens
    base = f"/sessions/{s['session_id']}"
    body = {"model": "named", **BODIES[path]}
    a = gateway.post(base + path, body)
    assert a.status == 200, a.text
    begun = int(time.time())
    wait_until(lambda: time.time() >= begun + 1, 5, "another second")
    mark = {"x-stainless-retry-count": "1"}
    b = gateway.post(base + path, body, headers=mark)
    assert b.headers["Rollgate-Replayed"] == "1"
    assert b.body == a.body
    # as a stream it says the same: same id, same time, same usage, and the logprobs
    c = gateway.post(base + path, {**body, "stream": True,
                                   "stream_options": {"include_usage": True}}, headers=mark)
    assert c.headers["Rollgate-Replayed"] == "1"
    whole = a.json()
    for key in ("id", "created", "created_at"):
        assert key not in whole or f'"{key}":{json.dumps(whole[key])}' in c.text
    assert json.dumps(whole["usage"], separators=(",", ":")) in c.text
    for choice in whole.get("choices", []):
        if "logprobs" in choice:
            told = json.dumps(choice["logprobs"], separators=(",", ":"), ensure_ascii=False)
            assert told in c.text


def test_parallel_samples_of_one_prompt_are_not_merged(start):
    gateway = start(engine="builtin:random:1,delay_ms=500", workers=1)
    s = new(gateway)
    got = []
    threads = [threading.Thread(target=lambda: got.append(gateway.chat(s, "abc"))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)
    assert len({a.json()["choices"][0]["message"]["content"] for a in got}) == 3
    assert branches(gateway, s) == 3


def test_what_was_delivered_is_known_after_a_crash(start):
    """An answer that did not arrive is replayed by the worker's successor; one that did is not."""
    gateway = start(engine="builtin:random:1,delay_ms=300", on_disconnect="finish", workers=1)
    s = new(gateway)
    sock = open_chat(gateway, s, {"messages": user("lost")})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    wait_until(lambda: branches(gateway, s) == 1, 5, "the call commits")
    assert gateway.chat(s, "arrived").status == 200
    time.sleep(1.5)  # deliveries are noted once a second
    kill_worker(gateway)
    assert gateway.chat(s, "lost").headers["Rollgate-Replayed"] == "1"
    assert "Rollgate-Replayed" not in gateway.chat(s, "arrived").headers
