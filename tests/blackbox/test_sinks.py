"""Sinks: what is finalized reaches files and a real Redis, at least once, whatever dies meanwhile."""
import os
import re
import shutil
import signal
import subprocess
import time

import msgpack
import pytest

import gateway as g

redis = pytest.importorskip("redis")
STREAM = "rollgate:trajectories"


class Redis:
    """A real server of its own; stop and start keep its data."""

    def __init__(self, folder, *options):
        self.port, self.folder, self.options, self.process = g.free_port(), str(folder), options, None

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder,
             "--appendonly", "yes", "--save", "", *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        g.wait_until(self.answers, 20, "redis answers")
        return self

    def answers(self):
        try:
            with self.client() as c:
                return c.ping()
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.RedisError:
            return False

    def stop(self, signo=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signo)
            self.process.wait(20)

    def client(self, **more):
        return redis.Redis(port=self.port, **more)

    def entries(self, **more):
        with self.client(**more) as c:
            return [fields for _, fields in c.xrange(STREAM)]


@pytest.fixture
def server(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    made = []

    def make(*options):
        made.append(Redis(tmp_path, *options).start())
        return made[-1]
    yield make
    for one in made:
        one.stop(signal.SIGKILL)


def episode(gw, turns=2, text="hello", **finalize):
    """A finalized session: its id and what finalize answered."""
    s = gw.post("/sessions").json()
    messages = []
    for i in range(turns):
        messages.append({"role": "user", "content": f"{text} {i}"})
        a = gw.chat(s, messages)
        assert a.status == 200, a.text
        messages.append(a.json()["choices"][0]["message"])
    a = gw.post(f"/sessions/{s['session_id']}/finalize", finalize)
    assert a.status == 200, a.text
    return s["session_id"], a.json()


def hook(code, data):
    kind = {1: ("i4", 4), 2: ("u1", 1), 3: ("f4", 4)}[code]
    n = len(data) // kind[1]
    import struct
    return list(struct.unpack(f"<{n}{ {1: 'i', 2: 'B', 3: 'f'}[code]}", data))


def unpack(data):
    return msgpack.unpackb(data, ext_hook=hook, strict_map_key=False)


def same(packed, native):
    assert packed["session_id"] == native["session_id"]
    for name in ("prompt_ids", "response_ids", "response_mask", "num_turns", "messages"):
        assert packed[name] == native[name], name
    assert packed["response_logprobs"] == pytest.approx(native["response_logprobs"], abs=1e-6)


def files(folder):
    return sorted(f for f in os.listdir(folder) if not f.startswith("."))


def spooled(gw):
    found = []
    for top, _, names in os.walk(f"{gw.folder}/state"):
        found += [n for n in names if "/spool" in top and "/pointed" not in top]
    return found


def test_files_hold_what_finalize_returned(start, tmp_path):
    gw = start(sink=f"file:{tmp_path}/out", workers=2)
    done = dict(episode(gw, turns=i % 3 + 1) for i in range(6))
    g.wait_until(lambda: len(files(f"{tmp_path}/out")) == 6, 20, "all files are there")
    for sid, native in done.items():
        with open(f"{tmp_path}/out/{sid}.msgpack", "rb") as f:
            whole = unpack(f.read())
        assert len(whole["trajectories"]) == len(native["trajectories"]) == 1
        same(whole["trajectories"][0], native["trajectories"][0])
        assert whole["summary"]["trained_tokens"] == native["summary"]["trained_tokens"]
    g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")
    g.wait_until(lambda: gw.metrics().get("rollgate_sink_delivered_total") == 6, 10, "all are counted")


def test_the_default_folder_and_finalize_options(start):
    gw = start(sink="file", workers=1)
    s = gw.post("/sessions").json()
    for text in ("a", "b", "c"):
        assert gw.chat(s, text).status == 200
    native = gw.post(f"/sessions/{s['session_id']}/finalize", {"select": "last"}).json()
    assert len(native["trajectories"]) == 1
    path = f"{gw.folder}/state/trajectories/{s['session_id']}.msgpack"
    g.wait_until(lambda: os.path.exists(path), 10, "the file is there")
    with open(path, "rb") as f:
        whole = unpack(f.read())
    assert len(whole["trajectories"]) == 1
    same(whole["trajectories"][0], native["trajectories"][0])


def test_another_file_system(start, tmp_path):
    other = f"/dev/shm/rollgate-sink-{os.getpid()}"
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    try:
        gw = start(sink=f"file:{other}", workers=1)
        sid, native = episode(gw)
        g.wait_until(lambda: files(other) == [f"{sid}.msgpack"], 10, "the file is there")
        with open(f"{other}/{sid}.msgpack", "rb") as f:
            same(unpack(f.read())["trajectories"][0], native["trajectories"][0])
        g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")
    finally:
        shutil.rmtree(other, ignore_errors=True)


def test_expired_sessions_are_delivered(start, tmp_path):
    gw = start(sink=f"file:{tmp_path}/out", workers=1, session_ttl="1s")
    s = gw.post("/sessions").json()
    assert gw.chat(s, "hello").status == 200
    g.wait_until(lambda: files(f"{tmp_path}/out") == [f"{s['session_id']}.msgpack"], 20, "it came")


def test_redis_gets_each_trajectory(start, server):
    r = server()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}/0", workers=2)
    done = dict(episode(gw) for _ in range(8))
    branchy = gw.post("/sessions").json()
    for text in ("a", "b", "c"):
        assert gw.chat(branchy, text).status == 200
    native = gw.post(f"/sessions/{branchy['session_id']}/finalize").json()
    assert len(native["trajectories"]) == 3
    done[branchy["session_id"]] = native
    g.wait_until(lambda: len(r.entries()) == 11, 20, "all entries are there")
    keys = set()
    for e in r.entries():
        sid, index = e[b"session_id"].decode(), int(e[b"trajectory_index"])
        assert e[b"key"].decode() == f"{sid}/{index}" and e[b"format"] == b"msgpack"
        assert int(e[b"trajectories"]) == len(done[sid]["trajectories"])
        same(unpack(e[b"data"]), done[sid]["trajectories"][index])
        keys.add(e[b"key"])
    assert len(keys) == 11
    g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")


