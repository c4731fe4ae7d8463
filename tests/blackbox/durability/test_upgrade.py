"""Failed upgrades (SIGUSR2): the serving generation continues, reports it in one line, loses nothing and refuses no
client. A good binary is accepted afterwards."""
import ctypes
import os
import shutil
import signal

import pytest

import gateway as g
from agents import World
from test_scaling import configured, need_more, reload, write_settings

FAILURE = "the new binary does not run with this configuration, going on as before"


def replace(s, source=None, script=None, mode=0o755, more=b""):
    """Puts another file in the binary's place, as package managers do."""
    aside = f"{s.folder}/aside"
    if script is None:
        shutil.copy(source, aside)
    with open(aside, "ab") as f:
        f.write(more if script is None else script.encode())
    os.chmod(aside, mode)
    os.rename(aside, s.binary)


def copied(s, source):
    s.binary = shutil.copy(source, f"{s.folder}/program")
    return s.start()


def failed(s):
    return [line for line in s.log().split("\n") if FAILURE in line]


def good_upgrade(s, source):
    served = s.log().count(" serving listen")
    replace(s, source)
    s.signal(signal.SIGUSR2)
    g.wait_until(lambda: s.log().count(" serving listen") > served, 60, "the good one serves")


BROKEN = {
    "missing": lambda s: os.unlink(s.binary),
    "not executable": lambda s: replace(s, g.BINARY, mode=0o644),
    "no program": lambda s: replace(s, script="\x7fELF and nothing more"),
    "ends at once": lambda s: replace(s, "/bin/true"),
    "fails at once": lambda s: replace(s, script="#!/bin/sh\necho 'no such library' >&2\nexit 3\n"),
    "crashes": lambda s: replace(s, script="#!/bin/sh\nkill -SEGV $$\n"),
    "refuses the configuration": lambda s: replace(
        s, script=f"#!/bin/sh\nexec {g.BINARY} \"$@\" --no-such-setting=1\n"),
    "does not find the model": lambda s: replace(
        s, script=f"#!/bin/sh\nexec {g.BINARY} \"$@\" --model=/no/such/folder\n"),
    "is gone after the trial": lambda s: replace(
        s, script=f"#!/bin/sh\n{g.BINARY} \"$@\"\nrc=$?\nrm \"$0\"\nexit $rc\n"),
}
REASONS = {"missing": "No such file", "not executable": "Permission denied", "no program": "cannot execute it: Exec format",
           "fails at once": "exit status 3: no such library", "crashes": "signal 11",
           "refuses the configuration": "no-such-setting", "does not find the model": "no/such/folder",
           "is gone after the trial": "No such file"}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_broken_binary_changes_nothing(how):
    s = copied(configured(workers=2, routers=2), g.BINARY).allow(FAILURE)
    family = s.family()
    world = World(s.port, agents=3, strict=True).start()
    need_more(world, 10)
    BROKEN[how](s)
    s.signal(signal.SIGUSR2)
    g.wait_until(lambda: failed(s), 30, "the failure is told")
    need_more(world, 10)
    assert len(failed(s)) == 1 and REASONS.get(how, "") in failed(s)[0]
    assert s.family() == family and s.log().count("rollgate starts") == 1
    assert not os.path.exists(f"{s.folder}/state/run/t")
    reload(s, workers=3, routers=1)     # every part of the supervisor works on
    need_more(world, 10)
    good_upgrade(s, g.BINARY)
    need_more(world, 10)
    world.stop()
    world.check_exports()
    assert world.failures == []


MISTAKES = {
    "a wrong value": ({"max-restarts": "many"}, "max-restarts"),
    "an unknown key": ({"wrokers": 3}, "wrokers"),
    "a folder that cannot be made": ({"state-dir": "/proc/none", "run-dir": "/proc/none"}, "/proc/none"),
    "a key file that is not there": ({"admin-key-file": "/no/keys"}, "/no/keys"),
}


@pytest.mark.parametrize("what", list(MISTAKES))
def test_a_configuration_that_does_not_start_is_not_upgraded_to(what):
    settings, word = MISTAKES[what]
    s = configured(workers=1, routers=1).allow(FAILURE)
    s.settings.pop("state-dir")
    state = {"state-dir": f"{s.folder}/state"}
    write_settings(s, workers=1, routers=1, **state)
    copied(s, g.BINARY)
    family, session = s.family(), s.post("/sessions", {}).json()
    write_settings(s, **{"workers": 1, "routers": 1, **state, **settings})
    s.signal(signal.SIGUSR2)
    s.wait_line(FAILURE)
    assert word in failed(s)[0] and s.family() == family
    assert s.chat(session, "hi").status == 200
    write_settings(s, workers=1, routers=1, **state)
    good_upgrade(s, g.BINARY)
    answer = s.chat(session, "hi")
    assert answer.status == 200 and "Rollgate-Reseeded" not in answer.headers


