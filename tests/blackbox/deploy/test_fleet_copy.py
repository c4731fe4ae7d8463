"""The fleet's store has every record before its answer is sent. Tests what waits, what a retry gets, and what happens
if the store stops, is emptied, loses a tail, or gives a place to a different node."""
import signal
from concurrent.futures import ThreadPoolExecutor

import redis

import gateway as g
from fleet_kit import Later
from store_kit import Driver, Server
from test_fleet_join import is_whole, node, store  # noqa: F401
from test_turn_recovery import kill_worker

COMMIT = 2      # what the record of a turn begins with


def logs(store, place=0):
    with Driver(store.url()) as d:
        return d.lengths(place)


def turns(store, session, place=0):
    """How many turns the session's log has."""
    with redis.Redis(host="127.0.0.1", port=store.port) as client:
        return sum(record[0] == COMMIT for record in client.lrange(f"rg:test:log:{{{place}}}:{session['session_id']}", 0, -1))


def session_of(gateway):
    return gateway.post("/sessions", {}).json()


def started(store, **more):
    gateway = node(store, "a", engine="builtin:random:1", **more).start()
    gateway.allow("the store does not answer", "store answers again", "forgotten a place", "another node owns")
    g.wait_until(lambda: gateway.post("/sessions", {}).status == 200, 20, "the place is served")
    return gateway


def test_each_answered_record_is_in_the_store(store):
    gateway = started(store)
    s = session_of(gateway)
    for n in range(3):
        assert gateway.chat(s, f"turn {n}").status == 200
        assert turns(store, s) == n + 1
    kill_worker(gateway)
    g.wait_until(lambda: gateway.chat(s, "after").status == 200, 30, "the worker is replaced")
    first, following = logs(store)[s["session_id"]]
    assert first >= 0 and following >= 5, (first, following)
    assert gateway.request("DELETE", f"/sessions/{s['session_id']}").status == 204
    g.wait_until(lambda: (lambda at: at is None or at[0] + 1 == at[1])(logs(store).get(s["session_id"])), 20, "its end is left")


def test_an_answer_waits_for_the_store_and_a_retry_gets_it(store):
    gateway = started(store, **{"fleet-outage": "700ms", "fleet-lease": "600s"})
    s = session_of(gateway)
    store.process.send_signal(signal.SIGSTOP)
    refused = gateway.chat(s, "one")
    assert (refused.status, refused.json()["error"]["code"]) == (503, "storage_unavailable"), refused.text
    store.process.send_signal(signal.SIGCONT)
    g.wait_until(lambda: gateway.chat(s, "one").status == 200, 20, "the retry gets the answer")
    state = gateway.get(f"/sessions/{s['session_id']}?records=1").json()
    assert len(state["records"]) == 1
    assert turns(store, s) == 1


def test_a_store_that_refuses_records_is_logged_once(store):
    """Such as one whose disk is full. It answers what is read between the tries."""
    gateway = started(store)
    s = session_of(gateway)
    store.ask("ACL", "SETUSER", "default", "-rpush")
    later = Later(lambda: gateway.chat(s, "one"))
    g.wait_until(lambda: int(store.ask("INFO", "errorstats").get("errorstat_ERR", "count=0")[6:]) >= 3, 20, "it is tried again")
    store.ask("ACL", "SETUSER", "default", "+rpush")
    assert later.get().status == 200 and turns(store, s) == 1
    gateway.wait_line("the store answers again")
    assert len([line for line in gateway.log().splitlines() if "answers wait" in line]) == 1


def test_an_answer_waits_for_a_replica_of_the_store(store, tmp_path):
    with Server(tmp_path / "replica") as replica:
        replica.follow(store)
        gateway = started(store, **{"fleet-acks": "2", "fleet-outage": "1s", "fleet-hold": "1s"})
        s = session_of(gateway)
        assert gateway.chat(s, "one").status == 200
        copy = f"rg:test:log:{{0}}:{s['session_id']}"
        assert replica.ask("LLEN", copy) >= 2, "before the answer"
        replica.process.send_signal(signal.SIGSTOP)
        refused = gateway.chat(s, "two")
        assert (refused.status, refused.json()["error"]["code"]) == (503, "storage_unavailable"), refused.text
        replica.process.send_signal(signal.SIGCONT)
        g.wait_until(lambda: gateway.chat(s, "two").status == 200, 30, "the retry gets the answer")
        assert turns(store, s) == 2
        assert replica.ask("LLEN", copy) == store.ask("LLEN", copy)


