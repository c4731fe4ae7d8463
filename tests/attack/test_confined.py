"""What processes may do that an intruder took over, and what they leave on the disk for others."""
import contextlib
import os
import pwd
import re
import shutil
import socket
import tempfile
import threading

import pytest

import gateway as g
from test_authorization import ADMIN, CALL, bearer, new
from test_sinks import episode

rooted = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = pwd.getpwnam("nobody")


def ids(pid, kind="Uid"):
    with open(f"/proc/{pid}/status") as f:
        return {int(n) for n in re.search(rf"^{kind}:(.*)$", f.read(), re.M)[1].split()}


@pytest.fixture
def state():
    """A place that another user can reach."""
    folder = tempfile.mkdtemp(prefix="rgu")
    os.chmod(folder, 0o755)
    yield f"{folder}/state"
    shutil.rmtree(folder)


# --- --user ---

@rooted
def test_children_become_the_user_and_serve(start, state):
    gateway = start(engine="builtin:echo", user="nobody", state_dir=state, sink="file", workers=2)
    supervisor, *children = gateway.family()
    assert ids(supervisor) == {0} and len(children) >= 3
    for pid in children:
        assert ids(pid) == {NOBODY.pw_uid} and ids(pid, "Gid") == {NOBODY.pw_gid}
        assert 0 not in ids(pid, "Groups")
    assert "without --user" not in gateway.log()
    assert os.stat(state).st_uid == os.stat(f"{state}/key-secret").st_uid == NOBODY.pw_uid
    sid, _ = episode(gateway)
    g.wait_until(lambda: os.path.exists(f"{state}/trajectories/{sid}.msgpack"))
    assert os.stat(f"{state}/trajectories/{sid}.msgpack").st_uid == NOBODY.pw_uid
    open_one = gateway.post("/sessions", {}).json()
    assert gateway.chat(open_one, "before").status == 200
    gateway.stop()
    gateway.start()     # the same folder, now the user's
    assert gateway.get(f"/sessions/{open_one['session_id']}").status == 200


@rooted
def test_a_worker_of_another_user_still_dies_with_the_supervisor(start, state):
    gateway = start(engine="builtin:echo", user="nobody", state_dir=state)
    children = gateway.family()[1:]
    gateway.kill()
    g.wait_until(lambda: not any(g.alive(pid) for pid in children))


@rooted
@pytest.mark.parametrize("user, says", [("nobody", "is not the folder of --user nobody"),
                                        ("no-such-user", "there is no such user")])
def test_a_user_that_cannot_be(state, user, says):
    os.makedirs(state)      # root's
    s = g.Gateway(engine="builtin:echo", user=user, state_dir=state)
    s.allow("cannot start")
    s.start(wait=False)
    assert s.process.wait(20) != 0 and says in s.log()


@rooted
def test_root_without_a_user_is_told(start):
    gateway = start(engine="builtin:echo")
    assert gateway.has_line(r"warn .*started as root without --user")


# --- limits ---

def test_the_address_space_of_workers_alone(start):
    gateway = start(engine="builtin:echo", workers=1, worker_address_space="4GiB")

    def limit(pid):
        with open(f"/proc/{pid}/limits") as f:
            return re.search(r"^Max address space +(\S+)", f.read(), re.M)[1]
    assert limit(gateway.child("worker-0")) == str(4 << 30)
    assert limit(gateway.child("router-0")) == limit(os.getpid())
    assert gateway.chat(gateway.post("/sessions", {}).json(), "hi").status == 200


# --- what is left on the disk ---

@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    """name -> mode of all that stands under a folder."""
    out = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            out[path] = os.lstat(path).st_mode & 0o777
    return out