def test_a_listener_beyond_loopback_does_not_lose_its_keys():
    s = configured(workers=1, routers=1).allow(FAILURE)
    s.settings["listen"] = f"0.0.0.0:{s.port}"
    with open(f"{s.folder}/admin", "w") as f:
        f.write("an admin's key\n")
    write_settings(s, workers=1, routers=1, **{"admin-key-file": f"{s.folder}/admin"})
    copied(s, g.BINARY)
    write_settings(s, workers=1, routers=1)
    s.signal(signal.SIGUSR2)
    s.wait_line(FAILURE)
    assert "beyond loopback" in failed(s)[0]
    assert s.post("/sessions", {}).status == 401


def test_a_binary_that_hangs_is_given_up():
    s = configured(workers=1, routers=1, **{"start-timeout": "2s"}).allow(FAILURE)
    copied(s, g.BINARY)
    family = s.family()
    replace(s, script="#!/bin/sh\nexec sleep 1000\n")
    s.signal(signal.SIGUSR2)
    s.wait_line("trying the new binary")
    assert s.get("/ready").status == 200
    s.wait_line("within --start-timeout")
    assert s.family() == family
    replace(s, script="#!/bin/sh\nexec sleep 1000\n")
    s.signal(signal.SIGUSR2)
    g.pause(0.3, "the trial is under way: its program says nothing")
    s.family()
    assert s.stop() == 0        # during a trial


def taken(pid, name):
    """A descriptor of ours for what another process has open under that name."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = next(int(n) for n in os.listdir(f"/proc/{pid}/fd") if os.readlink(f"/proc/{pid}/fd/{n}") == name)
    process = os.pidfd_open(pid)
    fd = libc.syscall(438, process, number, 0)      # pidfd_getfd
    os.close(process)
    if fd < 0:
        pytest.skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
    return fd


def test_the_lock_of_the_run_folder_goes_with_the_supervisor(stub):
    """Whoever else still has its descriptor, as a child that was just forked, does not keep it."""
    s = stub(workers=1, routers=1)
    copied(s, g.STUB)
    lock = taken(s.process.pid, f"{s.folder}/state/run/lock")
    good_upgrade(s, g.STUB)
    os.close(lock)
    assert s.get("/").status == 200


def test_a_new_binary_whose_processes_do_not_start_is_undone(stub):
    s = stub(workers=2, routers=2).allow("process died", "the new binary does not start")
    copied(s, g.STUB)
    from test_supervisor import Load
    load = Load(s, "/slow/20")
    replace(s, g.STUB, more=b" broken:worker-1." + b" " * 8)    # its trial has a worker-0 only
    s.signal(signal.SIGUSR2)
    s.wait_line("the new binary does not start, the one before goes on .*told to fail")
    g.wait_until(lambda: s.log().count(f"supervisor {s.process.pid} serving") == 2, 30, "it serves again")
    done = load.ok
    g.wait_until(lambda: load.ok > done + 20, what="load goes on")
    g.wait_until(lambda: len(s.family()) == 5, what="only its own children live")
    good_upgrade(s, g.STUB)
    done = load.ok
    g.wait_until(lambda: load.ok > done + 20, what="load goes on")
    load.stop()
    assert load.failed == [] and load.refused == 0


def test_routers_alone_are_upgraded_too(stub):
    upstream = stub(workers=1, routers=1).start()
    s = g.Gateway(command="route", upstream=[f"127.0.0.1:{upstream.port}"], workers=None)
    s.settings.pop("state-dir")
    copied(s, g.BINARY)
    old = s.family()
    good_upgrade(s, g.BINARY)
    g.wait_until(lambda: not any(g.alive(p) for p in old[1:]), what="the old router ends")
    assert s.family()[0] == old[0] and s.get("/anything").status == 200


def test_upgrades_with_keys_and_the_default_secret_succeed(tmp_path):
    """Each upgrade tries the new binary in a folder of its own, which needs a secret before its children start."""
    (tmp_path / "admin").write_text("an-admin-key-of-this-test\n")
    s = copied(g.Gateway(admin_key_file=f"{tmp_path}/admin", engine="builtin:echo"), g.BINARY)
    secret = (g.Path(s.settings["state-dir"]) / "key-secret").read_text()
    for n in range(4):
        s.signal(signal.SIGUSR2)
        g.wait_until(lambda n=n: failed(s) or s.log().count(" serving listen") > n + 1, 60, "the upgrade ends")
        assert failed(s) == []
    assert (g.Path(s.settings["state-dir"]) / "key-secret").read_text() == secret
    assert s.get("/sessions", headers={"x-api-key": "an-admin-key-of-this-test"}).status == 200
