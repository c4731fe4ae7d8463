"""Groups of rollouts with an engine that counts its tokens, with keys, and with failures of every process
(docs/rollouts.md)."""
import collections
import hashlib
import hmac
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import gateway as g
from rollouts_kit import Executor, chat, take_all
from stub_engines import StubEngine

ADMIN = "admin-key-0123456789abcdef"


class Counting(StubEngine):
    """Answers every call with tokens of its own choice and remembers how many it gave to which session."""

    def __init__(self):
        super().__init__("sglang")
        self.given = collections.Counter()
        self.random = random.Random(4)
        self.otherwise = self.choose

    def choose(self, body):
        n = self.random.randint(1, 9)
        self.given[body["rid"].split(":")[0]] += n + 1
        return {"ids": [97 + self.random.randrange(20) for _ in range(n)] + [257], "matched": 257}


def agent(turns, fail=0.0):
    """A runner that talks for some turns; with that probability its attempt ends badly in some way."""
    rng = random.Random(turns)

    def run(gateway, attempt):
        messages = []
        for turn in range(turns):
            messages.append({"role": "user", "content": f"{attempt['input']} {turn}"})
            answer = chat(gateway, attempt, None, messages=messages)
            if answer.status != 200:
                return {"outcome": "infra", "reason": answer.text[:300]}
            messages.append(answer.json()["choices"][0]["message"])
        if rng.random() < fail:
            return {"outcome": rng.choice(["error", "infra"]), "reason": "at random"}
        return {"outcome": "ok", "reward_info": {"reward": turns}}
    return run


def trained(gateway, member, **options):
    export = gateway.post(f"/sessions/{member['session_id']}/finalize", {"format": "json", **options})
    assert export.status == 200, export.text
    return sum(sum(t["response_mask"]) for t in export.json()["trajectories"])


@pytest.mark.parametrize("groups, fail", [(64, 0.0), (16, 0.3)], ids=["64 x 8", "30 % fail"])
def test_every_winning_token_is_trained_and_no_other(start, groups, fail):
    with Counting() as engine:
        gateway = start(engine=engine.setting, workers=2, runner_breaker=0)
        answer = gateway.post("/groups", {"defaults": {"n": 8, "input": "task", "attempts": 50, "infra_attempts": 50}, "groups": [
            {"id": f"g{i}", "runner": ("short", "long")[i % 2]} for i in range(groups)]})
        assert answer.status == 201, answer.text
        runners = {"short": agent(1, fail), "long": agent(3, fail)}
        with Executor(gateway, "a", {"short": 3, "long": 5}, runners) as a, Executor(gateway, "b", {"short": 2}, runners) as b:
            done, end = [], time.monotonic() + 200
            while len(done) < groups:
                assert time.monotonic() < end, gateway.get("/queues/train").text
                done += gateway.get("/queues/train/next?max=16&wait_s=2", timeout=30).json()["groups"]
        assert all(x["state"] == "finished" and x["succeeded"] == 8 for x in done)
        assert len({x["id"] for x in done}) == groups
        assert a.peak["short"] <= 3 and a.peak["long"] <= 5 and b.peak["short"] <= 2
        if fail == 0:
            assert (a.peak["short"], a.peak["long"], b.peak["short"]) == (3, 5, 2)
        winners = [m for x in done for m in x["members"]]
        assert len(winners) == groups * 8 and len({m["session_id"] for m in winners}) == groups * 8
        assert {m["session_id"]: m["trained_tokens"] for m in winners} == {
            m["session_id"]: engine.given[m["session_id"]] for m in winners}
        for m in winners[::7]:
            assert trained(gateway, m) == m["trained_tokens"]
        # nothing of a lost attempt is finalized or left open
        g.wait_until(lambda: gateway.get("/sessions?phase=open&limit=1000").json()["sessions"] == [], 20,
                     "no session is left open")
        won = {m["session_id"] for m in winners}
        rows, cursor = [], ""
        while cursor is not None:
            page = gateway.get(f"/sessions?limit=500{'&cursor=' + cursor if cursor else ''}").json()
            rows, cursor = rows + page["sessions"], page["next_cursor"]
        assert {r["session_id"] for r in rows if r["phase"] == "finalized"} == won


def test_a_cancel_reaches_the_engine(start):
    with StubEngine("sglang") as engine:
        never = threading.Event()
        engine.otherwise = lambda body: {"wait": never}
        gateway = start(engine=engine.setting, workers=2)
        gateway.post("/groups", {"groups": [{"id": f"g{i}", "runner": "r", "n": 10} for i in range(10)]})
        attempts = gateway.post("/attempts/claim", {"executor": "x", "slots": {"r": 100}}).json()["attempts"]
        assert len(attempts) == 100
        answers = []
        threads = [threading.Thread(target=lambda a=a: answers.append(chat(gateway, a, "go").status)) for a in attempts]
        for t in threads:
            t.start()
        g.wait_until(lambda: engine.running == 100, 60, "all are asked")
        assert len(gateway.post("/queues/train/cancel", {}).json()["cancelled"]) == 10
        g.wait_until(lambda: engine.running == 0, 10, "the engine is left alone")
        for t in threads:
            t.join(20)
        assert set(answers) == {410}


