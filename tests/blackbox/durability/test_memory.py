"""--max-worker-memory: sessions are evicted and read back without an effect on any result. Requests for which nothing
can be evicted are refused with a reason."""
import json
import os
import re
import signal
import threading

import pytest

from gateway import in_parallel, wait_until
from stub_engines import StubEngine
from test_streaming import new, user

CEILING = 150_000


def say(gateway, session, messages, **more):
    a = gateway.chat(session, messages, **more)
    assert a.status == 200, a.text
    return messages + [a.json()["choices"][0]["message"]]


def live_a_little(gateway, history, sessions=24):
    """The same doings on any gateway: sessions that grow in turns, fork, resample and get rewards."""
    made = [new(gateway, history=history, labels={"n": str(n)}) for n in range(sessions)]
    talks = [user(f"session {n} " + "x" * 500) for n in range(sessions)]
    for turn in range(5):
        for n, session in enumerate(made):
            talks[n] = say(gateway, session, talks[n]) + user(f"turn {turn} of {n}")
            if turn == 2:
                gateway.post(f"/sessions/{session['session_id']}/reward_info",
                             {"reward_info": {"score": n}})
    for n, session in enumerate(made):
        say(gateway, session, talks[n][:-1] + user("said otherwise"))
        if history == "tree":
            say(gateway, session, user("another root"), tools=[{"type": "function", "function": {
                "name": "f", "parameters": {"type": "object", "properties": {}}}}])
    return made


def bare(value, made):
    """Without what differs from run to run: ids and times."""
    if isinstance(value, dict):
        return {k: bare(v, made) for k, v in value.items()
                if k not in ("session_id", "response_id", "uid", "latency_ms") and
                not k.endswith(("_at", "_us", "_ids_at")) and "time" not in k}
    if isinstance(value, list):
        if value and type(value[0]) in (int, float):     # ids and logprobs, a hundred thousand of them
            return value
        return [bare(v, made) for v in value]
    if isinstance(value, str) and len(value) > 20:
        for n, session in enumerate(made):
            value = value.replace(session["session_id"], f"S{n}")
    return value


def everything(gateway, made):
    """State with all records, exports of several kinds, rows."""
    out = []
    for session in made:
        path = f"/sessions/{session['session_id']}"
        out.append(bare(gateway.get(f"{path}?records=1").json(), made))
        for query in ("", "?select=all_checkpoints&drift=on", "?select=longest&train_once=on"):
            out.append(bare(gateway.get(f"{path}/trajectories{query}").json(), made))
    out.append(bare(gateway.get("/sessions?limit=1000").json(), made))
    for session in made:
        out.append(bare(gateway.post(f"/sessions/{session['session_id']}/finalize").json(), made))
        out.append(bare(gateway.post(f"/sessions/{session['session_id']}/finalize").json(), made))
    return out


def strip_ids(text):
    """Response ids are random; where they stand does not matter here."""
    text = re.sub(r"(?<![0-9a-f])[0-9a-f]{24,64}", "ID", text)  # looks at a number once, of which there are many
    return re.sub(r"(resp_|chatcmpl-|msg_|cmpl-)ID", "ID", text)


@pytest.mark.cases(2)
@pytest.mark.parametrize("history", ["tree", "chains", "linear", "timelines"])
def test_a_ceiling_changes_no_result(start, history):
    free = start(engine="builtin:echo", workers=1)
    tight = start(engine="builtin:echo", workers=1, max_worker_memory=CEILING, log_level="debug")
    made_free, made_tight = live_a_little(free, history), live_a_little(tight, history)
    wait_until(lambda: tight.metrics()["rollgate_sessions_evicted"] > 0, 5, "something is evicted")
    m = tight.metrics()
    assert m["rollgate_session_evictions_total"] > 0 and m["rollgate_session_loads_total"] > 0, m
    assert free.metrics()["rollgate_session_evictions_total"] == 0
    assert tight.has_line(r" evicted .*?sessions=[1-9]") and not free.has_line(" evicted ")
    want, got = everything(free, made_free), everything(tight, made_tight)
    assert len(want) == len(got)
    for a, b in zip(want, got):
        assert strip_ids(json.dumps(b)) == strip_ids(json.dumps(a))
    wait_until(lambda: tight.metrics()["rollgate_session_memory_bytes"] < CEILING, 5,
               "the sessions fit below the ceiling")


