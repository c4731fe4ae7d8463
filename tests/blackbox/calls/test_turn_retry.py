"""Retries are not samples (spec sessions.md section 6)."""
import json
import socket
import threading
import time
from http.client import HTTPResponse

import pytest

from gateway import Answer, in_parallel, pause, wait_until
from stub_engines import StubEngine
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


def pieces(a):
    """Of a stream of chat: what each answer was told, as (text, tokens of its logprobs), and how it ended."""
    told = {}
    for line in a.text.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text, tokens, ends = told.setdefault(choice["index"], ([], [], []))
            text.append(choice["delta"].get("content") or "")
            tokens.extend(p["token"] for p in (choice.get("logprobs") or {}).get("content", []))
            ends.append(choice["finish_reason"])
    return {k: ("".join(text), tokens, ends[-1]) for k, (text, tokens, ends) in told.items()}


def test_who_joins_a_long_stream_hears_all_of_it_once(start):
    """More than one step tells (call_listeners.c), while it goes on."""
    said = "word " * 100
    gateway = start(engine="builtin:echo,tokens_per_s=400", workers=1)
    s = new(gateway)
    body = {"model": "m", "messages": user(said), "n": 5, "logprobs": True, "stream": True}

    def ask(k):
        if k:
            wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
            pause(0.3 * k, "they join one after the other, in the middle")
        return gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", body,
                            headers={"x-stainless-retry-count": "1"} if k else {})
    answers = in_parallel(ask, range(4))
    told = [pieces(a) for a in answers.values()]
    assert all(t == told[0] for t in told) and len(told[0]) == 5 and gateway.metrics()["rollgate_joins_total"] == 3
    assert all(text == said.strip() or text == said for text, _, _ in told[0].values())
    assert all(len(tokens) > 450 and end == "stop" for _, tokens, end in told[0].values())


@pytest.mark.parametrize("leaves", [0, 16])
def test_many_who_join_a_call_all_get_all_of_it(start, leaves):
    """Also when the first ones have left."""
    gateway = start(engine="builtin:echo,tokens_per_s=60", workers=1)
    s = new(gateway)
    body = {"model": "m", "messages": user("word " * 20), "n": 2, "logprobs": True, "stream": True}
    socks = []
    try:
        for _ in range(32):
            socks.append(marked(gateway, s, body))
        wait_until(lambda: gateway.metrics()["rollgate_joins_total"] == 31, 10, "all have joined")
        for sock in socks[:leaves]:
            sock.close()
        answers = [whole(sock) for sock in socks[leaves:]]
    finally:
        for sock in socks:
            sock.close()
    told = [pieces(a) for a in answers]
    assert all(text.strip() == "word " * 19 + "word" and len(tokens) > 90 for text, tokens, _ in told[0].values())
    assert all(t == told[0] for t in told) and all("[DONE]" in a.text for a in answers)
    assert branches(gateway, s) == 2, "one call's"


def test_more_than_may_join_a_call_are_told(start):
    gateway = start(engine="builtin:echo,delay_ms=3000", workers=1)
    s = new(gateway)
    socks = []
    try:
        for _ in range(36):
            socks.append(marked(gateway, s, {"model": "m", "messages": user("x")}))
        statuses = [whole(sock) for sock in socks]
    finally:
        for sock in socks:
            sock.close()
    refused = [a for a in statuses if a.status == 429]
    assert len(refused) == 4 and len([a for a in statuses if a.status == 200]) == 32
    assert "more than 32 requests wait for the answer of one call" in refused[0].text


