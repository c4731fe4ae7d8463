"""Engines that a file or an SGLang router adds and removes (--engine-source)."""
import os
import signal
import subprocess
import threading

import pytest

import gateway as g
from asides_engine import AsidesEngine
from gateway import stays, wait_until
from stub_engines import StubEngine
from test_admin_engines import ASK, GOOD, names

FAST = {"engine_health_interval": "200ms"}


def write(path, *lines):
    """As a whole: a reader sees the old file or the new one."""
    part = path.with_suffix(".part")
    part.write_text("".join(f"{line}\n" for line in lines))
    part.rename(path)


def are(gateway, want, timeout=30):
    """Every worker has these engines, and may give them calls."""
    wait_until(lambda: all(names(gateway, "up") == want for _ in range(6)), timeout, f"the engines are {want}")


def ask(gateway, sid, n=0):
    a = gateway.post(f"/sessions/{sid}/v1/chat/completions", {**ASK, "seed": n}, timeout=60)
    assert a.status == 200, a.text


def made(gateway):
    return gateway.post("/sessions", {}).json()["session_id"]


def test_a_file_is_followed(start, engine, tmp_path):
    a, b, c = engine(), engine(), engine()
    listed = tmp_path / "engines"
    write(listed, "# the first two", f"a={a.setting}", "", f"  b={b.setting}  ")
    gateway = start(workers=2, engine_source=f"file:{listed}", **FAST)
    are(gateway, ["a", "b"])
    assert gateway.get("/ready").status == 200
    gate = threading.Event()
    for e in (a, b):
        e.plan.append({**GOOD, "wait": gate})
    running = [made(gateway) for _ in range(12)]
    threads = [threading.Thread(target=ask, args=(gateway, s)) for s in running]
    for t in threads:
        t.start()
    wait_until(lambda: len(a.requests) + len(b.requests) == 12 and a.running + b.running > 0, 30, "calls run")
    write(listed, f"b={b.setting}", f"c={c.setting}")
    are(gateway, ["b", "c"])
    gate.set()
    for t in threads:
        t.join(60)
    were_there = len(a.requests)
    a.requests.clear()
    for s in running + [made(gateway) for _ in range(30)]:
        ask(gateway, s, 1)
    assert not a.requests and b.requests and c.requests
    assert gateway.metrics()['rollgate_session_moves_total{reason="removed"}'] == were_there
    assert gateway.log().count("reason=removed") == were_there
    gateway.wait_line("engine is gone engine=a")
    assert gateway.stop() == 0
    write(listed, f"c={c.setting}")
    gateway.start()
    are(gateway, ["c"])


def test_an_engine_that_does_not_answer_is_taken_once_it_does(start, engine, tmp_path):
    a, later = engine(), StubEngine()
    with StubEngine() as place:
        later.port = place.port
    listed = tmp_path / "engines"
    write(listed, f"a={a.setting}", f"later={later.setting}")
    gateway = start(workers=2, engine_source=f"file:{listed}", **FAST)
    gateway.wait_line("engines that are told do not answer yet .*later")
    are(gateway, ["a"])
    assert names(gateway) == ["a"] and gateway.log().count("do not answer yet") == 1
    later.otherwise = lambda body: GOOD
    with later:
        are(gateway, ["a", "later"])