@pytest.fixture
def keyed(start, tmp_path):
    keys = tmp_path / "admin-keys"
    keys.write_text(ADMIN + "\n")
    return start(workers=2, admin_key_file=str(keys))


def executor_key(gateway, name):
    secret = open(f"{gateway.settings['state-dir']}/key-secret").read().split("\n")[0].encode()
    return f"rgx-{name}-" + hmac.new(secret, f"rollgate-key-1:executor:{name}".encode(), hashlib.sha256).hexdigest()


def test_who_may_do_what(keyed):
    admin = {"Authorization": f"Bearer {ADMIN}"}
    session = keyed.post("/sessions", {}, headers=admin).json()
    shown = {"none": {}, "junk": {"Authorization": "Bearer junk"}, "admin": admin, "agent": {"x-api-key": session["api_key"]},
             "runner": {"Authorization": f"Bearer {session['runner_key']}"},
             "executor": {"Authorization": f"Bearer {executor_key(keyed, 'x')}"}, "forged": {"api-key": "rgx-x-" + "0" * 64}}
    assert keyed.post("/groups", {"id": "g", "runner": "r", "n": 9}, headers=admin).status == 201
    routes = [("POST", "/groups", {"id": "h", "runner": "q"}, {"admin"}), ("GET", "/groups", None, {"admin"}),
              ("GET", "/groups/g", None, {"admin"}), ("PUT", "/groups/k", {"runner": "q"}, {"admin"}),
              ("GET", "/groups/g/wait?timeout_s=0", None, {"admin"}), ("GET", "/queues/train", None, {"admin"}),
              ("GET", "/queues/train/next", None, {"admin"}), ("POST", "/queues/train/ack", {"groups": []}, {"admin"}),
              ("POST", "/queues/train/return", {"groups": []}, {"admin"}),
              ("POST", "/queues/val/cancel", {}, {"admin"}), ("POST", "/groups/none/cancel", {}, {"admin"}),
              ("GET", "/attempts", None, {"admin"}),
              ("POST", "/attempts/claim", {"executor": "x", "slots": {"none": 1}, "wait_s": 0}, {"admin", "executor"}),
              ("POST", "/attempts/renew", {"executor": "x", "attempts": []}, {"admin", "executor"}),
              ("POST", f"/attempts/{'0' * 32}/end", {"outcome": "ok"}, {"admin", "executor"}),
              ("POST", "/sessions", {}, {"admin"}), ("GET", f"/sessions/{session['session_id']}", None, {"admin", "runner"})]
    off = []
    for method, path, body, may in routes:
        for who, headers in shown.items():
            status = keyed.request(method, path, body, headers).status
            want = 401 if who in ("none", "junk", "forged") else 403
            if (status not in (401, 403)) != (who in may) or (who not in may and status != want):
                off.append((method, path, who, status))
    assert not off, off


def test_executors_are_kept_apart(keyed):
    admin = {"Authorization": f"Bearer {ADMIN}"}
    keyed.post("/groups", {"id": "g", "runner": "r", "n": 2}, headers=admin)
    one, two = ({"Authorization": f"Bearer {executor_key(keyed, n)}"} for n in ("one", "two"))
    claim = {"slots": {"r": 1}, "wait_s": 5}
    mine = keyed.post("/attempts/claim", {**claim, "executor": "one/3"}, headers=one).json()["attempts"][0]
    assert keyed.post("/attempts/claim", {**claim, "executor": "one"}, headers=two).status == 403
    theirs = keyed.post("/attempts/claim", claim, headers=two).json()["attempts"][0]
    path = f"/attempts/{mine['attempt_id']}/end"
    assert keyed.post(path, {"outcome": "error"}, headers=two).status == 403
    kill = keyed.post("/attempts/renew", {"executor": "two", "attempts": [mine["attempt_id"]]}, headers=two).json()["kill"]
    assert kill == [{"attempt_id": mine["attempt_id"], "reason": "unknown"}]
    assert keyed.post(path, {"outcome": "error"}, headers=one).json() == {"rollout": "retry"}
    # the attempt's own keys: the agent's talks, the runner's scores
    assert chat(keyed, theirs, "go").status == 200
    score = keyed.post(f"/sessions/{theirs['session']['session_id']}/reward_info", {"reward_info": {"score": 3}},
                       headers={"Authorization": f"Bearer {theirs['session']['runner_key']}"})
    assert score.status == 200
    end = keyed.post(f"/attempts/{theirs['attempt_id']}/end", {"outcome": "ok"}, headers=two)
    assert end.json() == {"rollout": "succeeded"}
    member = keyed.get("/groups/g", headers=admin).json()["members"][theirs["rollout"]]
    assert member["reward"] == 3


