"""Executors on several nodes, which are network namespaces of one machine: one dispatcher, and a node whose link
fails."""
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import gateway as g
from runner_kit import AGENT, processes_with

ADMIN = "an-admin-key-of-this-test"


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=20)


class Node:
    """A namespace with one link to the machine: 10.213.N.1 here, 10.213.N.2 there."""

    def __init__(self, n):
        self.name, self.link, self.host = f"rgt-{os.getpid()}-{n}", f"rgt{os.getpid() % 10000}-{n}", f"10.213.{n}.1"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self.link, "type", "veth", "peer", "name", f"{self.link}p", "netns", self.name)
            ip("addr", "add", f"{self.host}/24", "dev", self.link)
            ip("link", "set", self.link, "up")
            for words in (("addr", "add", f"10.213.{n}.2/24", "dev", f"{self.link}p"), ("link", "set", f"{self.link}p", "up"),
                          ("link", "set", "lo", "up")):
                ip("-n", self.name, *words)
        except BaseException:
            self.close()
            raise

    def down(self):
        ip("link", "set", self.link, "down")

    def close(self):
        ip("link", "del", self.link, check=False)
        ip("netns", "del", self.name, check=False)


@pytest.fixture
def nodes():
    made = []
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip (apt-get install iproute2)")
    try:
        made += [Node(n) for n in range(1, 5)]
    except (subprocess.SubprocessError, OSError) as e:
        pytest.skip(f"no network namespaces here: {getattr(e, 'stderr', e)}")
    yield made
    for node in made:
        node.close()


@pytest.mark.alone
def test_four_nodes_one_of_them_is_cut_off(start, nodes, tmp_path):
    """Every node runs attempts; those of the one that is cut off are lost to their lease and end elsewhere, each once."""
    (tmp_path / "admin").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=2, attempt_lease="2s", admin_key_file=str(tmp_path / "admin"),
                    listen=f"0.0.0.0:{g.free_port()}", sink=f"file:{tmp_path}/out")
    gateway.port = int(gateway.settings["listen"].rsplit(":", 1)[1])
    admin = {"Authorization": f"Bearer {ADMIN}"}
    word = f"nodes-{os.urandom(5).hex()}"
    (tmp_path / "agent.py").write_text(AGENT + f"""
chat("one")
while not os.path.exists("{tmp_path}/go"):
    time.sleep(0.1)
chat("two")
""")
    (tmp_path / "runners.yaml").write_text(
        f'runners: {{r: {{run: [python3, "{tmp_path}/agent.py", {word}], slots: 3, grace: 500ms, timeout: 120s}}}}\n')
    (tmp_path / "key").write_text(subprocess.run(
        [str(g.BINARY), "key", "executor", "nodes", f"--state-dir={gateway.settings['state-dir']}",
         f"--admin-key-file={tmp_path}/admin"], check=True, capture_output=True, text=True, timeout=20).stdout)
    executors = []
    for i, node in enumerate(nodes):
        with open(tmp_path / f"log{i}", "wb") as log:
            executors.append(subprocess.Popen(
                ["ip", "netns", "exec", node.name, str(g.BINARY), "runner", f"--runners={tmp_path}/runners.yaml",
                 f"--gateway=http://{node.host}:{gateway.port}", f"--key-file={tmp_path}/key", f"--executor=nodes/{i}",
                 f"--logs={tmp_path}/logs{i}", f"--work-dir={tmp_path}/work{i}", "--grace=2s", "--reconnect=8s"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        for k in range(3):
            body = {"runner": "r", "n": 4, "reward": "external", "input": k}
            assert gateway.request("PUT", f"/groups/g{k}", body, headers=admin).status == 201
        g.wait_until(lambda: len(processes_with(word)) == 12, 60, "three attempts on each node")
        nodes[3].down()
        # the cut-off one gives up, because the gateway is away for too long, and ends its runs
        g.wait_until(lambda: executors[3].poll() is not None, 120, "the executor behind the link gives up")
        assert executors[3].returncode == 1
        (tmp_path / "go").touch()
        groups = []
        end = time.monotonic() + 90
        while len(groups) < 3:
            assert time.monotonic() < end, "the groups do not settle"
            groups += gateway.get("/queues/train/next?max=3&wait_s=5", headers=admin, timeout=30).json()["groups"]
    finally:
        for executor in executors:
            if executor.poll() is None:
                executor.send_signal(signal.SIGTERM)
        for executor in executors:
            executor.wait(30)
    assert not processes_with(word)
    members = [m for x in groups for m in x["members"]]
    assert all(x["state"] == "finished" for x in groups)
    assert sorted(m["attempts"] for m in members) == [1] * 9 + [2] * 3, "those of the lost node were run twice"
    ran = {re.search(r"/logs(\d)/", m["log"])[1] for m in members}
    assert ran == {"0", "1", "2"}, ran
    winners = {m["session_id"] for m in members}
    g.wait_until(lambda: len(os.listdir(tmp_path / "out")) >= 12, 20, "the sink")
    assert {f[:-len(".msgpack")] for f in os.listdir(tmp_path / "out")} == winners