@pytest.mark.parametrize("other_disk", [False, True])
def test_trajectories_are_for_their_owner_under_any_umask(start, tmp_path, open_umask, other_disk):
    out = tempfile.mkdtemp(prefix="rgs", dir="/dev/shm") + "/out" if other_disk else f"{tmp_path}/out"
    gateway = start(engine="builtin:echo", sink=f"file:{out}", workers=1)
    sid, _ = episode(gateway)
    g.wait_until(lambda: os.path.exists(f"{out}/{sid}.msgpack"))
    assert os.stat(out).st_mode & 0o777 == 0o700
    assert set(modes(out).values()) == {0o600}
    state = modes(f"{gateway.folder}/state")
    sockets = {p for p in state if p.endswith(".sock")}
    assert {p: oct(m) for p, m in state.items() if m & 0o077 and p not in sockets} == {}
    assert os.stat(f"{gateway.folder}/state/run").st_mode & 0o777 == 0o700
    if other_disk:
        shutil.rmtree(os.path.dirname(out))


def test_a_folder_under_a_final_name_stops_its_own_delivery_alone(start, tmp_path):
    gateway = start(engine="builtin:echo", sink=f"file:{tmp_path}/out", workers=1)
    planted = gateway.post("/sessions", {}).json()
    assert gateway.chat(planted, "hello").status == 200
    victim = f"{tmp_path}/out/{planted['session_id']}.msgpack"
    os.makedirs(victim)
    assert gateway.post(f"/sessions/{planted['session_id']}/finalize", {}).status == 200
    gateway.wait_line("a sink does not take this session: it waits, others do not")
    for _ in range(6):
        sid, _ = episode(gateway)
        g.wait_until(lambda sid=sid: os.path.isfile(f"{tmp_path}/out/{sid}.msgpack"), 20, "the others come all the same")
    g.wait_until(lambda: gateway.metrics()["rollgate_sink_waiting"] == 1)
    os.rmdir(victim)
    g.wait_until(lambda: os.path.isfile(victim), 40, "it comes, too")


class FalseRedis:
    """Takes every command, and answers XADD with what it is told, then with an id."""

    def __init__(self, *answers):
        self.answers, self.added = list(answers), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self.listener.accept()
                with conn:
                    while data := conn.recv(1 << 20):
                        for _ in range(data.count(b"XADD")):
                            self.added += 1
                            conn.sendall(self.answers.pop(0) if self.answers else b"$3\r\n1-1\r\n")


@pytest.mark.parametrize("answer", [b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"$0\r\n\r\n", b"$5\r\nhello\r\n"])
def test_a_reply_of_redis_that_is_no_id_is_no_delivery(start, answer):
    redis = FalseRedis(answer)
    gateway = start(engine="builtin:echo", sink=f"redis:redis://127.0.0.1:{redis.port}", workers=1)
    episode(gateway)
    gateway.wait_line("XADD was not answered with an id")
    g.wait_until(lambda: redis.added == 2, 20, "it is sent again")
    g.wait_until(lambda: gateway.metrics().get("rollgate_sink_waiting") == 0, 20, "the second answer is an id")
    assert redis.added == 2
    gateway.stop()
    redis.listener.shutdown(socket.SHUT_RDWR)
    redis.thread.join(10)
    redis.listener.close()


# --- /metrics ---

def test_a_session_s_key_reads_no_metric(start, tmp_path):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(tmp_path / "admin-keys"))
    mine = new(gateway)
    for key in (mine["api_key"], mine["runner_key"]):
        assert gateway.get("/metrics", headers=bearer(key)).status == 403
        assert gateway.get("/metrics", headers={"x-api-key": key}).status == 403
        assert gateway.get("/metrics?key=" + key).status == 401
    assert gateway.get("/metrics", headers=bearer(mine["api_key"][:-1] + "x")).status == 401
    assert gateway.get("/metrics", headers=bearer(ADMIN)).status == 200
    assert gateway.get("/metrics").status == 200        # without --metrics-auth, for scrapers
    assert gateway.post("/v1/chat/completions", CALL, headers=bearer(mine["api_key"])).status == 200
