"""What an agent can have written to the disk: what no commit names leaves it, and the rest is bounded."""
import json
import subprocess
import threading

from gateway import BINARY, wait_until
from test_faults import faulty  # noqa: F401
from test_large_answers import ASK, large  # noqa: F401
from test_streaming import new, user
from test_turn_recovery import kill_worker, records

CALLS, LONG = 4, 400_000
MIB = 1 << 20


def text(seed, length=LONG):
    return f"{seed} " + "".join(chr(97 + (i * 7 + i // 26 + seed) % 26) for i in range(997)) * (length // 997)


def at_once(gateway, session, bodies):
    """The answers of calls that run at the same time."""
    answers = [None] * len(bodies)

    def call(i):
        answers[i] = gateway.chat(session, bodies[i], max_tokens=3, temperature=i / 10)
    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def sizes(gateway, session):
    """Of the session's records in the journal, by kind."""
    dumped = subprocess.run([str(BINARY), "journal", "dump", f"{gateway.folder}/state/worker-0"], capture_output=True, text=True,
                            timeout=60, check=True).stdout
    found = {}
    for line in dumped.splitlines():
        r = json.loads(line)
        if r["session_id"] == session["session_id"]:
            found[r["kind"]] = found.get(r["kind"], 0) + r["bytes"]
    return found


def lose(gateway, session, messages, seed):
    """Calls that long for the same place: one has it, the others fail behind their texts. What the session has then."""
    bodies = [[*messages, *user(text(seed + i))] for i in range(CALLS)]
    answers = at_once(gateway, session, bodies)
    won = [i for i, a in enumerate(answers) if a.status == 200]
    assert len(won) == 1 and all(a.status in (400, 409) for i, a in enumerate(answers) if i not in won), [a.text[:200] for a in answers]
    return [*bodies[won[0]], answers[won[0]].json()["choices"][0]["message"]]


def live(gateway):
    return gateway.metrics()["rollgate_journal_live_bytes"]


def settled(gateway, most):
    """The bytes that sessions need, told once a second, when they are no more than that."""
    wait_until(lambda: 0 < live(gateway) <= most, 20, f"{most} bytes are needed at most, of {live(gateway)}")
    return live(gateway)


def test_texts_of_calls_that_fail_leave_the_disk(faulty):  # noqa: F811
    gateway, inject = faulty(engine="builtin:echo,delay_ms=300", context_length=40_000_000, journal_segment_bytes="1MiB")
    session, messages = new(gateway, history="linear"), []
    path = f"/sessions/{session['session_id']}"
    for turn in range(2):
        inject("slow", 100)    # the others are answered while the first one writes
        messages = lose(gateway, session, messages, turn * CALLS)
        inject("slow", None)
    whole, written = records(gateway, session), sizes(gateway, session)
    most = written["create"] + written["commit"] + 2 * LONG + 2 * 4 * LONG + 10_000    # texts, and their tokens
    wait_until(lambda: gateway.metrics()["rollgate_journal_written_bytes_total"] > most + LONG // 2, 5, "some have failed behind their texts")
    needed = settled(gateway, most)
    snapshot = gateway.get(f"{path}/snapshot")
    fork = gateway.post(f"{path}/fork", {})
    assert snapshot.status == fork.status == 200
    copy = gateway.post("/sessions/import", snapshot.json()).json()
    for other in (copy, fork.json()):
        assert [r["answers"][0]["output_ids"] for r in records(gateway, other)["records"]] == \
            [r["answers"][0]["output_ids"] for r in whole["records"]]
        assert sizes(gateway, other)["bulk"] < 2.1 * 5 * LONG
        assert gateway.request("DELETE", f"/sessions/{other['session_id']}").status == 204
    for _ in range(2):
        kill_worker(gateway)
        settled(gateway, needed + 10_000)
        assert records(gateway, session) == whole
    assert gateway.stop() == 0
    subprocess.run([str(BINARY), "journal", "compact", f"{gateway.folder}/state/worker-0"], check=True, timeout=60, capture_output=True)
    kept = sizes(gateway, session)
    assert kept == {**written, "bulk": kept["bulk"]}
    assert kept["bulk"] < 2.1 * 5 * LONG
    gateway.start()
    assert records(gateway, session) == whole
    assert gateway.chat(session, [*messages, *user("more")]).status == 200


def test_parts_that_a_killed_worker_left_are_needed_no_longer(faulty):  # noqa: F811
    gateway, inject = faulty(context_length=40_000_000, journal_segment_bytes="1MiB")
    session = new(gateway)
    first = gateway.chat(session, user("first"), max_tokens=3).json()["choices"][0]["message"]
    whole, idle = records(gateway, session), settled(gateway, MIB)
    messages = [*user("first"), first, *user(text(1))]
    for _ in range(3):
        inject("slow", 400)
        c = gateway.connect()
        c.request("POST", f"/sessions/{session['session_id']}/v1/chat/completions", json.dumps({"model": "m", "messages": messages, "max_tokens": 3}))
        before = sizes(gateway, session).get("bulk", 0)
        wait_until(lambda: sizes(gateway, session).get("bulk", 0) > before, 10, "a part is there")
        kill_worker(gateway)
        inject("slow", None)
        c.close()
        settled(gateway, idle + 10_000)
        assert records(gateway, session) == whole
    assert gateway.chat(session, messages, max_tokens=3).status == 200
    whole = records(gateway, session)
    kill_worker(gateway)
    assert records(gateway, session) == whole
    settled(gateway, idle + 6 * LONG)


def test_parts_of_a_call_that_the_end_of_its_session_stops_are_needed_no_longer(faulty):  # noqa: F811
    """The session stays for its exports; its call's parts do not."""
    gateway, inject = faulty(context_length=40_000_000, journal_segment_bytes="1MiB")
    session = new(gateway)
    path = f"/sessions/{session['session_id']}"
    assert gateway.chat(session, user("first"), max_tokens=3).status == 200
    idle = settled(gateway, MIB)
    inject("slow", 400)
    answers = []
    t = threading.Thread(target=lambda: answers.append(gateway.chat(session, user(text(1)), max_tokens=3)))
    t.start()
    wait_until(lambda: sizes(gateway, session).get("bulk", 0) > 0, 10, "a part is there")
    assert gateway.post(f"{path}/finalize", {}).status == 200
    inject("slow", None)
    t.join()
    assert answers[0].status in (404, 410), answers[0].text
    settled(gateway, idle + 10_000)
    assert gateway.get(f"{path}/trajectories?format=json").status == 200


def test_long_echoes_are_recorded_once(start):
    """What a Responses request has echoed is recorded once for calls that ask the same; long instructions stand in their message alone."""
    gateway = start(engine="builtin:echo", workers=1, context_length=40_000_000)
    for length in (100_000, 3_000_000):
        session, commits = new(gateway), [0]
        for end in "ababb":
            a = gateway.post(f"/sessions/{session['session_id']}/v1/responses",
                             {"model": "m", "input": f"x{len(commits)}", "max_output_tokens": 2, "instructions": "y " * (length // 2) + end})
            assert a.status == 200 and a.json()["instructions"].endswith(end), a.text[:300]
            size = sizes(gateway, session)
            commits.append(size["commit"] + size.get("bulk", 0))
        grown = [now - then > length for then, now in zip(commits, commits[1:])]
        assert grown == [True, True, False, False, False], (length, commits)


# --- --max-session-recorded-bytes ---

def refused(answer):
    error = answer.json()["error"]
    return (answer.status == 410 and error["code"] == "budget_exhausted" and error["param"] == "max_session_recorded_bytes"
            and "--max-session-recorded-bytes" in error["message"])


def recorded(gateway, session):
    return sum(sizes(gateway, session).values())


def test_what_a_session_records_is_bounded(start):
    limit = 300_000
    gateway = start(engine="builtin:echo", workers=1, context_length=1_000_000, max_session_recorded_bytes=limit)
    session, messages, answer = new(gateway), [], None
    for turn in range(100):
        answer = gateway.chat(session, [*messages, *user(text(turn, 5000))], max_tokens=3)
        if answer.status != 200:
            break
        messages += [*user(text(turn, 5000)), answer.json()["choices"][0]["message"]]
    assert refused(answer), answer.text
    assert len(messages) >= 20 and limit - 30_000 < recorded(gateway, session) < limit + 200
    path, whole = f"/sessions/{session['session_id']}", records(gateway, session)
    assert gateway.metrics()['rollgate_limit{limit="session_recorded_bytes"}'] == limit
    assert gateway.chat(session, messages, max_tokens=3).status == 200, "a small call has room"
    kill_worker(gateway)
    assert refused(gateway.chat(session, [*messages, *user(text(99, 20_000))], max_tokens=3)), "counted by the next worker, too"
    assert records(gateway, session)["records"][:len(whole["records"])] == whole["records"]
    assert gateway.chat(new(gateway), user(text(1, 5000)), max_tokens=3).status == 200, "others have their own"
    assert gateway.post(f"{path}/reward_info", {"reward_info": {"r": 1}}).status == 200
    assert records(gateway, session)["stop_reason"] == {"by": "budget", "reason": "max_session_recorded_bytes"}
    assert gateway.post(f"{path}/finalize").json()["trajectories"]


def test_calls_at_once_do_not_pass_the_bound_together(start):
    """Each fits alone; together they do not. Who is refused leaves nothing."""
    limit = 5_000_000
    gateway = start(engine="builtin:echo,delay_ms=300", workers=1, context_length=40_000_000, max_session_recorded_bytes=limit)
    session = new(gateway)
    answers = at_once(gateway, session, [user(text(i)) for i in range(CALLS)])
    assert {a.status for a in answers} == {200, 410} and all(a.status == 200 or refused(a) for a in answers)
    settled(gateway, limit + 1000)
    n = sum(a.status == 200 for a in answers)
    assert len(records(gateway, session)["records"]) == n
    kill_worker(gateway)
    settled(gateway, limit + 1000)
    assert len(records(gateway, session)["records"]) == n


def test_large_answers_that_pass_the_bound_leave_nothing(start, large):  # noqa: F811
    gateway = start(workers=1, max_session_recorded_bytes=900_000, **large)
    session = new(gateway)
    assert gateway.chat(session, user("first"), **{**ASK, "n": 4}).status == 200
    whole, needed = records(gateway, session)["records"], settled(gateway, 900_000)
    for i in range(3):
        assert refused(gateway.chat(session, user(f"second {i}"), **ASK))
    settled(gateway, needed + 10_000)
    assert records(gateway, session)["records"] == whole
    assert gateway.chat(session, user("third"), **{**ASK, "n": 4}).status == 200
    whole = records(gateway, session)["records"]
    kill_worker(gateway)
    assert records(gateway, session)["records"] == whole
