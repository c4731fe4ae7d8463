"""A fleet under load, in network namespaces: each request reaches the owner of its session by one hop, a cable is cut in the middle of
a request, and orders reach no node that is cut off."""
import http.client
import json
import random
import re
import subprocess
import threading
import time

import pytest

import gateway as g
from fleet_kit import AS_ADMIN, index_of
from fleet_net import LEASE_S, ROUNDS, Agents, FarFleet, back_up, leases, report, wait_claimed
from stub_engines import StubEngine

KEEPS_CONNECTIONS = True    # of gateways to the engine
NODES = "abc"
REQUESTS = 100_800 if ROUNDS > 1 else 900
DOORS = 4       # connections to each node


SETTINGS = {"lease": f"{LEASE_S}s", "fleet-outage": "30s"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with FarFleet(tmp_path_factory.mktemp("fleet"), NODES, **SETTINGS) as f:
        yield f


def forwarded(fleet):
    return {node: int(fleet[node].metrics()["rollgate_fleet_forwarded_requests_total"]) for node in NODES}


class Asker(threading.Thread):
    """Asks one node for random sessions on a kept connection, `n` times or until `ended`. `asked`: how often for which session."""

    def __init__(self, fleet, node, number, sessions, n, ended=None):
        super().__init__()
        self.gateway, self.sessions, self.n, self.ended = fleet[node], sessions, n, ended
        self.node, self.random, self.asked, self.slowest, self.fault = node, random.Random(number), {}, 0.0, None

    def run(self):
        c = self.gateway.connect()
        try:
            while self.n > 0 and not (self.ended and self.ended.is_set()):
                session = self.random.choice(self.sessions)
                begin = time.monotonic()
                c.request("GET", f"/sessions/{session}", headers=AS_ADMIN)
                answer = c.getresponse()
                body = json.loads(answer.read())
                assert answer.status == 200 and body["session_id"] == session, (session, answer.status, body)
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.asked[session] = self.asked.get(session, 0) + 1
                self.n -= 1
        except (AssertionError, ValueError, OSError, http.client.HTTPException) as e:
            self.fault = e
        finally:
            c.close()


def ask_all(askers, during=None):
    for asker in askers:
        asker.start()
    try:
        if during:
            during()
    finally:
        for asker in askers:
            if during:
                asker.ended.set()
            asker.join()
    assert not [a.fault for a in askers if a.fault], [a.fault for a in askers if a.fault][0]


def test_each_request_reaches_its_owner_by_one_hop(fleet):
    """The node in front counts what it forwards. The owner would count, too, if it forwarded."""
    sessions = [fleet.create(node)["session_id"] for node in NODES for _ in range(8)]
    owners, before = {s: fleet.owner(index_of(s)) for s in sessions}, forwarded(fleet)
    askers = [Asker(fleet, node, f"{node}{n}", sessions, REQUESTS // (len(NODES) * DOORS)) for node in NODES for n in range(DOORS)]
    ask_all(askers)
    hops = {node: sum(n for a in askers if a.node == node for s, n in a.asked.items() if owners[s] != node) for node in NODES}
    assert sum(sum(a.asked.values()) for a in askers) == REQUESTS
    assert {node: n - before[node] for node, n in forwarded(fleet).items()} == hops
    report("requests of any node", f"{REQUESTS} requests, {sum(hops.values())} of them by one hop", [a.slowest for a in askers], "request", rounds=1)


def test_a_move_takes_less_than_a_lease(fleet):
    """Sessions of node a are asked for by other nodes while it is drained. None of the requests fails."""
    slowest, n_asked = [], 0
    for number in range(ROUNDS):
        sessions, ended = [fleet.create("a")["session_id"] for _ in range(8)], threading.Event()
        askers = [Asker(fleet, node, number, sessions, 10 ** 9, ended) for node in "bc"]

        def drain(sessions=sessions):
            assert fleet["a"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
            fleet["a"].wait(60)
            assert {fleet.owner(index_of(s)) for s in sessions} <= {"b", "c"}
        ask_all(askers, drain)
        slowest += [a.slowest for a in askers]
        n_asked += sum(sum(a.asked.values()) for a in askers)
        fleet["a"].start()
        back_up(fleet, "a")
    report("requests while a node is drained", f"{n_asked} requests", slowest, "request")
    assert max(slowest) < g.PATIENCE * LEASE_S


# --- a cut cable ---

@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A fleet whose engine answers when the test lets it: (fleet, engine)."""
    fleet = FarFleet(tmp_path_factory.mktemp("held"), NODES, **SETTINGS)
    with StubEngine("sglang", host=fleet.switch.address) as engine:
        for gateway in fleet:
            gateway.settings["engine"] = f"one={engine.setting}"
        with fleet:
            yield fleet, engine


class Call:
    """A model call that the test sends in two parts."""

    def __init__(self, node, session, length, stream):
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * length}], "stream": stream}
        self.body = json.dumps(body).encode()
        self.c, self.id = node.connect(60), None
        self.c.putrequest("POST", f"/sessions/{session['session_id']}/v1/chat/completions")
        for name, value in (("x-api-key", session["api_key"]), ("Content-Type", "application/json"), ("Content-Length", str(len(self.body)))):
            self.c.putheader(name, value)
        self.c.endheaders()

    def send(self, begin, end):
        self.c.send(self.body[int(begin * len(self.body)):int(end * len(self.body))])

    def outcome(self):
        """"answered", "refused" (to be repeated), "cut"."""
        try:
            answer = self.c.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return "cut"
        finally:
            self.c.close()
        if answer.status == 200:
            self.id = re.search(rb'"id": ?"(chatcmpl-\w+)"', text)[1].decode()
            return "answered" if b'"stream": true' not in self.body or b"[DONE]" in text else "cut"
        assert answer.status == 503 and answer.headers["x-should-retry"] == "true", (answer.status, text)
        return "refused"


def has_received(fleet, source, target, n):
    """Whether n bytes have arrived on one connection that the source has opened to the target."""
    ask = ["ss", "-tinH", "state", "established", "sport", f"= :{fleet[target].port}", "dst", fleet.switch.address_of(source)]
    shown = subprocess.run(fleet[target].member.run(*ask), check=True, capture_output=True, text=True).stdout
    return any(int(found) >= n for found in re.findall(r"bytes_received:(\d+)", shown))


CABLES = {"of its node": ["b"], "of all": ["b", "c", "store"]}


@pytest.mark.cases(3)
@pytest.mark.parametrize("cable", CABLES)
@pytest.mark.parametrize("middle,length", [("answer", 100), ("body", 300_000), ("stream", 100)])
def test_a_cable_is_cut_in_the_middle(held, middle, length, cable):
    """Node b sends a call on to node a, and the cable between them is cut. If a keeps its other cables, it keeps the session. A call
    that is not answered is repeated; its answer is recorded once."""
    fleet, engine = held
    for _ in range(ROUNDS):
        fleet.wait_settled()
        go, session = threading.Event(), fleet.create("a", node="a")     # also if a has more sessions than others
        plan = {"ids": [*b"an answer", 257]}
        engine.give_up = go if middle == "stream" else None
        engine.otherwise = lambda body, plan=plan: {**plan, "hold_after": 3} if middle == "stream" else {**plan, "wait": go}
        n, call = len(engine.requests), Call(fleet["b"], session, length, middle == "stream")
        call.send(0, 0.5)
        if middle == "body":    # a has agreed to take it
            g.wait_until(lambda: has_received(fleet, "b", "a", length // 4), what="a has a part of the body")
        else:
            call.send(0.5, 1)
            g.wait_until(lambda n=n: len(engine.requests) > n and (middle != "stream" or engine.holding), what="the engine has the call")
        for other in CABLES[cable]:
            fleet.switch.cut("a", other)
        if middle == "body":
            call.send(0.5, 1)
        if cable == "of all":
            wait_claimed(fleet, "a")
        else:
            leases(2)
        if middle == "body":
            g.wait_until(lambda: not has_received(fleet, "b", "a", length // 4), 10, "a waits for the rest no longer")
        engine.otherwise, engine.give_up = lambda body, plan=plan: plan, None
        fleet.switch.heal()
        go.set()
        if call.outcome() != "answered":
            call = Call(fleet["c"], session, length, middle == "stream")
            call.send(0, 1)
            assert call.outcome() == "answered"
        back_up(fleet, "a")
        fleet.wait_settled()
        records = fleet["c"].get(f"/sessions/{session['session_id']}?records=1", headers=AS_ADMIN).json()["records"]
        ids = [r["answers"][0]["response_id"] for r in records]
        assert ids.count(call.id) == 1 and len(ids) <= 2, (call.id, ids)
    report(f"cable {cable} cut in the middle of the {middle}", f"{ROUNDS} calls")


# --- orders ---

def order(fleet, node, version):
    return fleet[node].post("/admin/weight_version", {"version": version}, headers=AS_ADMIN, timeout=60)


def test_an_order_reaches_no_node_that_is_cut_off(fleet):
    """Node a is cut off from the other nodes and the store, agents can still call it. No call that begins after the answer to an order
    gets tokens of the version before."""
    n_new = 0
    for number in range(ROUNDS):
        with Agents(fleet, 6) as agents:
            fleet.wait_settled()
            old, new = 2 * number + 1, 2 * number + 2
            g.wait_until(lambda old=old: order(fleet, "b", old).status == 200, 20, "all nodes obey")
            agents.wait_turns(1)
            for other in ("store", "b", "c"):
                fleet.switch.cut("a", other)
            answer = order(fleet, "b", new)
            if answer.status != 200:        # b has not noticed yet that a is lost
                assert answer.json()["error"]["code"] == "fleet_partial" and "(a)" in answer.text, answer.text
            after = time.monotonic()
            g.wait_until(lambda: fleet.state("c", "a") == "lost", 20, "a is lost")
            answer = order(fleet, "c", new)
            assert answer.status == 200 and answer.json()["nodes"] == {"a": "lost", "b": "obeyed", "c": "obeyed"}, answer.text
            leases(1)
            fleet.switch.heal()
            agents.wait_turns(3)
        fleet.wait_settled()
        agents.check()
        n_new += sum(check_versions(agent, after, old, new) for agent in agents.all)
    assert n_new >= 2 * len(agents.all) * ROUNDS
    report("weight version with a node cut off", f"{n_new} answers after it")


def check_versions(agent, after, old, new):
    """Returns how many answers to calls that began later have the new version alone."""
    path, versions = f"/sessions/{agent.session['session_id']}/trajectories", {}
    for trajectory in agent.insist("GET", path, {}, AS_ADMIN)["trajectories"]:
        for turn in trajectory["turns"]:
            versions[turn["response_id"]] = {v["version"] for v in turn["weight_versions"]}
    late = [i for i, _ in agent.answers if agent.began[i] > after]
    assert all(versions[i] == {str(new)} for i in late), {i: versions[i] for i in late}
    assert any(versions[i] == {str(old)} for i, _ in agent.answers), versions
    return len(late)


def test_a_node_that_joins_during_a_pause_holds_calls(fleet):
    """Its agents are answered when the fleet resumes."""
    for _ in range(ROUNDS):
        fleet.wait_settled()
        assert fleet["b"].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
        fleet["b"].wait(60)
        with Agents(fleet, 4) as agents:
            assert fleet["c"].post("/admin/pause", {"timeout_s": 20}, headers=AS_ADMIN, timeout=60).json()["drained"] is True
            fleet["b"].start()
            assert fleet["b"].get("/ready").json()["paused"] == 1
            held = [len(agent.answers) for agent in agents.all]
            leases(1)
            assert [len(agent.answers) for agent in agents.all] == held
            g.wait_until(lambda: fleet["a"].post("/admin/resume", {}, headers=AS_ADMIN, timeout=60).status == 200, 20, "all resume")
            agents.wait_turns(2)
        agents.check()
    report("node joins during a pause", f"{ROUNDS} pauses")
