"""A copied session whose answers have thousands of tool calls. The first request with a different grouping of calls
waits in parts until all are known. It attaches where it would have attached in the original."""
import json
import socket
import time

from gateway import wait_until
from test_dialects import CALL, USER, chat_body, serve  # noqa: F401

MANY, ANSWERS = 300, 24   # over 1,024 calls in all: more than one part
GRACE_S = 60


def calls(n):
    return "".join(CALL % json.dumps({"content": f"c{i}"}) for i in range(n))


def apart(answer):
    """The answer's calls, each in a message of its own, with their results."""
    said = []
    for c in answer["tool_calls"]:
        said += [{"role": "assistant", "content": None, "tool_calls": [c]}, {"role": "tool", "tool_call_id": c["id"], "content": "ok"}]
    return said


def test_calls_of_a_copied_session_are_known_before_they_are_grouped(serve):  # noqa: F811
    gateway, session = serve([calls(MANY)] * (ANSWERS - 1) + [calls(2), "Done."])
    chat = "/sessions/{}/v1/chat/completions"
    answers = [c["message"] for c in gateway.post(chat.format(session), chat_body(n=ANSWERS)).json()["choices"]]
    assert [len(a["tool_calls"]) for a in answers] == [MANY] * (ANSWERS - 1) + [2]
    snapshot = gateway.get(f"/sessions/{session}/snapshot").json()
    body = chat_body(messages=[USER, *apart(answers[-1])])
    for _ in range(3):
        copy = gateway.post("/sessions/import", snapshot).json()["session_id"]
        assert gateway.post(chat.format(copy), body).status == 200
        last = gateway.get(f"/sessions/{copy}").json()["tree"]["nodes"][-1]
        assert last["cause"] == "extended", last


def test_a_client_that_leaves_meanwhile_leaves_nothing(serve):  # noqa: F811
    gateway, session = serve([calls(MANY)] * (ANSWERS - 1) + [calls(2), "Done."], grace=f"{GRACE_S}s")
    path = f"/sessions/{session}/v1/chat/completions"
    answers = [c["message"] for c in gateway.post(path, chat_body(n=ANSWERS)).json()["choices"]]
    snapshot = gateway.get(f"/sessions/{session}/snapshot").json()
    body = json.dumps(chat_body(messages=[USER, *apart(answers[-1])])).encode()
    for _ in range(20):
        copy = gateway.post("/sessions/import", snapshot).json()["session_id"]
        with socket.create_connection(("127.0.0.1", gateway.port)) as s:
            s.sendall(f"POST /sessions/{copy}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    wait_until(lambda: gateway.metrics()["rollgate_calls_inflight"] == 0, 10, "nothing is under way")
    began = time.monotonic()
    gateway.stop()      # a worker that drains waits for requests that it still holds
    assert time.monotonic() - began < GRACE_S, "a request whose client has left is held"