def marked(gateway, s, body):
    """Sends a call of the one key; its socket."""
    text = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", gateway.port), 30)
    sock.sendall(b"POST /sessions/%s/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: one\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (s["session_id"].encode(), len(text), text))
    return sock


def whole(sock):
    """The answer that comes on a connection which ends with it."""
    answer = HTTPResponse(sock)
    answer.begin()
    return Answer(answer.status, answer.getheaders(), answer.read())


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
    got = in_parallel(lambda _: gateway.chat(s, "abc"), range(3))
    assert len({text(a) for a in got.values()}) == 3
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
    pause(1.5, "deliveries are noted once a second")
    kill_worker(gateway)
    assert gateway.chat(s, "lost").headers["Rollgate-Replayed"] == "1"
    assert "Rollgate-Replayed" not in gateway.chat(s, "arrived").headers


# --- corners: which of several calls with one body is meant ---

def text(answer):
    assert answer.status == 200, answer.text[:300]
    return answer.json()["choices"][0]["message"]["content"]


def lose(gateway, s, body, headers=b""):
    """Sends a request whose client leaves before the answer."""
    raw = json.dumps({"model": "m", **body}).encode()
    sock = open_raw(gateway)
    sock.sendall(b"POST /sessions/%s/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
                 b"Content-Length: %d\r\n\r\n%s" % (s["session_id"].encode(), headers, len(raw), raw))
    return sock


def lose_running(gateway, s, body, headers=b"", clients=1):
    """The same of so many clients, and they leave when all their calls run."""
    socks = [lose(gateway, s, body, headers) for _ in range(clients)]
    wait_until(lambda: inflight(gateway, s) == clients, 5, "the calls run")
    for sock in socks:
        sock.close()


def open_raw(gateway):
    return socket.create_connection(("127.0.0.1", gateway.port), 30)


def post(gateway, s, text, **headers):
    return gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"model": "m", "messages": user(text)},
                        headers={k.replace("_", "-"): v for k, v in headers.items()})