def test_large_trajectories_are_pointed_to(start, server):
    r = server()
    gw = start(sink=f"redis://127.0.0.1:{r.port}", sink_inline_max="1k", workers=1)
    sid, native = episode(gw, text="long " * 500)
    g.wait_until(lambda: len(r.entries()) == 1, 20, "the entry is there")
    e = r.entries()[0]
    assert b"data" not in e and e[b"node"]
    with open(e[b"file"], "rb") as f:
        f.seek(int(e[b"offset"]))
        same(unpack(f.read(int(e[b"length"]))), native["trajectories"][0])
    g.wait_until(lambda: not spooled(gw), 10, "nothing waits")


def test_a_sink_that_is_down_loses_nothing(start, server):
    r = server()
    r.stop()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    first = [episode(gw)[0] for _ in range(5)]
    gw.wait_line("a sink takes nothing")
    g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 5, 10, "five wait")
    assert gw.metrics()["rollgate_sink_waiting_bytes"] > 0
    assert gw.stop() == 0               # what waits is there again behind a restart
    gw.start()
    first += [episode(gw)[0] for _ in range(3)]
    r.start()
    g.wait_until(lambda: {e[b"session_id"].decode() for e in r.entries()} == set(first), 60, "all came")
    g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 0, 10, "none waits")
    gw.wait_line("a sink takes trajectories again")