def test_an_emptied_store_gets_all_again(store):
    gateway = started(store)
    s = session_of(gateway)
    assert gateway.chat(s, "one").status == 200
    store.ask("FLUSHALL")
    g.wait_until(lambda: turns(store, s) == 1, 30, "the log is there again")
    g.wait_until(lambda: gateway.chat(s, "two").status == 200, 30, "the place answers again")
    assert turns(store, s) == 2
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")


def test_a_lost_tail_is_sent_again(store):
    gateway = started(store)
    s = session_of(gateway)
    for n in range(3):
        assert gateway.chat(s, f"turn {n}").status == 200
    store.ask("LTRIM", f"rg:test:log:{{0}}:{s['session_id']}", 0, 1)
    assert gateway.chat(s, "next").status == 200
    assert turns(store, s) == 4 and logs(store)[s["session_id"]][0] == 0


def test_a_place_with_another_owner_answers_nothing(store):
    gateway = started(store, **{"fleet-hold": "1s"})
    s = session_of(gateway)
    gateway.allow("a place without an owner")
    assert gateway.chat(s, "one").status == 200
    g.wait_until(lambda: is_whole(gateway), 30, "the place is whole")
    with Driver(store.url()) as d:
        beat = d.claim(0, "other", beat=10 ** 9)["beat"]
        while (a := d.claim(0, "other", beat=beat))["verdict"] == "alive":
            beat = a["beat"]
        assert a["verdict"] == "done"
    refused = gateway.chat(s, "two")
    # the router answers if it has seen the new owner first, whose node is in no fleet
    assert refused.status == 503 and refused.json()["error"]["code"] in ("owner_changed", "no_owner"), refused.text
    g.wait_until(lambda: gateway.get(f"/sessions/{s['session_id']}").status == 503, 20, "states are not answered either")
    assert turns(store, s) == 1


def test_other_bytes_in_the_store_lose_the_session(store):
    gateway = started(store)
    gateway.allow("the session is lost")
    s, other = session_of(gateway), session_of(gateway)
    store.ask("RPUSH", f"rg:test:log:{{0}}:{s['session_id']}", "x")
    refused = gateway.chat(s, "one")
    assert (refused.status, refused.json()["error"]["code"]) == (410, "session_lost"), refused.text
    assert gateway.get(f"/sessions/{s['session_id']}").status == 410
    assert gateway.chat(other, "one").status == 200


def test_requests_wait_while_the_store_does_not_answer(store):
    gateway = started(store, **{"fleet-hold": "60s"})
    s = session_of(gateway)
    assert gateway.chat(s, "one").status == 200
    store.process.send_signal(signal.SIGSTOP)
    g.pause(1.3, "a lease without the store, of 1 s")
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(gateway.get, f"/sessions/{s['session_id']}", timeout=60), pool.submit(gateway.chat, s, "two")]
        g.stays(lambda: not any(one.done() for one in asked), 0.3, "they wait")
        store.process.send_signal(signal.SIGCONT)
        assert [one.result().status for one in asked] == [200, 200]
    assert turns(store, s) == 2


def test_reads_end_with_503_after_the_hold(store):
    gateway = started(store, **{"fleet-hold": "300ms"})
    s = session_of(gateway)
    store.process.send_signal(signal.SIGSTOP)
    g.pause(1.3, "a lease without the store, of 1 s")
    refused = gateway.get(f"/sessions/{s['session_id']}")
    assert (refused.status, refused.json()["error"]["code"]) == (503, "storage_unavailable"), refused.text
    store.process.send_signal(signal.SIGCONT)
