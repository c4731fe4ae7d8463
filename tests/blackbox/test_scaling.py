"""Live changes of a whole gateway under load, none of which an agent may notice: more and fewer
processes (SIGHUP), a new binary (SIGUSR2), and the sessions afterwards."""
import os
import shutil
import signal

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


def test_scaling_up_and_down_loses_nothing(start):
    s = configured(workers=4, routers=1).start()
    world = World(s.port, agents=6, strict=True).start()
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
    g.wait_until(lambda: len(s.family()) == 1 + 2 + 1, what="the retired have ended")


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


def test_upgrade_under_load_loses_nothing(start):
    s = configured(workers=2, routers=2)
    s.binary = shutil.copy(g.BINARY, f"{s.folder}/rollgate")
    s.start()
    world = World(s.port, agents=4, strict=True).start()
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


def test_a_reload_changes_limits_without_a_restart(start):
    s = configured(workers=1, routers=1, **{"max-body-bytes": "1MiB"}).start()
    family = s.family()
    body = b'{"metadata": "' + b"x" * 5000 + b'"}'
    assert s.post("/sessions", body).status in (200, 400)
    reload(s, workers=1, routers=1, **{"max-body-bytes": "4KiB"})
    g.wait_until(lambda: s.post("/sessions", body).status == 413, what="the router applies the limit")
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
