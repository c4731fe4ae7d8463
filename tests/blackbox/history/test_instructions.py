"""Long instructions of a Responses request are the first message of the prompt, and are stored only there. Stored
responses, and requests that follow them, are as if each call had them."""
import os
import signal

import pytest

import gateway as g
from test_dialects import post, responses_body, serve  # noqa: F401

LONG = "Answer as \"we\" do, in ä few words.\n" * 400     # more than is kept beside the prompt
MUCH = LONG * 20                                            # more than one step of the loop writes


def stored(gateway, session, answer):
    return gateway.get(f"/sessions/{session}/v1/responses/{answer['id']}").json()


def kill_worker(gateway):
    gateway.allow("process died")
    worker = gateway.child("worker-0")
    os.kill(worker, signal.SIGKILL)
    g.wait_until(lambda: gateway.child("worker-0") not in (None, worker), 20, "another worker")
    gateway.wait_serving()


@pytest.mark.parametrize("text", [LONG, MUCH], ids=["long", "much"])
def test_a_stored_response_tells_them(serve, text):  # noqa: F811
    gateway, session = serve(["one", "two", "three"], context_length=1_000_000)
    first = post(gateway, session, "/v1/responses", responses_body(instructions=text)).json()
    second = post(gateway, session, "/v1/responses", responses_body(
        instructions=text, input="more", previous_response_id=first["id"])).json()
    assert first["instructions"] == second["instructions"] == text
    assert stored(gateway, session, first) == first and stored(gateway, session, second) == second
    kill_worker(gateway)
    assert stored(gateway, session, first) == first and stored(gateway, session, second) == second
    fork = gateway.post(f"/sessions/{session}/fork", {"response_id": second["id"]})
    assert fork.status in (200, 201), fork.text
    assert stored(gateway, fork.json()["session_id"], second)["instructions"] == text


def test_new_ones_take_their_place(serve):  # noqa: F811
    gateway, session = serve(["one", "two"], context_length=1_000_000)
    first = post(gateway, session, "/v1/responses", responses_body(instructions=LONG)).json()
    kill_worker(gateway)
    second = post(gateway, session, "/v1/responses", responses_body(
        instructions="B" + LONG, input="more", previous_response_id=first["id"])).json()
    records = gateway.get(f"/sessions/{session}?records=1").json()["records"]
    assert [m["content"] for m in records[1]["request"]["messages"]] == ["B" + LONG, "hi", "one", "more"]
    assert stored(gateway, session, first)["instructions"] == LONG
    assert stored(gateway, session, second)["instructions"] == "B" + LONG


@pytest.mark.parametrize("spelled", ["string", "parts"])
def test_a_first_message_that_another_dialect_told(serve, spelled):  # noqa: F811
    """The system message is known already, in one way or another of writing it."""
    gateway, session = serve(["one", "two"], context_length=1_000_000)
    parts = [{"type": "text", "text": LONG[:1000]}, {"type": "text", "text": LONG[1000:]}]
    system = {"role": "system", "content": LONG if spelled == "string" else parts}
    a = post(gateway, session, "/v1/chat/completions", {"model": "m", "messages": [system, {"role": "user", "content": "hi"}]})
    assert a.status == 200, a.text
    answer = post(gateway, session, "/v1/responses", responses_body(instructions=LONG, tools=[])).json()
    assert gateway.get(f"/sessions/{session}").json()["forks_by_cause"]["new_root"] == 1, "they are one conversation"
    assert answer["instructions"] == LONG and stored(gateway, session, answer) == answer
    kill_worker(gateway)
    assert stored(gateway, session, answer) == answer


def test_they_are_recorded_once(serve):  # noqa: F811
    gateway, session = serve(["one"] * 4, context_length=1_000_000)

    def journaled():
        return gateway.metrics()["rollgate_journal_bytes"]
    at = journaled()
    for i in range(4):  # each time others: none is told by reference to an earlier call
        a = post(gateway, session, "/v1/responses", responses_body(instructions=f"{i}{MUCH}"))
        assert a.status == 200, a.text
    g.wait_until(lambda: journaled() > at + 4 * len(MUCH), 20, "what was recorded is counted")
    # each time ids of one byte of text each, four bytes long, and the text
    assert journaled() - at < 4 * (5 * len(MUCH.encode()) + len(MUCH.encode()) // 2)


def test_a_stream_does_not_repeat_very_much(serve):  # noqa: F811
    """Each of its events would tell all of it: such a response comes whole."""
    gateway, session = serve(["one"] * 4, context_length=4_000_000)
    fits, over = "i" * (500 << 10), "i" * (513 << 10)
    a = post(gateway, session, "/v1/responses", responses_body(instructions=fits, stream=True, tools=[]))
    assert a.status == 200 and a.text.count(fits) == 3, a.text[:300]
    a = post(gateway, session, "/v1/responses", responses_body(instructions=over, stream=True, tools=[]))
    assert a.status == 400 and a.json()["error"]["param"] == "stream" and str(512 << 10) in a.text, a.text[:300]
    tools = [{"type": "function", "name": f"f{i}", "description": "d" * 1000} for i in range(540)]
    a = post(gateway, session, "/v1/responses", responses_body(stream=True, tools=tools))
    assert a.status == 400 and a.json()["error"]["param"] == "stream", a.text[:300]
    a = post(gateway, session, "/v1/responses", responses_body(instructions=over, tools=[]))
    assert a.status == 200 and a.json()["instructions"] == over
