"""Sinks: finalized sessions reach files and a real Redis at least once, whatever process dies meanwhile."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess

import msgpack
import pytest

import gateway as g
from test_faults import faulty  # noqa: F401

redis = pytest.importorskip("redis")
STREAM = "rollgate:trajectories"


class Redis:
    """A real server of its own; stop and start keep its data."""

    def __init__(self, folder, *options):
        self.port, self.folder, self.options, self.process = g.free_port(), str(folder), options, None

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder,
             "--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.options],
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
        return redis.Redis(host="127.0.0.1", port=self.port, **more)

    def entries(self, **more):
        with self.client(**more) as c:
            return [fields for _, fields in c.xrange(STREAM)]


@pytest.fixture
def server(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    made = []

    def make(*options):
        made.append(Redis(tmp_path, *options))      # known before it starts: a wait that fails leaves none behind
        return made[-1].start()
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


@pytest.mark.parametrize("inline", ["4m", "1k"])
def test_entries_tell_their_group(start, server, inline):
    """Also behind a pointer: a consumer forms groups without reading the data."""
    r = server()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}/0", sink_inline_max=inline, workers=1)
    group = gw.post("/sessions", {"count": 3, "labels": {"attempt": "t1.0.2"}}).json()
    alone, named = gw.post("/sessions").json(), gw.post("/sessions", {"metadata": {"uid": "task_7"}}).json()
    told = gw.post("/sessions").json()      # by finalize
    for s in (*group["sessions"], alone, named, told):
        assert gw.chat(s, "long " * 400).status == 200
        assert gw.post(f"/sessions/{s['session_id']}/finalize", {"uid": "mine"} if s is told else {}).status == 200
    g.wait_until(lambda: len(r.entries()) == 6, 20, "all entries are there")
    found = {e[b"session_id"].decode(): e for e in r.entries()}
    for k, s in enumerate(group["sessions"]):
        e = found[s["session_id"]]
        assert (b"data" in e) == (inline == "4m") and (b"file" in e) != (b"data" in e)
        assert e[b"group"].decode() == group["group"] and e[b"rollout"] == b"%d" % k
        assert e[b"group_size"] == b"3" and e[b"attempt"] == b"t1.0.2"
        assert e[b"uid"] == e[b"group"]
    assert not {b"uid", b"group", b"rollout", b"group_size", b"attempt"} & set(found[alone["session_id"]])
    assert found[named["session_id"]][b"uid"] == b"task_7" and found[told["session_id"]][b"uid"] == b"mine"


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


def test_a_large_trajectory_that_cannot_be_linked_says_why(start, server):
    """The reason was that of any earlier failure, often of none."""
    r = server()
    gw = start(sink=f"redis://127.0.0.1:{r.port}", sink_inline_max="1k", workers=1)
    target, = glob.glob(f"{gw.folder}/state/worker-0/spool/*/")
    open(f"{target}/pointed", "w").close()
    episode(gw, text="long " * 500)
    gw.wait_line("a sink takes nothing.*cannot link a large export.*Not a directory")
    os.unlink(f"{target}/pointed")
    g.wait_until(lambda: len(r.entries()) == 1, 20, "the entry is there")


def test_a_password_file_is_read_whole_or_refused(tmp_path):
    """One of more than 4096 bytes was cut."""
    (tmp_path / "pw").write_text("x" * 4097)
    gw = g.Gateway(sink=f"redis://h?password_file={tmp_path}/pw", workers=1, max_restarts=0).allow(".")
    gw.start(wait=False)
    assert gw.wait(30) != 0
    assert f"{tmp_path}/pw is larger than 4096 bytes" in gw.log()


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
            # on a busy machine what waits may be too much before Redis is full
            g.wait_until(lambda: gw.has_line("OOM") or not gw.metrics()["rollgate_sink_waiting_bytes"], 20, "it is full, or has taken all")
            if gw.has_line("OOM"):
                break
            continue
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


def test_every_address_of_a_name_is_tried(start, server):
    """localhost is ::1 and 127.0.0.1, whatever /etc/hosts says; the server is at one of them."""
    r = server()
    gw = start(sink=f"redis://localhost:{r.port}".replace("redis:", "redis:redis:"), workers=1)
    done = [episode(gw)[0] for _ in range(3)]
    g.wait_until(lambda: [e[b"session_id"].decode() for e in r.entries()] == done, 20, "the entries are there, once each")
    assert "redis: " not in gw.log()


def test_a_sink_that_is_down_is_told_by_its_addresses(start, server):
    port = g.free_port()
    gw = start(sink=f"redis:redis://localhost:{port}", workers=1)
    sid, _ = episode(gw)
    gw.wait_line(rf"redis: .*127\.0\.0\.1:{port}: Connection refused")
    assert gw.has_line(rf"redis: .*\[::1\]:{port}: ")
    r = Redis(gw.folder)
    r.port = port
    try:
        r.start()
        g.wait_until(lambda: [e[b"session_id"].decode() for e in r.entries()] == [sid], 40, "it comes once the server does")
    finally:
        r.stop(signal.SIGKILL)


def test_doctor_tries_each_sink(server, tmp_path):
    r = server()
    with r.client() as c:
        c.set("text", "no stream")
        c.acl_setuser("narrow", enabled=True, passwords=["+pw"], commands=["+xadd"], keys=["*"])
        c.acl_setuser("reader", enabled=True, passwords=["+pw"], commands=["+xtrim"], keys=["*"])
        c.acl_setuser("other", enabled=True, passwords=["+pw"], commands=["+xadd", "+xtrim"], keys=["other"])
    (tmp_path / "pw").write_text("pw\n")
    (tmp_path / "wrong").write_text("other\n")
    at, closed = f"redis:redis://127.0.0.1:{r.port}", g.free_port()
    mute = socket.create_server(("127.0.0.1", 0))
    want = {at: "takes sessions", f"{at}/1?stream=fresh": "takes sessions", f"{at}?stream=text": "XTRIM: WRONGTYPE",
            f"{at}/99": "SELECT: ERR", f"{at}?user=narrow&password_file={tmp_path}/pw": "takes sessions",
            f"{at}/1?user=narrow&password_file={tmp_path}/pw": "SELECT: NOPERM",
            f"{at}?user=reader&password_file={tmp_path}/pw": "XADD: NOPERM",
            f"{at}?user=other&password_file={tmp_path}/pw": "XADD: NOPERM",
            f"{at}?password_file={tmp_path}/wrong": "AUTH: ", f"redis:redis://127.0.0.1:{closed}": "Connection refused",
            f"redis:redis://127.0.0.1:{mute.getsockname()[1]}": "XADD: no answer within 3 s",
            f"redis:unix:{tmp_path}/none": "No such file", f"file:{tmp_path}/out": "takes sessions"}
    done = subprocess.run([g.BINARY, "doctor", "--json", f"--listen=127.0.0.1:{g.free_port()}", f"--state-dir={tmp_path}/state",
                           "--workers=1", *[f"--sink={w}" for w in want]], text=True, capture_output=True, check=False, timeout=120)
    found = [f for f in json.loads(done.stdout)["findings"] if f["check"] == "sink"]
    assert done.returncode == 1
    for f, (sink, text) in zip(found, want.items(), strict=True):
        assert f["text"].startswith(f"{sink}: {text}"), f
        assert (f["level"] == "ok") == (text == "takes sessions") == (f["cure"] is None), f
    mute.close()
    with r.client() as c:
        assert c.keys() == [b"text"]


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


def cut_off_last_records(gw, sid):
    """As if a crash had come before the journal's last two records of that session: that its export has reached the client,
    and that it lies in the spool, which come in either order."""
    folder = f"{gw.folder}/state/worker-0"
    path = max(f"{folder}/{n}" for n in os.listdir(folder) if n.startswith("seg-"))
    with open(path, "r+b") as f:
        text, at, own = f.read(), 8, []
        while at < len(text):       # each with its length, a sum, and an id's length before the id
            if text[at + 9:at + 9 + text[at + 8]] == sid.encode():
                own.append(at)
            at += 8 + struct.unpack_from("<I", text, at)[0]
        f.truncate(own[-2] + 3)


def stop_with_both_records(gw, sid):
    """For cut_off_last_records."""
    gw.wait_line("a sink takes nothing")
    g.wait_until(lambda: "exported_at" in gw.get(f"/sessions/{sid}").json(), 10, "the export has reached the client")
    assert gw.stop() == 0


def folder_of(gw, kind):
    spool = f"{gw.folder}/state/worker-0/spool"
    return [f"{spool}/{n}" for n in os.listdir(spool) if n.startswith(kind)][0]


def test_an_export_made_twice_is_queued_once(start, server):
    """A crash between the spool and its note: both the file and the promise are found."""
    r = server()
    r.stop()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    sid, native = episode(gw)
    stop_with_both_records(gw, sid)
    cut_off_last_records(gw, sid)
    with open(f"{gw.folder}/state/worker-0/spool/left.part", "w") as f:
        f.write("cut sho")
    gw.start()
    gw.wait_line("torn tail")
    assert not os.path.exists(f"{gw.folder}/state/worker-0/spool/left.part")
    g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 1, 10, "one waits")
    r.start()
    g.wait_until(lambda: gw.metrics().get("rollgate_sink_delivered_total") == 1, 60, "it came")
    g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")
    same(unpack(r.entries()[0][b"data"]), native["trajectories"][0])
    g.stays(lambda: gw.metrics()["rollgate_sink_delivered_total"] == 1, 0.5, "a second delivery would follow at once")
    assert gw.metrics()["rollgate_sink_delivered_total"] == 1
    assert not gw.has_line("is gone")


def test_what_cannot_leave_the_spool_is_said(start, server):
    r = server()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    episode(gw)
    g.wait_until(lambda: len(r.entries()) == 1, 20, "the connection is there")
    r.process.send_signal(signal.SIGSTOP)
    try:
        sid, _ = episode(gw)
        g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 1 and spooled(gw) == [f"{sid}.msgpack"], 10, "it waits")
        path = f"{folder_of(gw, 'redis')}/{sid}.msgpack"
        g.wait_until(lambda: path in open(f"/proc/{gw.child('worker-0')}/maps").read(), 10, "it is being sent")
        os.unlink(path)
        os.mkdir(path)
    finally:
        r.process.send_signal(signal.SIGCONT)
    gw.wait_line("what was delivered stays in the spool.*Is a directory")
    assert episode(gw) and len(r.entries()) >= 2


@pytest.mark.parametrize("other", [True, False])
def test_what_waits_for_sinks_of_the_past_is_said(start, tmp_path, other):
    gw = start(sink=f"redis:redis://127.0.0.1:{g.free_port()}", workers=1)
    sid, _ = episode(gw)
    stop_with_both_records(gw, sid)
    if not other:
        cut_off_last_records(gw, sid)
    gw.settings["sink"] = [f"file:{tmp_path}/out"] if other else []
    gw.start()
    assert gw.has_line("files wait for a sink that is not set any more.*redis-[0-9a-f]{8}.*files=1")
    assert gw.has_line("promised to sinks that are not set any more") == (not other)
    assert gw.get("/ready").status == 200


def test_the_folder_vanishes(start, tmp_path):
    gw = start(sink=f"file:{tmp_path}/out", workers=1)
    shutil.rmtree(f"{tmp_path}/out")
    sid, _ = episode(gw)
    g.wait_until(lambda: os.path.exists(f"{tmp_path}/out/{sid}.msgpack"), 10, "the file is there")
    gw.wait_line("the folder of a sink was gone")
    shutil.rmtree(f"{tmp_path}/out")
    with open(f"{tmp_path}/out", "w"):
        sid, _ = episode(gw)
        gw.wait_line("a sink takes nothing")
    os.unlink(f"{tmp_path}/out")
    g.wait_until(lambda: os.path.exists(f"{tmp_path}/out/{sid}.msgpack"), 20, "the file is there")


def test_what_redis_refuses_waits(start, server):
    r = server()
    with r.client() as c:
        c.set(STREAM, "no stream")
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    sids = {episode(gw)[0]}
    gw.wait_line("WRONGTYPE")
    with r.client() as c:
        c.delete(STREAM)
        c.execute_command("ACL", "SETUSER", "default", "-xadd")
    sids.add(episode(gw)[0])
    gw.wait_line("NOPERM")
    with r.client() as c:
        c.execute_command("ACL", "SETUSER", "default", "+xadd")
    g.wait_until(lambda: {e[b"session_id"].decode() for e in r.entries()} == sids, 30, "all came")


def test_a_redis_that_hangs(start, server):
    r = server()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    sids = [episode(gw)[0]]
    g.wait_until(lambda: len(r.entries()) == 1, 20, "the first came")
    r.process.send_signal(signal.SIGSTOP)
    try:
        sids += [episode(gw)[0] for _ in range(4)]
        g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 4, 10, "they wait")
        assert gw.chat(gw.post("/sessions").json(), "still served").status == 200
        os.kill(gw.child("worker-0"), signal.SIGKILL)       # in the middle of it
        gw.allow("process ended", "died", "worker", "killed")
        g.wait_until(lambda: gw.metrics().get("rollgate_sink_waiting") == 4, 20, "they wait again")
    finally:
        r.process.send_signal(signal.SIGCONT)
    g.wait_until(lambda: {e[b"session_id"].decode() for e in r.entries()} == set(sids), 40, "all came")
    g.wait_until(lambda: not spooled(gw), 10, "the spool is empty")


def test_what_cannot_be_read_holds_up_nothing(start, tmp_path):
    """Neither a session whose record is damaged on the disk nor a file without a descriptor for it."""
    gw = start(sink=f"file:{tmp_path}/out", workers=1, max_worker_memory="4k", session_ttl="1h")
    gw.allow("cannot be read back")
    s = gw.post("/sessions", {"ttl_s": 2}).json()
    assert gw.chat(s, "hello there").status == 200
    g.wait_until(lambda: gw.metrics()["rollgate_sessions_evicted"] > 0, 10, "it is not in memory")
    folder = f"{gw.folder}/state/worker-0"
    path = max(f"{folder}/{n}" for n in os.listdir(folder) if n.startswith("seg-"))
    with open(path, "r+b") as f:
        at = f.read().index(b"hello there")
        f.seek(at)
        f.write(b"j")
        f.flush()
        gw.wait_line("cannot be read back")
        sid, _ = episode(gw)
        g.wait_until(lambda: os.path.exists(f"{tmp_path}/out/{sid}.msgpack"), 10, "the other came")
        assert gw.metrics()["rollgate_sink_waiting"] == 1
        f.seek(at)
        f.write(b"h")
    g.wait_until(lambda: os.path.exists(f"{tmp_path}/out/{s['session_id']}.msgpack"), 20, "it came, too")


def test_a_file_that_cannot_be_opened_now_waits(start, tmp_path):
    gw = start(sink=f"redis:redis://127.0.0.1:{g.free_port()}", workers=1)
    sid, _ = episode(gw)
    gw.wait_line("a sink takes nothing")
    path = f"{folder_of(gw, 'redis')}/{sid}.msgpack"
    os.rename(path, f"{tmp_path}/kept")
    os.mkdir(path)                          # opens, but is not to be read
    assert gw.stop() == 0
    gw.start()
    gw.wait_line("cannot read .*msgpack")
    assert os.listdir(folder_of(gw, "redis")) == [f"{sid}.msgpack"]


def test_what_is_damaged_is_said_at_every_start(start, tmp_path):
    gw = start(sink=f"redis:redis://127.0.0.1:{g.free_port()}", workers=1)
    sid, _ = episode(gw)
    gw.wait_line("a sink takes nothing")
    assert gw.stop() == 0
    os.truncate(f"{folder_of(gw, 'redis')}/{sid}.msgpack", 0)
    gw.allow("is damaged, put aside")
    gw.start()
    gw.wait_line("is damaged, put aside")
    assert gw.stop() == 0
    gw.start()
    gw.wait_line("damaged exports lie aside.*files=1")


def test_a_sink_given_twice(tmp_path):
    gw = g.Gateway(sink=[f"file:{tmp_path}", f"file:{tmp_path}"], workers=1, max_restarts=0).allow(".")
    gw.start(wait=False)
    assert gw.wait(30) != 0
    assert "given twice" in gw.log()


def test_a_full_disk_under_the_spool(start, small_disk, tmp_path):
    """What was finalized waits in the journal until its export fits."""
    disk = small_disk("2m")
    gw = start(sink=f"file:{tmp_path}/out", workers=1, state_dir=str(disk / "state"), journal_min_free="0")
    s = gw.post("/sessions").json()
    assert gw.chat(s, "x" * 50000).status == 200
    with open(disk / "ballast", "wb") as f:
        free = os.statvfs(disk)
        f.write(b"\0" * (free.f_bavail * free.f_frsize - 16384))
    a = gw.post(f"/sessions/{s['session_id']}/finalize")
    assert a.status == 200, a.text
    gw.wait_line("the spool takes nothing.*space")
    assert not files(tmp_path / "out")
    os.unlink(disk / "ballast")
    g.wait_until(lambda: files(tmp_path / "out") == [f"{s['session_id']}.msgpack"], 20, "it came")
    with open(tmp_path / "out" / f"{s['session_id']}.msgpack", "rb") as f:
        same(unpack(f.read())["trajectories"][0], a.json()["trajectories"][0])
    assert gw.stop() == 0


class Drained(Exception):
    """The stream is empty: ends the endless loop of the page."""


class PageClient:
    """A client for the consumer of docs/sinks.md: one entry is left by a consumer that died, and no time passes."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)

    def xgroup_create(self, stream, group, **more):
        self.client.xgroup_create(stream, group, **more)
        assert self.client.xreadgroup(group, "dead", {stream: ">"}, count=1)

    def xautoclaim(self, stream, group, me, _):
        if not self.client.xlen(stream):
            raise Drained
        return self.client.xautoclaim(stream, group, me, 0)

    def xreadgroup(self, group, me, streams, count, block):
        return self.client.xreadgroup(group, me, streams, count=count, block=min(block, 200))


