"""kill -9 of random processes, including the supervisor, during multi-turn load. Clients record every answered turn,
and the engine every id that it sent. At the end every answered turn is in the exports exactly once with those ids,
nothing is there twice, and every session can continue. RG_CRASH_SECONDS sets the length (600: the long form).
RG_CRASH_SEED is printed, and repeats the same choices."""
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import threading
import time

import pytest

from gateway import alive, children_of, pause, wait_until
from stub_engines import StubEngine, logprob

pytestmark = pytest.mark.alone
SECONDS = float(os.environ.get("RG_CRASH_SECONDS", "25"))
SEED = int(os.environ.get("RG_CRASH_SEED") or random.randrange(1000000))
CLIENTS = 8
TURNS = 30              # of a session; then a client begins another
SUPERVISOR_EVERY_S = 6


class Answers:
    """Stands for StubEngine.plan: every call gets other ids, which are remembered. The bytes are not
    all UTF-8, so that the ids cannot be made from the text again."""

    def __init__(self):
        self.sent, self.numbers, self.random = {}, itertools.count(), random.Random(5)

    def popleft(self):
        n = next(self.numbers)
        noise = bytes(self.random.choice(b"abcdefgh \xc3\xff") for _ in range(self.random.randint(3, 30)))
        self.sent[n] = list(b"<%d>" % n + noise) + [257]
        return {"ids": self.sent[n], "matched": 257, "delay_s": self.random.uniform(0, 0.02), "chunk": 4}

    def of(self, content):
        """The ids that were sent for this text."""
        ids = self.sent[int(content[1:content.index(">")])]
        assert bytes(ids[:-1]).decode(errors="replace") == content
        return ids


class Session:
    def __init__(self, made):
        self.id = made["session_id"]
        self.path = f"/sessions/{self.id}"
        self.messages = [{"role": "user", "content": "begin"}]
        self.answered = []      # (response id, text)
        self.tries = []         # (what came, for which turn, when it was asked and when it came)


