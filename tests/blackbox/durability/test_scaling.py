"""Changes of a running gateway under load that agents must not notice: more and fewer processes (SIGHUP), a new
binary (SIGUSR2), and the sessions afterwards."""
import json
import os
import re
import shutil
import signal
import socket
import threading

import pytest

import gateway as g
from agents import World


def write_settings(s, **settings):
    with open(f"{s.folder}/conf.yaml", "w") as f:
        for name, value in settings.items():
            f.write(f"{name}: {value}\n")


def configured(**settings):
    s = g.Gateway(config="x", engine="builtin:echo", sandbox=True)
    s.settings.pop("workers"), s.settings.pop("routers")
    s.settings["config"] = f"{s.folder}/conf.yaml"
    write_settings(s, **settings)
    return s


def reload(s, **settings):
    done = s.log().count("configuration reloaded")
    write_settings(s, **settings)
    s.signal(signal.SIGHUP)
    g.wait_until(lambda: s.log().count("configuration reloaded") > done, what="reload")


def need_more(world, n):
    have = world.answered()
    g.wait_until(lambda: world.answered() > have + n or world.failures, 60, "agents go on")
    assert world.failures == []


@pytest.mark.parametrize("keep_alive", [False, True])
def test_scaling_up_and_down_loses_nothing(start, keep_alive):
    s = configured(workers=4, routers=1).start()
    world = World(s.port, agents=6, strict=True, keep_alive=keep_alive).start()
    need_more(world, 30)
    reload(s, workers=8, routers=2)
    g.wait_until(lambda: s.child("worker-7") and s.child("router-1"), what="the new ones serve")
    need_more(world, 60)
    reload(s, workers=2, routers=1)
    g.wait_until(lambda: s.log().count("sessions adopted") == 6, 60, "six places are adopted")
    need_more(world, 60)
    world.stop()
    assert world.failures == []
    world.check_exports()
    assert world.failures == []
    indexes = {session.split("-")[0] for session in world.sessions}
    assert {"w4", "w5", "w6", "w7"} & indexes, "the added workers got sessions"
    assert s.get("/ready").status == 200
    g.wait_until(lambda: len(s.family()) == 1 + 2 + 1 + 1, what="the retired have ended")