def test_a_full_disk_refuses_groups_and_settles_what_runs(start, tmp_path):
    gateway = start(journal_min_free="1KiB")
    gateway.post("/groups", {"id": "g", "runner": "r"})
    attempt = gateway.post("/attempts/claim", {"executor": "x", "slots": {"r": 1}}).json()["attempts"][0]
    chat(gateway, attempt, "go")
    gateway.stop()
    gateway.settings["journal-min-free"] = "1000GiB"
    gateway.start()
    refused = g.wait_until(lambda: (lambda a: a if a.status == 503 else None)(
                               gateway.post("/groups", {"id": "h", "runner": "r"})),
                           10, "groups are refused")
    assert refused.json()["error"]["code"] == "storage_full"
    end = gateway.post(f"/attempts/{attempt['attempt_id']}/end", {"outcome": "ok", "reward_info": {"reward": 1}})
    assert end.json() == {"rollout": "succeeded"}, end.text
    assert gateway.get("/queues/train/next?wait_s=5").json()["groups"][0]["state"] == "finished"


@pytest.mark.alone
def test_nothing_is_lost_when_everything_dies(start):
    """Groups settle once, are delivered until acknowledged, with the same bytes; no session is left open."""
    rng = random.Random(7)
    gateway = start(workers=2, routers=2, attempt_lease="2s", runner_breaker=0, max_restarts=100000).allow(
        "process died", "worker connection", "cannot", "upstream", "process ended")
    names = {f"g{i}" for i in range(80)}
    answer = gateway.post("/groups", {"defaults": {"runner": "r", "n": 4, "input": "t", "infra_attempts": 1000, "attempts": 1000},
                                      "groups": [{"id": n} for n in sorted(names)]})
    assert answer.status == 201
    stop, kills = threading.Event(), [0]

    def killer():
        # Who dies again and again is replaced after ever longer waits, up to 10 s: a few kills, then peace.
        while kills[0] < 14 and not stop.wait(rng.uniform(0.2, 1.2)):
            children = g.children_of(gateway.process.pid)
            if children:
                pid = rng.choice(children)
                gateway.remember(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                    kills[0] += 1
                except ProcessLookupError:
                    pass

    def ask(method, path, body=None):
        end = time.monotonic() + 90
        while True:
            try:
                answer = gateway.request(method, path, body, timeout=30)
                if answer.status < 500:
                    return answer
            except OSError:
                pass
            assert time.monotonic() < end, path
            g.pause(0.05, "an agent that asks again")
    thread = threading.Thread(target=killer)
    thread.start()
    seen, exports, acked, end = {}, {}, set(), time.monotonic() + 240
    try:
        with Executor(gateway, "a", {"r": 3}, {"r": agent(5)}):
            while acked != names:
                assert time.monotonic() < end, (
                    f"{len(acked)} of {len(names)} after {kills[0]} kills: {ask('GET', '/queues/train').text}")
                for group in ask("GET", "/queues/train/next?max=8&wait_s=1&lease_s=3").json()["groups"]:
                    assert group["state"] == "finished" and group["id"] not in acked, group["id"]
                    members = json.dumps(group["members"], sort_keys=True)
                    assert seen.setdefault(group["id"], members) == members, "a delivery differs from the one before"
                    first = group["members"][0]["session_id"]
                    body = ask("POST", f"/sessions/{first}/finalize", {"format": "msgpack"}).body
                    assert exports.setdefault(first, body) == body
                    if rng.random() < 0.3:
                        continue        # the trainer died before it acknowledged: it comes again
                    if ask("POST", "/queues/train/ack", {"groups": [group["id"]]}).status == 200:
                        acked.add(group["id"])
    finally:
        stop.set()
        thread.join(10)
    assert kills[0] >= 10
    g.wait_until(lambda: ask("GET", "/groups").json()["groups"] == [], 30, "all groups are gone")
    g.wait_until(lambda: ask("GET", "/sessions?phase=open&limit=1000").json()["sessions"] == [], 60, "no session is left open")


@pytest.mark.alone
def test_executors_and_the_whole_gateway_are_killed_too():
    """The crash bench in its small form: processes of the gateway, executors with runs, and everything at once."""
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    bench = [sys.executable, str(g.ROOT / "tests/bench/rollouts.py"), "--kill", "12", "--every", "1", "--seed", "3"]
    done = subprocess.run(bench, env=dict(os.environ, RG_BUILD=str(g.BUILD)), capture_output=True, text=True, timeout=500,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    row = dict(zip(*[iter(done.stdout.split())] * 2))
    assert int(row["groups"]) > 0 and int(row["whole"]) >= 1, done.stdout
