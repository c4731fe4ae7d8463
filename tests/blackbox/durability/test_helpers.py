"""Long work of requests in helper threads has the results of the loop, in order. No other request waits for it. It
ends if its client leaves, its session ends or its time is over."""
import re
import resource
import threading

import pytest

from gateway import in_parallel, stays, wait_until
from test_faults import faulty  # noqa: F401, a fixture
from test_streaming import new, open_chat, user
from test_turn_cancel import branches, inflight

LONG = "The quick brown fox, 7 times over the lazy dog.\n" * 1000     # rendered by a helper
HUGE = LONG * 6                                                       # read by a helper, too


def helped(gateway):
    return gateway.metrics()["rollgate_helper_work_seconds_count"]


def talk(gateway):
    """A conversation of short and long turns in every way to ask; what is told and stored of it."""
    s, messages, told = new(gateway), [], []
    for text in (LONG, "short", HUGE, "again", HUGE * 5, "and again"):
        messages += user(text)
        a = gateway.chat(s, messages, stop=["7"])
        assert a.status == 200, a.text
        told.append([a.json()["choices"], a.json()["usage"]])
        messages.append(a.json()["choices"][0]["message"])
    url = f"/sessions/{s['session_id']}/v1"
    count = gateway.post(url + "/messages/count_tokens", {"model": "m", "messages": user(HUGE)})
    told.append(count.json())
    first = gateway.post(url + "/responses", {"model": "m", "input": HUGE})
    assert first.status == 200, first.text
    more = gateway.post(url + "/responses", {"model": "m", "input": HUGE,
                                             "previous_response_id": first.json()["id"]})
    assert more.status == 200, more.text
    told.append([more.json()["output"][0]["content"], more.json()["usage"]])
    several = gateway.post(url + "/completions", {"model": "m", "prompt": [LONG, "short", HUGE], "max_tokens": 9})
    assert several.status == 200, several.text
    told.append([[c["text"] for c in several.json()["choices"]], several.json()["usage"]])
    trajectories = gateway.get(f"/sessions/{s['session_id']}/trajectories").json()["trajectories"]
    return told, sorted(t["prompt_ids"] + t["response_ids"] for t in trajectories)


def test_a_helper_gives_what_the_loop_would_have_given(start):
    alone, with_helpers = start(workers=1, helpers=0), start(workers=1)
    want, got = talk(alone), talk(with_helpers)
    assert helped(alone) == 0 and helped(with_helpers) >= 10
    assert got == want


@pytest.mark.parametrize("body, field", [({"messages": 7 * [{"role": "user", "content": LONG}] + [5]}, "messages[7]"),
                                         ({"messages": user(HUGE), "temperature": "hot"}, "temperature")])
def test_mistakes_in_long_bodies_are_told(start, body, field):
    gateway = start(workers=1)
    s = new(gateway)
    a = gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", {"model": "m", **body})
    assert a.status == 400 and field in a.json()["error"]["param"], a.text
    assert helped(gateway) == 1
    garbage = gateway.post(f"/sessions/{s['session_id']}/v1/chat/completions", b"[" + LONG.encode() * 9)
    assert garbage.status == 400, garbage.text


def test_calls_of_one_session_keep_their_order(faulty):
    gateway, inject = faulty()
    s, other = new(gateway), new(gateway)
    inject("stick", "1")
    answers = []

    def ask(text):
        answers.append(gateway.chat(s, text))
    threads = []
    for text in (LONG, "short one"):
        threads.append(threading.Thread(target=ask, args=(text,)))
        threads[-1].start()
        wait_until(lambda: inflight(gateway, s) == 1, 5, "the long one is rendered")
    stays(lambda: not answers, 0.2, "what is not stuck is rendered within milliseconds")
    assert not answers
    assert gateway.chat(other, "hello").status == 200       # and nobody else waits
    inject("stick", None)
    for t in threads:
        t.join()
    assert {a.status for a in answers} == {200}
    first = re.search(rf"session={s['session_id']} .*outcome=ok call=0 .*prompt_tokens=(\d+)", gateway.log())
    assert int(first[1]) > len(LONG)