def test_a_restart_reads_sessions_when_they_are_needed(start):
    gateway = start(engine="builtin:echo", workers=1)
    made = live_a_little(gateway, "tree")
    paths = [f"/sessions/{s['session_id']}?records=1" for s in made]
    before = [gateway.get(p).json() for p in paths]
    rows = gateway.get("/sessions?limit=1000").json()
    tokens = sum(row["tokens"] for row in rows["sessions"])
    wait_until(lambda: gateway.metrics()["rollgate_live_tokens"] == tokens, 5, "the gauge follows")
    assert gateway.stop() == 0
    gateway.start()
    m = gateway.metrics()
    assert m["rollgate_sessions_evicted"] == len(made) and m["rollgate_session_loads_total"] == 0
    assert m["rollgate_live_tokens"] == tokens
    assert gateway.get("/sessions?limit=1000").json() == rows
    assert [gateway.get(p).json() for p in paths] == before
    assert gateway.metrics()["rollgate_session_loads_total"] == len(made)


def test_a_filter_by_label_reads_no_session_without_it(start):
    """The dispatcher asks so after each restart: of many sessions none may come into memory for that."""
    gateway = start(engine="builtin:echo", workers=1)
    made = [new(gateway, labels=labels) for labels in ({}, {"a": "1"}, {"a": 2}, {"b": "1"})]
    for s in made:
        assert gateway.chat(s, "hi").status == 200
    assert gateway.stop() == 0
    gateway.start()
    found = {q: [r["session_id"] for r in gateway.get(f"/sessions?label={q}").json()["sessions"]]
             for q in ("attempt", "c=1", "a=1")}
    assert found == {"attempt": [], "c=1": [], "a=1": [made[1]["session_id"]]}
    assert gateway.metrics()["rollgate_session_loads_total"] == 2
    found = [r["session_id"] for r in gateway.get("/sessions?label=a").json()["sessions"]]
    assert found == [s["session_id"] for s in made[1:3]]
    assert gateway.post("/sessions/abort", {"labels": {"b": "1"}}).status == 200
    assert gateway.metrics()["rollgate_session_loads_total"] == 3


def test_many_wait_for_one_large_session(start):
    """It is read in slices; whoever asks meanwhile waits, and all get the same."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="64k")
    session = new(gateway)
    path = f"/sessions/{session['session_id']}"
    talk = user("go")
    for turn in range(120):
        talk = say(gateway, session, talk) + user(f"{turn} " + "y" * 4000)
    made = []  # while the large one is being written out there is no room for another
    wait_until(lambda: made.append(gateway.post("/sessions", {})) or made[-1].status == 200, 20, "a second one is made")
    small = made[-1].json()
    wait_until(lambda: gateway.metrics()["rollgate_sessions_evicted"] > 0, 5, "it is evicted")
    asked = [lambda: gateway.get(f"{path}/trajectories").json()["trajectories"][0]["response_ids"]] * 4

    def persist(session, text):
        """While the large one is being sent, others may be told to wait."""
        wait_until(lambda: gateway.chat(session, text).status == 200, 20, "a call is served")
        return 200
    asked += [lambda: persist(session, talk), lambda: persist(small, "quick")]
    leaver = gateway.connect()
    leaver.request("GET", f"{path}/trajectories")
    leaver.close()
    got = list(in_parallel(lambda n: asked[n](), range(len(asked))).values())
    ids = [g for g in got if isinstance(g, list)]
    assert len(ids) == 4 and got.count(200) == 2
    assert min(len(i) for i in ids) > 120 * 4000
    a = gateway.get(f"{path}/trajectories").json()["trajectories"][0]
    assert all(a["response_ids"][:len(i)] == i for i in ids)


def test_one_session_beyond_the_ceiling_goes_on(start):
    """Its own memory is no reason to refuse its calls, however fast they follow each other."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="16k")
    session = new(gateway)
    talk = user("go")
    for turn in range(150):
        talk = say(gateway, session, talk) + user(f"{turn} " + "y" * 1000)