def test_the_pages_consumer_trains_each_trajectory_once(start, server):
    r = server()
    gw = start(sink=f"redis:redis://127.0.0.1:{r.port}", workers=1)
    sids, trained = sorted(episode(gw)[0] for _ in range(4)), []
    g.wait_until(lambda: len(r.entries()) == 4, 20, "all entries are there")
    code, = re.findall(r"^```python\n(.*?)^```$", (g.ROOT / "docs/sinks.md").read_text(encoding="utf-8"), re.M | re.S)
    with r.client() as c:
        c.xadd(STREAM, c.xrange(STREAM)[0][1])      # one comes twice
        with pytest.raises(Drained):
            exec(compile(code, "docs/sinks.md", "exec"),
                 {"r": PageClient(c), "stream": STREAM, "me": "me", "msgpack": msgpack, "train": trained.append})
        assert c.xlen(STREAM) == 0
    assert sorted(t["session_id"] for t in trained) == sids


def test_an_end_while_the_disk_is_slow_leaves_no_part(faulty, tmp_path):
    """The worker ends while its export waits to be on disk: nothing is left of it, and the next worker makes it again."""
    gw, inject = faulty(sink=f"file:{tmp_path}/out", durability="power", grace="1s")
    inject("where", ".part")
    inject("hold", "1")
    sid, native = episode(gw)
    part = f"{gw.folder}/state/worker-0/spool/{sid}.part"
    g.wait_until(lambda: os.path.exists(part), 30, "the export is being made")
    gw.signal(signal.SIGTERM)
    g.wait_until(lambda: not os.path.exists(part), 60, "it is given up")
    inject("hold", None)
    gw.wait()
    assert not os.path.exists(tmp_path / "out" / f"{sid}.msgpack")
    gw.start()
    g.wait_until((tmp_path / "out" / f"{sid}.msgpack").exists, 60, "it came")
    same(unpack((tmp_path / "out" / f"{sid}.msgpack").read_bytes())["trajectories"][0], native["trajectories"][0])