class HalfSent:
    """A call on a session of which the worker gets a part now and the rest later."""

    def __init__(self, s, session, size):
        # In a member that nobody reads: the answer shall take no time.
        body = json.dumps({"padding": "x" * size, "model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        head = (f"POST /sessions/{session['session_id']}/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        cut = len(head) + len(body) // 2
        self.socket = socket.create_connection(("127.0.0.1", s.port), 60)
        self.socket.sendall((head + body)[:cut])
        self.rest = (head + body)[cut:]

    def finish(self):
        """The status."""
        self.socket.sendall(self.rest)
        with self.socket, self.socket.makefile("rb") as f:
            return int(f.readline().split()[1])


SIZES = (10, 100_000, 2_000_000)    # in one read, more than is kept for a second try, spliced


def session_of(s, index):
    while True:
        session = s.post("/sessions", {}).json()
        if session["worker_index"] == index:
            return session


def half_sent(s, index):
    calls = [HalfSent(s, session_of(s, index), size) for size in SIZES]
    # Of a long body the router waits for a megabyte at a time: less than that may stay with the kernel.
    g.wait_until(lambda: s.metrics()["rollgate_unfinished_body_bytes"] > SIZES[1], what="the worker has read of the longest")
    g.pause(0.3, "and all of the short one, which is not counted")
    return calls


def test_a_worker_that_is_scaled_away_takes_what_it_has_half_read(start):
    s = configured(workers=2, routers=1).start()
    calls = half_sent(s, 1)
    reload(s, workers=1, routers=1)
    g.pause(0.3, "the workers are told meanwhile")
    assert [c.finish() for c in calls] == [200] * len(SIZES)
    s.wait_line("sessions adopted")


def test_a_worker_told_to_end_takes_what_it_has_half_read(start):
    s = configured(workers=1, routers=1).start()
    calls, pid = half_sent(s, 0), s.child("worker-0")
    os.kill(pid, signal.SIGTERM)
    g.pause(0.3, "it is told meanwhile")
    assert [c.finish() for c in calls] == [200] * len(SIZES)
    g.wait_until(lambda: s.child("worker-0") != pid, what="it is replaced")


def test_an_upgrade_takes_what_is_half_read(start):
    s = configured(workers=1, routers=1).start()
    calls = half_sent(s, 0)
    s.signal(signal.SIGUSR2)
    s.wait_line("upgrading")
    g.pause(0.3, "the old one is ending")
    assert [c.finish() for c in calls] == [200] * len(SIZES)
    g.wait_until(lambda: s.log().count(" serving listen") == 2, 60, "the new one serves")


def test_a_short_request_half_read_by_a_worker_that_dies_goes_to_its_successor(start):
    s = configured(workers=1, routers=1).start()
    s.allow("process died")
    short = HalfSent(s, session_of(s, 0), SIZES[0])
    g.pause(0.3, "the worker has read what there is")
    os.kill(s.child("worker-0"), signal.SIGKILL)
    g.pause(0.3, "the router has heard of the death")
    assert short.finish() == 200


@pytest.mark.parametrize("how", ["scaled away", "told to end", "upgraded"])
def test_long_polls_outlive_the_worker(start, how):
    s = configured(workers=2, routers=1).start()
    session, answers = session_of(s, 1), []
    path = f"/sessions/{session['session_id']}"
    waiter = threading.Thread(target=lambda: answers.append(s.get(f"{path}/wait?timeout_s=60", timeout=70)))
    waiter.start()
    g.pause(0.3, "the poll is at the worker: nobody tells how many wait")
    if how == "scaled away":
        reload(s, workers=1, routers=1)
        s.wait_line("sessions adopted")
    elif how == "told to end":
        pid = s.child("worker-1")
        os.kill(pid, signal.SIGTERM)
        g.wait_until(lambda: s.child("worker-1") != pid, what="it is replaced")
    else:
        s.signal(signal.SIGUSR2)
        g.wait_until(lambda: s.log().count(" serving listen") == 2, 60, "the new one serves")
    assert answers == []
    assert s.post(f"{path}/complete", {}).status == 200
    waiter.join(30)
    assert [a.status for a in answers] == [200]


def test_sessions_of_retired_workers_survive_a_restart_of_all(start):
    s = configured(workers=4, routers=1).start()
    world = World(s.port, agents=4, strict=True).start()
    need_more(world, 40)
    world.stop()
    reload(s, workers=1, routers=1)
    g.wait_until(lambda: s.log().count("sessions adopted") == 3, 60, "three places are adopted")
    assert s.stop() == 0
    s.start(wait=False)
    g.wait_until(lambda: s.log().count(" serving listen") == 2, 60, "it serves again")
    world.check_exports()
    assert world.failures == []


@pytest.mark.parametrize("keep_alive", [False, True])
def test_upgrade_under_load_loses_nothing(start, keep_alive):
    s = configured(workers=2, routers=2)
    s.binary = shutil.copy(g.BINARY, f"{s.folder}/rollgate")
    s.start()
    world = World(s.port, agents=4, strict=True, keep_alive=keep_alive).start()
    for turn in range(2):
        need_more(world, 30)
        shutil.copy(g.BINARY, f"{s.folder}/rollgate.new")
        os.rename(f"{s.folder}/rollgate.new", s.binary)
        s.signal(signal.SIGUSR2)
        g.wait_until(lambda: s.log().count(" serving listen") == turn + 2, 60, "the new one serves")
        s.family()
    need_more(world, 30)
    world.stop()
    world.check_exports()
    assert world.failures == []


def in_flight(s, session, text):
    """A call that its engine takes its time for: (thread, answers)."""
    answers, path = [], f"/sessions/{session['session_id']}"
    t = threading.Thread(target=lambda: answers.append(s.chat(session, text, timeout=60)))
    t.start()
    g.wait_until(lambda: s.get(path).json()["num_inflight_generations"] >= 1, 10, "the call runs")
    return t, answers


def slow(**settings):
    s = configured(**settings)
    s.settings["engine"] = "builtin:echo,delay_ms=2500"
    return s


def test_calls_in_flight_outlive_an_upgrade_of_a_scaled_gateway(start):
    s = slow(workers=1, routers=1).start()
    reload(s, workers=7, routers=4)     # now sockets are open that were not there at the start
    g.wait_until(lambda: s.child("worker-6") and s.child("router-3"), what="the new ones serve")
    calls = [in_flight(s, session_of(s, i), f"call {i}") for i in range(3)]
    s.signal(signal.SIGUSR2)
    g.wait_until(lambda: s.log().count(" serving listen") == 2, 60, "the new one serves")
    for t, answers in calls:
        t.join(30)
        assert [a.status for a in answers] == [200]


def test_a_reload_during_an_upgrade_is_not_forgotten(start):
    s = slow(workers=1, routers=1).start()
    t, answers = in_flight(s, session_of(s, 0), "call")
    s.signal(signal.SIGUSR2)
    g.wait_until(lambda: s.log().count("rollgate starts") == 2, what="the new binary")
    write_settings(s, workers=3, routers=1)
    s.signal(signal.SIGHUP)     # the first worker of the new binary waits for the old one's call
    g.wait_until(lambda: s.child("worker-2"), 30, "the settings are applied")
    t.join(30)
    assert [a.status for a in answers] == [200]


def test_fewer_routers_after_an_upgrade_accept_on_every_socket(start):
    s = configured(workers=1, routers=4).start()
    reload(s, workers=1, routers=1)
    s.signal(signal.SIGUSR2)
    g.wait_until(lambda: s.log().count(" serving listen") == 2, 60, "the new one serves")
    g.wait_until(lambda: len(s.family()) == 4, 20, "the old ones have ended")
    assert {s.get("/ready", timeout=5).status for _ in range(40)} == {200}


def test_calls_in_flight_finish_while_their_worker_is_scaled_away(start):
    s = slow(workers=3, routers=1).start()
    session = session_of(s, 2)
    t, answers = in_flight(s, session, "first")
    reload(s, workers=1, routers=1)
    s.wait_line("process retires process=worker-2")
    next_t, next_answers = in_flight(s, session, "first again")    # waits for the adopter
    t.join(30), next_t.join(30)
    assert [a.status for a in answers + next_answers] == [200, 200]
    assert "Rollgate-Reseeded" not in next_answers[0].headers


def test_a_reload_changes_limits_without_a_restart(start):
    others = {"max-control-body-bytes": "4MiB", "max-metadata-bytes": "4MiB"}
    s = configured(workers=1, routers=1, **{"max-body-bytes": "1MiB", **others}).start()
    family = s.family()
    body = b'{"metadata": "' + b"x" * 5000 + b'"}'
    assert s.post("/sessions", body).status in (200, 400)
    reload(s, workers=1, routers=1, **{"max-body-bytes": "4KiB", **others})
    g.wait_until(lambda: s.post("/sessions", body).status == 413, what="the router applies the limit")
    reload(s, workers=1, routers=1, **{"max-body-bytes": "2MiB", **others})     # more than at the start
    long = b'{"metadata": {"x": "' + b"x" * 1_500_000 + b'"}}'
    g.wait_until(lambda: s.post("/sessions", long).status == 200, what="router and worker apply the limit")
    assert s.family() == family


def test_keys_rotate_with_overlap(start):
    s = configured()
    admin, secret = f"{s.folder}/admin", f"{s.folder}/secret"

    def rotate(admins, secrets):
        open(admin, "w").write("\n".join(admins) + "\n")
        open(secret, "w").write("\n".join(secrets) + "\n")
    settings = {"workers": 1, "routers": 1, "admin-key-file": admin, "key-secret-file": secret,
                "metrics-auth": "on"}
    old, new = "the old secret, long enough 01234567", "the new secret, long enough 01234567"
    rotate(["first"], [old])
    write_settings(s, **settings)
    s.start()

    def bearer(key):
        return {"Authorization": f"Bearer {key}"}

    def call(session, key):
        return s.chat(session, "hi") if key is None else s.post(
            f"/sessions/{session['session_id']}/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, headers=bearer(key)).status

    before = s.post("/sessions", {}, headers=bearer("first")).json()
    assert call(before, before["api_key"]) == 200
    rotate(["second"], [new, old])
    reload(s, **settings)
    g.wait_until(lambda: s.post("/sessions", {}, headers=bearer("second")).status == 200)
    assert s.post("/sessions", {}, headers=bearer("first")).status == 401
    assert s.get("/metrics", headers=bearer("second")).status == 200
    assert s.get("/metrics", headers=bearer("first")).status in (401, 403)
    after = s.post("/sessions", {}, headers=bearer("second")).json()
    assert call(before, before["api_key"]) == 200 and call(after, after["api_key"]) == 200
    rotate(["second"], [new])
    reload(s, **settings)
    g.wait_until(lambda: call(before, before["api_key"]) == 401)
    assert call(after, after["api_key"]) == 200
    s.allow("configuration not reloaded")
    write_settings(s, workers=1, routers=1)
    s.signal(signal.SIGHUP)
    s.wait_line("keys cannot be switched off")
    assert call(after, "sk-nothing") == 401
    for word in ("first", "second", before["api_key"], after["api_key"], new, old):
        assert word not in s.log()


def test_routers_come_and_go_many_times(start):
    s = configured(workers=1, routers=2).start()
    for _ in range(3):
        reload(s, workers=1, routers=1)
        g.wait_until(lambda: len(s.family()) == 1 + 1 + 1 + 1, what="their places are free again")
        reload(s, workers=1, routers=3)
    s.allow("process died")

    def routers():      # one that comes while another retires gets a place, and a name, of its own
        names = set(re.findall(r"process serves process=(router-\d+)", s.log()))
        return sorted(name for name in names if g.alive(s.child(name)))
    g.wait_until(lambda: len(routers()) == 3, what="the others have ended")
    for name in routers():      # a successor inherits what was given to it
        pid = s.child(name)
        os.kill(pid, signal.SIGKILL)
        g.wait_until(lambda: s.child(name) != pid, what=f"{name} is replaced")
    assert {s.get("/ready").status for _ in range(20)} == {200}


def test_peers_that_cannot_be_used_are_not_reloaded(start):
    s = configured(workers=1, routers=1).start().allow("configuration not reloaded")
    write_settings(s, workers=2, routers=1, peer='["4-7=127.0.0.1:99999", "zzz"]')
    s.signal(signal.SIGHUP)
    s.wait_line("configuration not reloaded mistake=.*99999")
    s.wait_line("configuration not reloaded mistake=.*zzz")
    assert len(s.family()) == 4 and s.get("/ready").status == 200


def test_a_reload_changes_the_defaults_of_new_sessions(start):
    s = configured(workers=1, routers=1).start()
    old = s.post("/sessions", {}).json()
    reload(s, workers=1, routers=1, **{"history": "linear", "max-nodes": 4, "session-ttl": "2s",
                                       "journal-segment-bytes": "4KiB"})

    def state(session):
        return s.get(f"/sessions/{session['session_id']}")
    new = g.wait_until(lambda: (lambda n: n if state(n).json()["history"] == "linear" else None)(
        s.post("/sessions", {}).json()), what="new sessions are linear")
    assert state(old).json()["history"] == "tree"
    assert s.chat(new, "a").status == 200
    few = s.post("/sessions", {"history": "tree"}).json()
    assert [s.chat(few, f"question {k}").status for k in range(3)] == [200, 200, 429]
    for k in range(4):
        assert s.chat(old, f"question {k} " + "x" * 1000).status == 200     # its own limit, made before
    assert len([f for f in os.listdir(f"{s.folder}/state/worker-0") if f.startswith("seg-")]) > 1
    g.wait_until(lambda: state(new).status == 410 or state(new).json()["phase"] == "expired", 20, "its time is over")
    assert s.chat(old, "still here").status == 200
