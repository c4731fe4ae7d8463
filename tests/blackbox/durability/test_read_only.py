"""A state folder whose file system turns read-only while the gateway runs, as ext4 does after an error of its disk."""
import contextlib
import shutil
import subprocess

import pytest

from gateway import wait_until
from test_streaming import new, user


def run(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def file_system(tmp_path):
    """A small ext4 in a file; umounted at the end."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with open(image, "wb") as f:
        f.truncate(24 << 20)
    if not shutil.which("mkfs.ext4") or not run("mkfs.ext4", "-q", "-F", str(image)) or \
            not run("mount", "-o", "loop", str(image), str(folder)):
        pytest.skip("cannot mount a file system here")
    try:
        yield str(image), str(folder)
    finally:
        run("umount", "-l", str(folder))


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_state_folder_that_turns_read_only(start, tmp_path, durability):
    """What would change a session is refused, what looks at it goes on, no process dies, and nothing answered is lost."""
    with file_system(tmp_path) as (image, folder):
        gateway = start(engine="builtin:echo", workers=1, state_dir=folder, durability=durability, journal_min_free="0")
        gateway.allow("ournal", "torage", "ead-only")
        s, messages = new(gateway), user("at first")
        a = gateway.chat(s, messages)
        assert a.status == 200
        path = f"/sessions/{s['session_id']}"
        before, pid = gateway.get(path + "?records=1").json()["records"], gateway.child("worker-0")
        assert run("sync", "-f", folder)
        assert run("mount", "-o", "remount,abort", folder)
        messages += [a.json()["choices"][0]["message"], *user("and then")]
        for _ in range(3):
            refused = gateway.chat(s, messages)
            assert refused.status == 503 and refused.json()["error"]["code"] == "storage_failed", refused.text
            assert refused.headers["x-should-retry"] == "true"
        assert gateway.post("/sessions").status == 503
        assert gateway.post(path + "/reward_info", {"reward_info": {"reward": 1}}).status == 503
        assert gateway.post(path + "/finalize").status == 503
        assert gateway.request("DELETE", path).status == 503
        assert gateway.get(path + "?records=1").json()["records"] == before
        assert len(gateway.get(path + "/trajectories").json()["trajectories"]) == 1
        assert gateway.child("worker-0") == pid
        errors = {k: v for k, v in gateway.metrics().items() if k.startswith("rollgate_journal_errors")}
        assert sum(errors.values()) >= 3, errors
        gateway.stop()
        wait_until(lambda: run("umount", folder), 10, "nothing uses the folder any longer")
        wait_until(lambda: not subprocess.run(["losetup", "-j", image], capture_output=True, check=True).stdout, 10,
                   "no name space has it mounted")
        assert run("mount", "-o", "loop", image, folder)
        gateway.start()
        assert gateway.get(path + "?records=1").json()["records"] == before
        wait_until(lambda: gateway.chat(s, messages).status == 200, 10, "the session goes on")
        assert gateway.stop() == 0
