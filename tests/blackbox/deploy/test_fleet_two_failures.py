"""The store and a node fail at once. What only these two had may be lost. Nothing else is, and no session goes on with a hole."""
import shutil

import pytest

import gateway as g
from fleet_kit import AS_ADMIN, index_of
from fleet_net import LEASE_S, ROUNDS, Agents, FarFleet, back_up, report, wait_claimed
from test_fleet_repair import assert_lost, command

NODES = "abc"
AGENTS = 8


def split(fleet, agents):
    """Returns a node with sessions, the agents whose sessions it has, and the other agents."""
    owners = {agent: fleet.owner(index_of(agent.session["session_id"])) for agent in agents.all}
    node = owners[agents.all[0]]
    return node, [a for a in agents.all if owners[a] == node], [a for a in agents.all if owners[a] != node]


def read_state(agent):
    return agent.insist("GET", f"/sessions/{agent.session['session_id']}?records=1", {}, AS_ADMIN)


def kept_answers(agent):
    """The ids of the answers that its session's records have."""
    return [r["answers"][0]["response_id"] for r in read_state(agent)["records"]]


def test_a_failover_without_the_tail_and_a_lost_node(tmp_path):
    """A replica that lacks the last 250 ms is promoted while a node and its disk are lost. Sessions of the node may lack answers of
    these 250 ms, say so, and go on. All other answers are recorded once."""
    gaps, n_answers, n_lost = [], 0, 0
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", between=True, **{"fleet-outage": "30s"}) as fleet:
        for number in range(ROUNDS):
            with Agents(fleet, AGENTS) as agents:
                fleet.wait_settled()
                node, mine, _ = split(fleet, agents)
                replica = fleet.add_replica(f"replica-{number}")
                known = {agent: len(agent.answers) for agent in agents.all}
                fleet.cut_replica(replica)
                g.pause(0.25, "the tail that the replica lacks")
                fleet.lose(node)
                fleet.promote(replica)
                had = {agent: len(agent.answers) for agent in agents.all}
                wait_claimed(fleet, node)
                agents.wait_turns(2)
            fleet[node].start()
            back_up(fleet, node)
            fleet.wait_settled()
            for agent in agents.all:
                received, kept = [i for i, _ in agent.answers], kept_answers(agent)
                lost = [n for n, i in enumerate(received) if i not in kept]
                assert len(set(kept)) == len(kept)
                assert [i for i in kept if i in received] == [i for n, i in enumerate(received) if n not in lost], "in this order"
                assert not lost or agent in mine, (agent.session["session_id"], lost)
                assert any("may be missing" in w for w in read_state(agent)["warnings"]) == (agent in mine)
                # an answer may arrive while the cable is cut or the node is killed
                assert all(known[agent] - 1 <= n <= had[agent] for n in lost), (lost, known[agent], had[agent])
                n_lost += len(lost)
            gaps += agents.gaps
            n_answers += agents.n_answers
    report("replica without the last 250 ms and node lost", f"{n_answers} answers, {n_lost} of them lost", gaps)


@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_an_emptied_store_and_a_lost_node(tmp_path, disk):
    """Sessions of the node wait for it; no other node takes them. If it returns with its disk, nothing is lost. Without its disk they
    wait until an operator gives them up; then all are 410 `session_lost`."""
    n_sessions = 0
    with FarFleet(tmp_path, NODES, lease=f"{LEASE_S}s", **{"fleet-outage": "30s", "fleet-hold": "200ms"}) as fleet:
        for _ in range(ROUNDS):
            with Agents(fleet, AGENTS) as agents:
                fleet.wait_settled()
            node, mine, others = split(fleet, agents)
            fleet[node].kill()
            if disk == "lost":
                shutil.rmtree(f"{fleet[node].folder}/state")
            fleet.server.ask("FLUSHALL")
            for agent in mine:   # nodes that read a change of before find no entry
                fleet.server.ask("PUBLISH", "rg:test:changes", f"place:{{{index_of(agent.session['session_id'])}}}")
            for agent in others:
                assert set(kept_answers(agent)) >= {i for i, _ in agent.answers}
            for agent in mine:
                answer = fleet.chat(next(n for n in NODES if n != node), agent.session, "more")
                assert (answer.status, answer.json()["error"]["code"], answer.headers["x-should-retry"]) == (503, "no_owner", "true"), answer.text
            indexes = {index_of(agent.session["session_id"]) for agent in mine}
            g.wait_until(lambda: all(fleet.owner(i) == node for i in indexes), 20, "the other nodes restore their entries")
            fleet[node].start()
            back_up(fleet, node)
            n_sessions += len(mine)
            for index in indexes if disk == "lost" else ():
                out = command(fleet, "take", str(index), "--incomplete")
                assert out.returncode == 0, out
            for agent in mine:
                if disk == "kept":
                    answer = fleet.chat(node, agent.session, "more")
                    assert answer.status == 200 and set(kept_answers(agent)) >= {i for i, _ in agent.answers}, answer.text
                else:
                    g.wait_until(lambda agent=agent: fleet.chat(node, agent.session, "more").status == 410, 20, "the node knows it")
                    assert_lost(fleet, node, agent.session)
            fleet.wait_settled()
    report(f"store emptied and node lost, disk {disk}", f"{n_sessions} sessions")