def test_an_idle_session_expires_out_of_memory(start):
    """Its end needs no memory, its waiter and its export do."""
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory="4k", session_ttl="1s")
    session = new(gateway, history="linear")
    path = f"/sessions/{session['session_id']}"
    talk = say(gateway, session, user("a")) + user("b")
    say(gateway, session, talk)
    want = gateway.get(f"{path}/trajectories").json()["trajectories"][0]["response_ids"]
    state = gateway.get(f"{path}/wait?timeout_s=20", timeout=30).json()
    assert state["phase"] == "expired" and state["num_calls"] == 2
    for _ in range(2):
        a = gateway.post(f"{path}/finalize").json()
        assert a["trajectories"][0]["response_ids"] == want
    assert gateway.chat(session, "c").status == 410


def refused(answer):
    return answer.status == 503 and answer.json()["error"]["code"] == "memory_full" and \
        int(answer.headers["Retry-After"]) >= 1 and answer.headers["x-should-retry"] == "true"


def test_without_a_journal_the_ceiling_refuses(start):
    gateway = start(engine="builtin:echo", workers=1, max_worker_memory=CEILING, durability="none")
    made = []
    for n in range(100):
        a = gateway.post("/sessions")
        if a.status != 200:
            break
        made.append(a.json())
        assert gateway.chat(made[-1], f"{n} " + "z" * 3000).status in (200, 503)
    assert refused(a), a.text
    a = gateway.chat(made[0], "more")
    assert a.status == 200 or refused(a), a.text
    m = gateway.metrics()
    assert m["rollgate_session_evictions_total"] == 0
    assert m['rollgate_refusals_total{reason="memory"}'] > 0
    kept = made.pop()
    before = gateway.get(f"/sessions/{kept['session_id']}/trajectories").json()
    for session in made:
        assert gateway.request("DELETE", f"/sessions/{session['session_id']}").status == 204
    wait_until(lambda: gateway.post("/sessions").status == 200, 5, "there is room again")
    assert gateway.get(f"/sessions/{kept['session_id']}/trajectories").json() == before


def test_sessions_that_run_cannot_be_given_up(start):
    """All memory is held by calls in flight: new ones are refused, those that run end well."""
    gateway = start(engine="builtin:echo,delay_ms=1500", workers=1, max_worker_memory="100k")
    made = [new(gateway) for _ in range(6)]
    for session in made:        # a large prompt is in memory while its call runs ... from turn 2 on
        assert gateway.chat(session, "w" * 60000).status == 200
    answers = []
    threads = [threading.Thread(target=lambda s=s: answers.append(gateway.chat(
        s, user("w" * 60000) + [{"role": "assistant", "content": ""}] + user("again")).status))
        for s in made]
    for t in threads:
        t.start()
    seen = []

    def refuses():
        seen.append(gateway.post("/sessions"))
        return seen[-1].status == 503
    try:
        wait_until(refuses, 10, "a new session is refused")
        assert refused(seen[-1]), seen[-1].text
    finally:
        for t in threads:
            t.join()
    assert set(answers) <= {200, 503} and 200 in answers, answers
    wait_until(lambda: gateway.post("/sessions").status == 200, 10, "there is room again")


# --- sessions in use: what is cold of them leaves, their call goes on ---

BRANCHES, ANSWER = 200, 2000
BULK = BRANCHES * ANSWER * 8    # ids and logprobs


class Plan:
    """Stands for StubEngine.plan: long answers that differ; the one after `hold` waits."""

    def __init__(self):
        self.n, self.hold = 0, None

    def popleft(self):
        self.n += 1
        hold, self.hold = self.hold, None
        ids = list(b"<%d>" % self.n) + [97 + self.n % 26] * (50 if hold else ANSWER) + [257]
        return {"ids": ids, "matched": 257, "chunk": ANSWER, **({"wait": hold} if hold else {})}