def test_crashes_lose_nothing(start, server, tmp_path):
    r = server()
    gw = start(sink=[f"redis:redis://127.0.0.1:{r.port}", f"file:{tmp_path}/out"], workers=2)
    gw.allow("process ended", "died", "worker", "killed")
    done = {}
    for i in range(12):
        sid, native = episode(gw, turns=1)
        done[sid] = native
        if i % 3 == 2:
            os.kill(gw.child(f"worker-{i % 2}"), signal.SIGKILL)    # right behind finalize
        if i == 5:
            r.stop(signal.SIGKILL)
            r.start()
        g.wait_until(lambda: gw.get("/ready").status == 200, 20, "it is ready again")
    want = set(done)
    g.wait_until(lambda: {e[b"session_id"].decode() for e in r.entries()} == want, 60, "redis has all")
    g.wait_until(lambda: {f.split(".")[0] for f in files(f"{tmp_path}/out")} == want, 20, "files have all")
    for e in r.entries():
        same(unpack(e[b"data"]), done[e[b"session_id"].decode()]["trajectories"][0])
    g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")


def test_a_full_redis_is_back_pressure(start, server):
    r = server("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", sink_max_waiting="2m", workers=1)
    sids, refused = [], None
    for _ in range(400):
        a = gw.post("/sessions")
        if a.status == 503:
            refused = a
            break
        s = a.json()
        assert gw.chat(s, "x" * 20000).status == 200
        assert gw.post(f"/sessions/{s['session_id']}/finalize").status == 200
        sids.append(s["session_id"])
    assert refused is not None, "new sessions were never refused"
    assert refused.json()["error"]["code"] == "storage_full" and "sink" in refused.text
    assert gw.has_line("OOM")
    with r.client() as c:
        c.config_set("maxmemory", "0")
    g.wait_until(lambda: {e[b"session_id"].decode() for e in r.entries()} == set(sids), 60, "all came")
    g.wait_until(lambda: gw.post("/sessions").status == 200, 10, "sessions are taken again")


def test_password_and_stream(start, server, tmp_path):
    r = server("--requirepass", "se-cret")
    (tmp_path / "pw").write_text("se-cret\n")
    gw = start(sink=f"redis:redis://localhost:{r.port}/2?stream=mine&password_file={tmp_path}/pw", workers=1)
    sid, _ = episode(gw)

    def came():
        with r.client(password="se-cret", db=2) as c:
            return [f[b"session_id"].decode() for _, f in c.xrange("mine")] == [sid]
    g.wait_until(came, 20, "the entry is there")
    assert "se-cret" not in gw.log()


@pytest.mark.parametrize("value,text", [
    ("kafka:x", "must be file:DIR or redis:URL"),
    ("redis:redis://me:pw@h", "password_file"),
    ("redis:rediss://h", "TLS"),
    ("file:/proc/nowhere/x", "cannot make"),
])
def test_bad_sinks_end_the_start(value, text):
    gw = g.Gateway(sink=value, workers=1, max_restarts=0).allow(".")
    gw.start(wait=False)
    assert gw.wait(30) != 0
    assert text in gw.log()


def test_retention_is_needed():
    gw = g.Gateway(sink="file", export_retention="0", workers=1, max_restarts=0).allow(".")
    gw.start(wait=False)
    assert gw.wait(30) != 0
    assert "export-retention" in gw.log()


def test_power_durability_delivers(start, tmp_path):
    gw = start(sink=[f"file:{tmp_path}/a", f"file:{tmp_path}/b"], durability="power", workers=1)
    sids = sorted(episode(gw)[0] + ".msgpack" for _ in range(4))
    for folder in ("a", "b"):
        g.wait_until(lambda: files(f"{tmp_path}/{folder}") == sids, 20, "all files are there")


def test_without_a_journal(start, tmp_path):
    gw = start(sink=f"file:{tmp_path}/out", durability="none", workers=1)
    sids = sorted(episode(gw)[0] + ".msgpack" for _ in range(3))
    assert gw.stop() == 0               # the end waits for what is owed
    assert files(f"{tmp_path}/out") == sids