class Client(threading.Thread):
    """One agent after another: growing conversations; a request is repeated until it is answered."""

    def __init__(self, gateway, number, stop, turns=TURNS):
        super().__init__(daemon=True)
        self.gateway, self.number, self.stop, self.turns = gateway, number, stop, turns
        self.sessions, self.retries, self.fault = [], 0, None
        self.came = None        # of the last request
        # Half of them keep their connection, which its router lends to a worker.
        self.connection, self.keeps = None, number % 2 == 0

    @property
    def answered(self):
        return [a for s in self.sessions for a in s.answered]

    def post(self, path, body, stream=False):
        """The answer's JSON, or None: to be tried again."""
        try:
            c = self.connection = self.connection or self.gateway.connect(20)
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            r = c.getresponse()
            text = r.read()
        except (OSError, http.client.HTTPException) as e:
            self.came = repr(e)
            self.leave()
            return None
        if not self.keeps:
            self.leave()
        self.came = str(r.status)
        if r.status == 200:
            assert "Rollgate-Reseeded" not in r.headers, "the session was lost"
            a = self.assemble(text) if stream else json.loads(text)
            self.came += "" if a else ", cut off"
            return a
        if r.headers.get("x-should-retry") == "true":
            return None
        raise AssertionError(f"{r.status} {text[:500]!r}")

    def leave(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    @staticmethod
    def assemble(text):
        events = [l[6:] for l in text.split(b"\n") if l.startswith(b"data: ")]
        if not events or events[-1] != b"[DONE]":
            return None  # cut off
        chunks = [json.loads(e) for e in events[:-1]]
        if any("error" in c for c in chunks):
            return None
        content = "".join(ch["delta"].get("content") or "" for c in chunks for ch in c["choices"])
        return {"id": chunks[0]["id"], "choices": [{"message": {"role": "assistant", "content": content}}]}

    def until_answered(self, path, body, stream=False, session=None):
        while True:
            began = time.time()
            a = self.post(path, body, stream)
            if session:
                session.tries.append((self.came, len(session.answered), began, time.time()))
            if a is not None:
                return a
            self.retries += 1
            if self.retries % 2:    # the others at once
                pause(0.02, "an agent that comes back a little later")

    def turn(self, session):
        stream = len(session.answered) % 3 == 2
        a = self.until_answered(f"{session.path}/v1/chat/completions",
                                {"model": "m", "messages": session.messages, "stream": stream}, stream, session)
        message = a["choices"][0]["message"]
        session.answered.append((a["id"], message["content"]))
        session.messages += [message, {"role": "user", "content": f"go on {len(session.answered)}"}]

    def run(self):
        try:
            while not self.stop.is_set():
                self.sessions.append(Session(self.until_answered("/sessions", {})))
                while len(self.sessions[-1].answered) < self.turns and not self.stop.is_set():
                    self.turn(self.sessions[-1])
                    pause(0.01, "an agent's own pace")
        except Exception as e:  # told by the test
            self.fault = f"client {self.number}: {type(e).__name__}: {e}"
        finally:
            self.leave()


def kill_supervisor(gateway):
    """Alone: its children are ended by its death. Then the same command again, as systemd would."""
    gateway.signal(signal.SIGSTOP)  # no child is forked behind our look at them
    family = gateway.family()
    gateway.signal(signal.SIGKILL)
    gateway.process.wait(10)
    wait_until(lambda: not any(alive(p) for p in family), 10, "the children end with the supervisor")
    gateway.start()


def kill_child(gateway, rng):
    children = children_of(gateway.process.pid)
    if not children:
        return 0
    pid = rng.choice(children)
    gateway.remember(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def change(gateway, rng):
    """Other numbers of processes, or a new binary."""
    if rng.random() < 0.2:
        gateway.signal(signal.SIGUSR2)
        return
    with open(gateway.settings["config"], "w") as f:
        f.write(f"workers: {rng.randint(2, 8)}\nrouters: {rng.randint(1, 4)}\n")
    gateway.signal(signal.SIGHUP)


def kill_some(gateway, until, rng, changes=0.0):
    """Kills of children and of the supervisor; in between, changes with that probability."""
    kills = supervisors = 0
    next_supervisor = time.monotonic() + SUPERVISOR_EVERY_S
    while time.monotonic() < until:
        if time.monotonic() > next_supervisor:
            kill_supervisor(gateway)
            supervisors += 1
            next_supervisor = time.monotonic() + rng.uniform(0.5, 1.5) * SUPERVISOR_EVERY_S
        elif rng.random() < changes:
            change(gateway, rng)
        else:
            kills += kill_child(gateway, rng)
        pause(rng.uniform(0.1, 0.4), "the gateway works between two blows")
    return kills, supervisors


def tell_extra(gateway, session, records):
    """What was asked, answered and logged around an answer that nobody got."""
    got = {r for r, _ in session.answered}
    for n, record in enumerate(records):
        if all(a["response_id"] in got for a in record["answers"]):
            continue
        print(f"{session.id}: nobody got record {n}, {json.dumps(record)[:2000]}")
        again = {turn for came, turn, *_ in session.tries if came != "200"}
        print(*(t for t in session.tries if t[1] in again), sep="\n")
        print(*(l for l in gateway.log().split("\n") if session.id in l), sep="\n")


def check_records(gateway, session, answers):
    a = gateway.get(f"{session.path}?records=1", timeout=60)
    assert a.status == 200, a.text
    by_id = {}
    for record in a.json()["records"]:
        for answer in record["answers"]:
            assert answer["response_id"] not in by_id, "a response id twice"
            by_id[answer["response_id"]] = answer
    tell_extra(gateway, session, a.json()["records"])
    for response_id, content in session.answered:
        assert response_id in by_id, f"lost: {response_id} of {session.id}"
        got = by_id[response_id]["output_ids"]
        if answers:
            assert got == answers.of(content), f"not the engine's ids: {response_id}"
        else:
            assert bytes(i for i in got if i < 256).decode() == content
    return len(by_id) - len(session.answered)


def check_export(gateway, session, answers=None):
    """Every answered turn once, with the ids that the engine sent; the number of other turns."""
    extra = check_records(gateway, session, answers)
    trajectories = gateway.post(f"{session.path}/finalize").json()["trajectories"]
    longest = max(trajectories, key=lambda t: sum(t["response_mask"]))
    marked = [(i, p) for i, p, m in zip(longest["response_ids"], longest["response_logprobs"],
                                        longest["response_mask"]) if m]
    if answers:
        want = [answers.of(content) for _, content in session.answered]
        assert [i for i, _ in marked] == sum(want, []), "the trajectory is not the talk"
        told = [logprob(j, t) for ids in want for j, t in enumerate(ids)]
        assert all(abs(p - q) < 1e-6 for (_, p), q in zip(marked, told)), "not the engine's logprobs"
    else:
        text = bytes(i for i, _ in marked if i < 256).decode()
        assert text == "".join(content for _, content in session.answered), "the trajectory is not the talk"
    return extra


@contextlib.contextmanager
def talking(start, **settings):
    """(gateway, clients, answers): all talk; in the end all have stopped and every session goes on, with
    every answered turn in its export once."""
    with StubEngine("sglang") as engine:
        engine.plan = answers = Answers()
        gateway = start(engine=engine.setting, max_restarts=1000000, log_rate=100000, engine_health_interval="200ms", **settings)
        gateway.allow("process died", "order not taken", "cannot report to the supervisor",
                      # the process that tries the new binary is one of those that are killed
                      r"the new binary does not run .*killed by signal 9")
        stop = threading.Event()
        clients = [Client(gateway, i, stop, turns=TURNS if i > 1 else 10 * TURNS) for i in range(CLIENTS)]
        for c in clients:
            c.start()
        wait_until(lambda: all(c.answered for c in clients), 20, "all clients talk")
        print(f"RG_CRASH_SEED={SEED}")
        yield gateway
        stop.set()
        for c in clients:
            c.join(60)
            assert not c.is_alive(), f"client {c.number} hangs"
            assert c.fault is None, c.fault
        turns = sum(len(c.answered) for c in clients)
        sessions = [s for c in clients for s in c.sessions]
        wait_until(lambda: gateway.get("/ready").status == 200, 60, "all is ready again")

        def conclude(client):
            for s in client.sessions:
                client.turn(s)
            return sum(check_export(gateway, s, answers) for s in client.sessions)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            extra = sum(pool.map(conclude, clients))
        print(f"{len(sessions)} sessions, {turns} turns answered, {sum(c.retries for c in clients)} retries, "
              f"{len(answers.sent)} answers of the engine, {extra} extra turns")
        assert extra == 0, "a retried turn was committed twice"


def test_nothing_answered_is_lost_or_doubled(start):
    with talking(start, workers=8, routers=4) as gateway:
        kills, supervisors = kill_some(gateway, time.monotonic() + SECONDS, random.Random(SEED))
        print(f"{kills} kills of children, {supervisors} of the supervisor")
        assert kills >= SECONDS and supervisors >= SECONDS // 20, "too few kills to mean anything"


def test_nor_when_processes_come_go_and_are_replaced_meanwhile(start, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("workers: 4\nrouters: 2\n")
    with talking(start, workers=None, routers=None, config=str(path)) as gateway:
        kills, _ = kill_some(gateway, time.monotonic() + SECONDS, random.Random(SEED), changes=0.3)
        assert kills >= SECONDS / 2