def test_what_cannot_be_obeyed_changes_nothing_and_is_told_once(start, engine, tmp_path):
    a, b = engine(), engine()
    listed = tmp_path / "engines"
    write(listed, f"a={a.setting}")
    gateway = start(workers=1, engine_source=f"file:{listed}", **FAST)
    are(gateway, ["a"])
    for lines, told in (((f"b={b.setting}", "c=sglan:http://x"), "line 2: .*sglan"), ((), "an empty list"),
                        ((f"b={b.setting}", f"b={a.setting}"), "two engines are called"),
                        ((f"b={b.setting}", "none"), 'none.{1,2} excludes other engines')):
        write(listed, *lines)
        gateway.wait_line(f"engines that are told cannot be .*{told}|those that there are stay .*{told}")
        assert names(gateway, "up") == ["a"]
    os.unlink(listed)
    gateway.wait_line("there is no such file")
    stays(lambda: names(gateway, "up") == ["a"], 1.2, "a look a second")
    assert gateway.log().count("there is no such file") == 1
    write(listed, f"b={b.setting}")
    are(gateway, ["b"])
    write(listed, "none")
    are(gateway, [])
    wait_until(lambda: gateway.get("/ready").status == 503, 20, "it is not ready")
    for method in ("PUT", "POST", "DELETE"):
        refused = gateway.request(method, "/admin/engines", {"engines": ["b=builtin:echo"]})
        assert refused.status == 400 and "--engine-source" in refused.json()["error"]["message"], refused.text


def test_another_worker_looks_when_the_first_dies(start, engine, tmp_path):
    a, b = engine(), engine()
    listed = tmp_path / "engines"
    write(listed, f"a={a.setting}")
    gateway = start(workers=2, engine_source=f"file:{listed}", **FAST)
    gateway.allow("process died")
    are(gateway, ["a"])
    os.kill(gateway.child("worker-0"), signal.SIGKILL)
    write(listed, f"b={b.setting}")
    are(gateway, ["b"])


def worker(e, **more):
    return {"id": e.url, "url": e.url, "model_id": "m", "worker_type": "regular", "is_healthy": True, **more}


def test_a_router_is_followed(start, engine):
    a, b, apart = engine(), engine(), engine()
    listing = [worker(a), worker(apart, worker_type="prefill"), worker(apart, worker_type="decode"),
               {**worker(apart), "url": "grpc://127.0.0.1:1"}]
    smg = engine(stub=AsidesEngine, kind="sglang", asides={"/workers": lambda body: {"workers": listing}})
    gateway = start(workers=2, engine_source=f"smg:{smg.url}", **FAST)
    are(gateway, [a.setting])
    gateway.wait_line("are left out .*workers=3")
    ask(gateway, made(gateway))
    assert len(a.requests) == 1 and not smg.requests
    listing[:] = [{**worker(b), "url": f"{b.url}@0"}, {**worker(b), "url": f"{b.url}@1"}]
    are(gateway, [b.setting])
    listing[:] = []
    gateway.wait_line("those that there are stay")
    smg.asides["/workers"] = {"urls": [a.url, b.url]}       # as older ones tell it
    are(gateway, [a.setting, b.setting])
    smg.asides["/workers"] = {"detail": "what"}
    gateway.wait_line("the answer has no list of workers")
    told = gateway.log().count("cannot be read")
    smg.__exit__()
    wait_until(lambda: gateway.log().count("cannot be read") > told, 30, "it is told")
    ask(gateway, made(gateway))
    assert names(gateway, "up") == [a.setting, b.setting]


def test_a_router_is_shown_its_key(start, engine, tmp_path):
    a = engine(key="secret")
    smg = engine(stub=AsidesEngine, kind="sglang", asides={"/workers": {"workers": [worker(a)]}})
    key = tmp_path / "key"
    key.write_text("secret\n")
    gateway = start(workers=1, engine_source=f"smg:{smg.url},key-file={key}", **FAST)
    are(gateway, [a.setting])
    ask(gateway, made(gateway))
    assert a.requests[0]["headers"]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("setting,told", [("dir:/x", "file:PATH or smg:URL"), ("file:", "file:PATH or smg:URL"),
                                          ("smg:", "address"), ("smg:http://x,weigth=3", "weigth")])
def test_settings_that_cannot_be(tmp_path, setting, told):
    out = subprocess.run([g.BINARY, "config", "--check", f"--state-dir={tmp_path}", f"--engine-source={setting}"],
                         capture_output=True, text=True, timeout=60)
    assert out.returncode != 0 and "--engine-source: " in out.stdout + out.stderr and told in out.stdout + out.stderr, out