def test_long_work_leaves_a_helper_to_short(faulty):
    gateway, inject = faulty(helpers=2)
    sessions, answers = [new(gateway) for _ in range(5)], []
    inject("stick", "1")
    threads = [threading.Thread(target=lambda s=s: answers.append(gateway.chat(s, LONG * 3))) for s in sessions[:4]]
    for t in threads:
        t.start()
    for s in sessions[:4]:
        wait_until(lambda s=s: inflight(gateway, s) == 1, 10, "more long prompts than helpers are to be rendered")
    a = gateway.chat(sessions[4], "short", unknown=LONG * 6)     # read by a helper
    assert a.status == 200 and not answers
    inject("stick", None)
    for t in threads:
        t.join()
    assert [a.status for a in answers] == 4 * [200]


def test_a_client_that_leaves_ends_the_work(faulty):
    gateway, inject = faulty(rejoin_window="60s")
    s = new(gateway)
    inject("stick", "1")
    sock = open_chat(gateway, s, {"messages": user(LONG)})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call is rendered")
    sock.close()
    wait_until(lambda: gateway.has_line("outcome=client_gone"), 5, "its end")
    inject("stick", None)
    wait_until(lambda: inflight(gateway, s) == 0, 5, "nothing is left")
    assert branches(gateway, s) == 0
    assert gateway.chat(s, LONG).status == 200


def test_a_session_that_ends_ends_the_work(faulty):
    gateway, inject = faulty()
    s, answers = new(gateway), []
    inject("stick", "1")
    t = threading.Thread(target=lambda: answers.append(gateway.chat(s, LONG)))
    t.start()
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call is rendered")
    assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
    t.join()
    assert answers[0].status == 410
    inject("stick", None)
    assert gateway.chat(new(gateway), LONG).status == 200


def test_a_worker_ends_though_a_helper_does_not(faulty):
    gateway, inject = faulty(grace="500ms")
    s = new(gateway)
    assert gateway.chat(s, "hello").status == 200
    inject("stick", "1")
    sock = open_chat(gateway, s, {"messages": user(LONG)})
    wait_until(lambda: inflight(gateway, s) == 1, 5, "the call is rendered")
    assert gateway.stop() == 0
    sock.close()
    inject("stick", None)
    gateway.start()
    assert branches(gateway, s) == 1


def test_many_at_once(start):
    gateway = start(engine="builtin:random:4", workers=1)
    sessions = [new(gateway) for _ in range(6)]
    done = in_parallel(lambda n: gateway.chat(sessions[n % 6], f"{n} {LONG}"), range(24))
    assert {a.status for a in done.values()} == {200}
    assert {branches(gateway, s) for s in sessions} == {4}


def test_work_that_does_not_end_ends_its_request_not_the_worker(faulty):
    gateway, inject = faulty(helper_timeout="1s")
    gateway.allow("its thread is given up", "call failed")
    s, other, pid = new(gateway), new(gateway), gateway.child("worker-0")
    inject("stick", "1")
    a = gateway.chat(s, LONG)
    assert a.status == 500 and "took too long" in a.json()["error"]["message"], a.text
    gateway.wait_line(r"its thread is given up body_hash=\d+")
    assert gateway.metrics()["rollgate_helper_stuck_total"] == 1
    assert gateway.chat(other, "hello").status == 200
    inject("stick", None)
    assert gateway.chat(other, LONG).status == 200      # another thread has taken its place
    assert gateway.child("worker-0") == pid


def test_a_worker_that_loses_many_threads_is_replaced_in_good_order(faulty):
    gateway, inject = faulty(helper_timeout="1s", grace="1s")
    gateway.allow("its thread is given up", "call failed", "the worker retires")
    sessions, pid = [new(gateway) for _ in range(4)], gateway.child("worker-0")
    assert gateway.chat(sessions[0], "hello").status == 200
    inject("stick", "1")
    answers = in_parallel(lambda n: gateway.chat(sessions[n], LONG), range(4))
    assert {a.status for a in answers.values()} == {500}
    gateway.wait_line("the worker retires threads=4")
    wait_until(lambda: gateway.child("worker-0") != pid, 20, "its successor")
    inject("stick", None)
    assert gateway.chat(sessions[1], LONG).status == 200
    assert branches(gateway, sessions[0]) == 1      # nothing answered is lost


def test_descriptors_have_their_place_before_there_are_threads(start):
    """Else the kernel lets the loop wait for all processors whenever connections need a larger table."""
    gateway = start(workers=1)
    with open(f"/proc/{gateway.child('worker-0')}/status", encoding="ascii") as f:
        size = int(re.search(r"FDSize:\s+(\d+)", f.read())[1])
    assert size >= min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