def branch_out(gateway, engine, history="tree", during=lambda session: None):
    """A session with a call that runs all the while others branch off beside it."""
    engine.plan = plan = Plan()
    session = new(gateway, history=history)
    talk = say(gateway, session, user("begin"))
    plan.hold = release = threading.Event()
    held = threading.Thread(target=lambda: say(gateway, session, talk + user("held")))
    held.start()
    try:
        wait_until(lambda: not plan.hold, 10, "the call runs")
        for n in range(BRANCHES):
            last = say(gateway, session, talk + user(f"branch {n}"))
            if n % 50 == 7:
                say(gateway, session, last + user("and deeper"))
        during(session)
    finally:
        release.set()
        held.join()
    return session


EXPORTS = ("", "?select=all_checkpoints&format=msgpack", "?merge=token", "?format=safetensors&train_once=on")


def exports(gateway, session):
    path = f"/sessions/{session['session_id']}"
    answers = [gateway.get(f"{path}/trajectories{q}") for q in EXPORTS] + [gateway.get(f"{path}?records=1")]
    assert all(a.status == 200 for a in answers), [a.text[:300] for a in answers]
    return [a.body for a in answers]


@pytest.mark.cases(1)
@pytest.mark.parametrize("history", ["tree", "chains"])
def test_cold_branches_leave_while_a_call_runs(start, history):
    ceiling = BULK * 5 // 8
    with StubEngine("sglang") as engine:
        free = start(engine=engine.setting, workers=1)
        made_free = branch_out(free, engine, history)
        wait_until(lambda: free.metrics()["rollgate_session_memory_bytes"] > BULK, 5, "it is known")
        want = exports(free, made_free)
        tight = start(engine=engine.setting, workers=1, max_worker_memory=ceiling)

        def below(session):
            wait_until(lambda: tight.metrics()["rollgate_evicted_bytes"] > BULK // 3, 5, "it is known")
            m = tight.metrics()
            assert m["rollgate_session_memory_bytes"] < ceiling
            assert m["rollgate_session_evictions_total"] == 0 and m["rollgate_payload_evictions_total"] > 0
            exports(tight, session)     # of what is not there, while the call goes on
            wait_until(lambda: tight.metrics()["rollgate_session_memory_bytes"] < ceiling, 5,
                       "it fits below the ceiling again")
        made = branch_out(tight, engine, history, below)
        got = exports(tight, made)
        m = tight.metrics()
        assert m["rollgate_payload_loads_total"] > BRANCHES
        for i in (0, 4):
            assert strip_ids(json.dumps(bare(json.loads(got[i]), [made]))) == \
                strip_ids(json.dumps(bare(json.loads(want[i]), [made_free])))
        assert tight.stop() == 0
        tight.settings["max-worker-memory"] = 0
        tight.start()
        assert exports(tight, made) == got, "the same session, byte for byte, without a ceiling"


def test_a_crash_and_a_new_owner_find_what_was_given_up(start, tmp_path):
    """What is out of memory is in the journal; who has the journal has it, wherever compaction and a
    killed worker left it."""
    config = tmp_path / "settings.yaml"
    config.write_text("workers: 2\n")
    with StubEngine("sglang") as engine:
        gateway = start(engine=engine.setting, workers=None, config=str(config), max_worker_memory="1m",
                        journal_segment_bytes="256k")
        gateway.allow("process died")
        made = []
        while not any(s["session_id"].startswith("w1-") for s in made):
            made.append(branch_out(gateway, engine))
        session = made[-1]
        want = exports(gateway, session)
        for s in made[:-1]:
            assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
        for n in range(2):
            os.kill(gateway.child(f"worker-{n}"), signal.SIGKILL)
        wait_until(lambda: gateway.get(f"/sessions/{session['session_id']}").status == 200, 20, "it is back")
        assert exports(gateway, session) == want
        config.write_text("workers: 1\n")
        gateway.signal(signal.SIGHUP)
        wait_until(lambda: len(gateway.family()) == 4, 20, "supervisor, dispatcher, router and one worker are left")
        assert exports(gateway, session) == want
        engine.plan = Plan()
        assert say(gateway, session, user("begin"))