def test_of_two_parallel_samples_the_lost_one_is_replayed(start):
    """The one that arrived says nothing about the other; each retry gets an answer nobody else got."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, on_disconnect="finish")
        for delivered_first in (False, True):
            s = new(gateway)
            first, second = threading.Event(), threading.Event()
            engine.plan.extend([{"ids": [65, 257], "wait": first}, {"ids": [66, 257], "wait": second}])
            lost = lose(gateway, s, {"messages": user("x")})
            wait_until(lambda: engine.running == 1, 5, "the first runs")
            got = []
            t = threading.Thread(target=lambda: got.append(gateway.chat(s, "x")))
            t.start()
            wait_until(lambda: engine.running == 2, 5, "both run")
            lost.close()
            pause(0.2, "the worker hears that the client is gone")
            for n, event in enumerate((second, first) if delivered_first else (first, second)):
                event.set()
                wait_until(lambda: branches(gateway, s) == n + 1, 5, "it commits")
                pause(0.1, "the answer is delivered behind its commit")
            t.join(5)
            assert text(got[0]) == "B"
            a = gateway.chat(s, "x")
            assert a.headers["Rollgate-Replayed"] == "1" and text(a) == "A"
            assert "Rollgate-Replayed" not in gateway.chat(s, "x").headers, "a third sample"


def test_two_lost_samples_are_replayed_one_each(start):
    gateway = start(engine="builtin:random:1,delay_ms=1500", on_disconnect="finish", workers=1)
    s = new(gateway)
    lose_running(gateway, s, {"messages": user("x")}, clients=3)
    wait_until(lambda: branches(gateway, s) == 3, 5, "all commit")
    got = [gateway.chat(s, "x") for _ in range(3)]
    assert all(a.headers.get("Rollgate-Replayed") == "1" for a in got)
    assert len({text(a) for a in got}) == 3
    assert "Rollgate-Replayed" not in gateway.chat(s, "x").headers


def test_two_lost_running_samples_are_joined_one_each(start):
    gateway = start(engine="builtin:random:1,delay_ms=1500", rejoin_window="10s", workers=1)
    s = new(gateway)
    lose_running(gateway, s, {"messages": user("x")}, clients=2)
    got = in_parallel(lambda _: gateway.chat(s, "x"), range(2))
    assert len({text(a) for a in got.values()}) == 2 and branches(gateway, s) == 2
    assert gateway.metrics()["rollgate_joins_total"] == 2


def test_other_idempotency_keys_are_other_samples(start):
    gateway = start(engine="builtin:random:1", workers=1)
    s = new(gateway)
    a, b = post(gateway, s, "x", Idempotency_Key="one"), post(gateway, s, "x", Idempotency_Key="two")
    assert text(a) != text(b) and "Rollgate-Replayed" not in b.headers
    long = "k" * 3000
    c = post(gateway, s, "x", Idempotency_Key=long)
    assert "Rollgate-Replayed" not in c.headers
    for key, first in (("one", a), ("two", b), (long, c), ("one", a)):
        again = post(gateway, s, "x", Idempotency_Key=key)
        assert again.headers["Rollgate-Replayed"] == "1" and text(again) == text(first)
    assert branches(gateway, s) == 3
    kill_worker(gateway)
    assert text(post(gateway, s, "x", Idempotency_Key="two")) == text(b)
    assert branches(gateway, s) == 3


def test_the_key_of_a_lost_answer_is_known_after_a_crash(start):
    """A request with another key is another sample; one without a key may mean the lost answer."""
    gateway = start(engine="builtin:random:1,delay_ms=300", on_disconnect="finish", workers=1)
    s = new(gateway)
    sock = lose(gateway, s, {"messages": user("x")}, b"Idempotency-Key: one\r\n")
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    sock.close()
    wait_until(lambda: branches(gateway, s) == 1, 5, "the call commits")
    kill_worker(gateway)
    two = post(gateway, s, "x", Idempotency_Key="two")
    assert "Rollgate-Replayed" not in two.headers and branches(gateway, s) == 2
    lost = post(gateway, s, "x")
    assert lost.headers["Rollgate-Replayed"] == "1" and text(lost) != text(two)
    assert text(post(gateway, s, "x", Idempotency_Key="one")) == text(lost)
    assert "Rollgate-Replayed" not in post(gateway, s, "x").headers and branches(gateway, s) == 3


def test_a_key_joins_only_its_own_running_call(start):
    gateway = start(engine="builtin:random:1,delay_ms=1200", workers=1)
    s = new(gateway)
    got = in_parallel(lambda k: post(gateway, s, "x", Idempotency_Key=k[0]),
                      [(k, i) for k in ("one", "two") for i in range(3)])
    for k in ("one", "two"):
        assert len({text(got[k, i]) for i in range(3)}) == 1
    assert text(got["one", 0]) != text(got["two", 0])
    assert branches(gateway, s) == 2


def test_a_retry_after_an_error_is_the_first_sample(start):
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1, engine_retries=0)
        s = new(gateway)
        engine.plan.extend([{"status": 500}, {"drop": {"logprobs"}}, {"before": "close"}])
        for _ in range(3):
            assert post(gateway, s, "x").status >= 500
        for mark in ({}, {"x_stainless_retry_count": "1"}, {"x_stainless_retry_count": "2"}):
            a = post(gateway, s, "x", **mark)
            assert a.status == 200 and ("Rollgate-Replayed" in a.headers) == bool(mark)
        assert branches(gateway, s) == 1


def test_the_first_client_of_a_joined_call_leaves(start):
    gateway = start(engine="builtin:random:1,delay_ms=1500", rejoin_window="100ms", workers=1)
    s = new(gateway)
    first = lose(gateway, s, {"messages": user("x")}, b"Idempotency-Key: k\r\n")
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call runs")
    got = []
    t = threading.Thread(target=lambda: got.append(post(gateway, s, "x", Idempotency_Key="k")))
    t.start()
    wait_until(lambda: gateway.metrics().get("rollgate_joins_total") == 1, 5, "the second has joined")
    first.close()
    t.join(10)
    assert text(got[0]) and branches(gateway, s) == 1
    assert "Rollgate-Replayed" not in post(gateway, s, "x").headers, "it was delivered: a new sample"
    assert branches(gateway, s) == 2


def test_both_clients_of_a_joined_call_leave(start):
    gateway = start(engine="builtin:random:1,delay_ms=1500", rejoin_window="10s", workers=1)
    s = new(gateway)
    socks = [lose(gateway, s, {"messages": user("x")}, b"Idempotency-Key: k\r\n") for _ in range(2)]
    wait_until(lambda: gateway.metrics().get("rollgate_joins_total") == 1, 5, "the second has joined")
    for sock in socks:
        sock.close()
    a = gateway.chat(s, "x")
    assert text(a) and branches(gateway, s) == 1
    assert gateway.metrics()["rollgate_joins_total"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_waits_for_is_kept_until_the_window_ends(start, stream):
    """Client gone: nothing committed; a retry in time gets the answer that is there."""
    gateway = start(engine="builtin:random:1,delay_ms=700", rejoin_window="8s", workers=1, durability="power")
    s = new(gateway)
    lose_running(gateway, s, {"messages": user("x")})
    pause(1.2, "the engine, after 0.7 s, and the disk would be through")
    assert (branches(gateway, s), inflight(gateway, s)) == (0, 1)
    a = gateway.chat(s, "x", stream=stream)
    assert "[DONE]" in a.text if stream else text(a)
    assert branches(gateway, s) == 1 and gateway.metrics()["rollgate_joins_total"] == 1
    lose_running(gateway, s, {"messages": user("y")})
    wait_until(lambda: inflight(gateway, s) == 0, 15, "the window ends")
    assert branches(gateway, s) == 1, "nobody came back: nothing was committed"
    assert "Rollgate-Replayed" not in gateway.chat(s, "y").headers


def test_a_call_without_room_is_replayed_as_it_was(start):
    gateway = start(engine="builtin:echo", on_disconnect="finish", workers=1)
    s = new(gateway, history="chains", prompt_length=40, response_length=40)
    first = gateway.chat(s, "abc").json()["choices"][0]["message"]
    more = user("abc") + [first] + user("d" * 60)
    a = gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"model": "m", "messages": more})
    assert a.json()["choices"][0]["finish_reason"] == "length" and text(a) == ""
    b = gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"model": "m", "messages": more},
                     headers={"x-stainless-retry-count": "1"})
    assert b.headers["Rollgate-Replayed"] == "1"
    assert b.json()["choices"][0]["finish_reason"] == "length" and text(b) == ""
    assert b.json()["usage"] == a.json()["usage"]
    state = gateway.get(f"/sessions/{s['session_id']}").json()
    assert (state["num_calls"], state["num_trajectories"], state["num_active_chains"]) == (2, 1, 0)


def test_samples_around_a_crash_are_told_apart(start):
    """What arrived is noted before the next sample of the same request begins."""
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=1)
        s = new(gateway)
        engine.plan.extend([{"ids": [65, 257]}, {"ids": [66, 257], "wait": threading.Event()}])
        assert text(gateway.chat(s, "x")) == "A"
        t = threading.Thread(target=lambda: gateway.chat(s, "x"))
        t.start()
        wait_until(lambda: len(engine.requests) == 2 and engine.running == 1, 5, "the second sample runs")
        kill_worker(gateway)
        t.join(10)
        engine.plan.append({"ids": [67, 257]})
        again = gateway.chat(s, "x")
        assert "Rollgate-Replayed" not in again.headers and text(again) == "C"


@pytest.mark.parametrize("spelling", [
    lambda raw: raw.replace(b": ", b":").replace(b", ", b","),
    lambda raw: raw[:-1] + b', "stream": false}',
    lambda raw: b'{"stream":true ,' + raw[1:],
    lambda raw: raw.replace(b'"model"', b'\n  "model"'),
])
def test_a_retry_in_another_spelling(start, spelling):
    """What says how the answer is sent is no part of the request; any other byte is: SDKs repeat bytes."""
    gateway = start(engine="builtin:random:1,delay_ms=700", on_disconnect="finish", workers=1)
    s = new(gateway)
    raw = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    lose_running(gateway, s, json.loads(raw))
    wait_until(lambda: branches(gateway, s) == 1, 5, "it commits")
    a = gateway.request("POST", f"/sessions/{s['session_id']}/v1/chat/completions", body=spelling(raw),
                        headers={"Content-Type": "application/json"})
    same = b"stream" in spelling(raw)
    assert (a.headers.get("Rollgate-Replayed") == "1") == same


def test_a_label_outlives_its_connection(start):
    """The headers of a client that left are still the call's."""
    gateway = start(engine="builtin:random:1,delay_ms=500", on_disconnect="finish", workers=1)
    s = new(gateway)
    lose_running(gateway, s, {"messages": user("x")},
                 b"x-claude-code-agent-id: agent-seven\r\nx-parent-session-id: above\r\nIdempotency-Key: k9\r\n")
    wait_until(lambda: branches(gateway, s) == 1, 5, "it commits")
    node = next(n for n in gateway.get(f"/sessions/{s['session_id']}").json()["tree"]["nodes"] if n["generated"])
    assert (node["label"], node["parent_label"]) == ("agent-seven", "above")
    assert post(gateway, s, "x", Idempotency_Key="k9").headers["Rollgate-Replayed"] == "1"
