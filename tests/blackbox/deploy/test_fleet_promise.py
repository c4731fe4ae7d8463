"""Agents talk and groups run while nodes are lost with their disks, and while the fleet moves to a different build: every answer that
an agent has received is recorded once, and every group settles once. RG_FLEET_ROUNDS losses (`scripts/test fleet`: 50)."""
import json
import os
import random
import shutil
import threading
import time

import pytest

import gateway as g
from fleet_kit import ADMIN, AS_ADMIN
from fleet_net import LEASE_S, ROUNDS, Agents, FarFleet, back_up, report, wait_claimed
from rollouts_kit import Executor, solve

NODES = "abc"
MEMBERS = 2
ODD = ("may not have the record", "the session's worker", "did not serve a request", "a session cannot be made", "a journal of a place",
       "process ended on a signal")
OLDER = os.environ.get("RG_OLDER")      # a gateway of an older build


class Doors:
    """Requests by any node. A node that cannot be reached is a 503."""

    def __init__(self, fleet):
        self.fleet, self.random = fleet, random.Random(3)

    def request(self, method, path, body=None, headers=AS_ADMIN, timeout=60):
        try:
            return self.random.choice(self.fleet.doors()).request(method, path, body, headers=headers, timeout=timeout)
        except OSError as e:
            return g.Answer(503, {}, str(e).encode())

    def post(self, path, body=None, **more):
        return self.request("POST", path, {} if body is None else body, **more)

    def insist(self, method, path, body=None):
        """Repeats a request until it is answered."""
        end = time.monotonic() + 60 * g.PATIENCE
        while (answer := self.request(method, path, body)).status == 503:
            assert time.monotonic() < end, answer.text
            g.pause(0.05, "as clients that repeat")
        assert answer.status in (200, 201), answer.text
        return answer.json()


class Groups:
    """with Groups(fleet, 12) as groups: so many are kept running by two executors, taken and acknowledged; at the end all have settled
    once."""

    def __init__(self, fleet, count):
        self.doors, self.count = Doors(fleet), count
        self.submitted, self.acked, self.seen, self.fault, self.ended = 0, set(), {}, None, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.executors = [Executor(self.doors, f"executor-{n}", {"r": self.count}, {"r": solve(turns=2)}, key=ADMIN).__enter__() for n in (1, 2)]
        self.thread.start()
        return self

    def submit(self):
        body = {"queue": "q", "runner": "r", "n": MEMBERS, "input": self.submitted, "attempts": 1000, "infra_attempts": 1000}
        self.doors.insist("PUT", f"/groups/g{self.submitted}", body)
        self.submitted += 1

    def take(self):
        for group in self.doors.insist("GET", "/queues/q/next?max=8&wait_s=1&lease_s=5")["groups"]:
            name, members = group["id"], json.dumps(group["members"], sort_keys=True)
            assert group["state"] == "finished" and group["succeeded"] == MEMBERS, group
            assert name not in self.acked, f"{name} came after its acknowledgement"
            assert self.seen.setdefault(name, members) == members, f"{name}: a delivery differs from the one before"
            self.doors.insist("POST", "/queues/q/ack", {"groups": [name]})
            self.acked.add(name)

    def run(self):
        try:
            while not self.ended.is_set():
                while self.submitted - len(self.acked) < self.count:
                    self.submit()
                self.take()
            end = time.monotonic() + 60 * g.PATIENCE
            while len(self.acked) < self.submitted:
                assert time.monotonic() < end, f"{self.submitted - len(self.acked)} groups were never delivered"
                self.take()
        except (AssertionError, KeyError, ValueError) as e:
            self.fault = e

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join()
        for executor in self.executors:
            executor.__exit__(kind)
        if kind is None:
            assert self.fault is None, self.fault
            assert self.acked == {f"g{n}" for n in range(self.submitted)}
            assert self.doors.insist("GET", "/groups")["groups"] == []


def lose(fleet, node):
    fleet.wait_settled()
    fleet[node].kill()
    shutil.rmtree(f"{fleet[node].folder}/state")
    wait_claimed(fleet, node)


def test_nodes_are_lost_while_agents_talk_and_groups_run(tmp_path):
    """Every second loss is the dispatcher's node, the others are random. Each node returns without its disk."""
    chosen, gaps, answers = random.Random(11), [], 0
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", **{"attempt-lease": "5s"}) as fleet:
        for gateway in fleet:
            gateway.allow(*ODD)
        g.wait_until(lambda: fleet.owner("d"), 20, "a node has the dispatcher")
        with Groups(fleet, 12 if ROUNDS > 1 else 4) as groups:
            for number in range(ROUNDS):
                with Agents(fleet, 48 if ROUNDS > 1 else 8, pace=0.2) as agents:
                    node = fleet.owner("d") if number % 2 == 0 else chosen.choice(NODES)
                    before = len(groups.acked)
                    lose(fleet, node)
                    g.wait_until(lambda before=before: groups.fault or len(groups.acked) >= before + 3, 60, "groups settle")
                    fleet[node].start()
                    back_up(fleet, node)
                    agents.wait_turns(2)
                fleet.wait_settled()
                agents.check()
                gaps += agents.gaps
                answers += agents.n_answers
                assert groups.fault is None, groups.fault
        report("node lost while groups run", f"{answers} answers, {groups.submitted} groups", gaps)


def replace(fleet, node, binary):
    """Drains the node and starts a different build under its name."""
    assert fleet[node].post("/fleet/drain", {}, headers=AS_ADMIN).status == 200
    fleet[node].wait(60)
    fleet[node].binary = binary
    fleet[node].start()
    back_up(fleet, node)


@pytest.mark.whole
@pytest.mark.skipif(not OLDER, reason="RG_OLDER names no gateway of an older build")
def test_two_builds_serve_one_fleet(tmp_path):
    """Each node is replaced by one of the other build, in both directions; no call fails. Between, with one node replaced, a node of
    either build is lost."""
    gaps, answers = [], 0
    with FarFleet(tmp_path, NODES, front="haproxy", lease=f"{LEASE_S}s", grace="20s", binary=OLDER) as fleet:
        def talk(change, refused):
            nonlocal answers
            with Agents(fleet, 8) as agents:
                change()
                agents.wait_turns(2)
            refusals = [agent.refusals for agent in agents.all if agent.refusals]
            assert refused or not refusals, refusals
            agents.check()
            gaps.extend(agents.gaps)
            answers += agents.n_answers

        def lose_two():
            for node in "ab":
                lose(fleet, node)
                fleet[node].start()
                back_up(fleet, node, names_node=False)
        for number in range(ROUNDS):
            binary = str(g.BINARY) if number % 2 == 0 else OLDER
            talk(lambda binary=binary: replace(fleet, "a", binary), refused=False)
            talk(lose_two, refused=True)
            talk(lambda binary=binary: [replace(fleet, node, binary) for node in "bc"], refused=False)
    report("each node replaced by a different build, two lost between", f"{answers} answers", gaps)
