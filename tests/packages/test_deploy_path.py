"""docs/deploy.md, sections 1 to 6, in the order of the page and line by line, in a bare Debian tree: a package, keys, TLS, a sink,
metrics, and an alert that fires when the engine stops. Then the backup and the restore of docs/operations.md. systemd cannot run
below a chroot; units_kit.py is its stand-in, and starts the units as their files say."""
import json
import re
import shutil
import subprocess

import pytest

import gateway as g
from packages_kit import ROOT, run
from test_packages import NAMES, package
from units_kit import Network, Units

pytestmark = pytest.mark.whole
# An engine that answers until it is stopped.
ENGINE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from stub_engines import StubEngine
engine = StubEngine("sglang")
engine.port = 30000
with engine:
    print("ready", flush=True)
    time.sleep(3600)
"""


def commands(title, page="deploy", part=0):
    """The command lines of a section; part 0: before its first bold heading, 1: below that, and so on."""
    section = (ROOT / f"docs/{page}.md").read_text().split(f". {title}\n")[1].split("\n## ")[0].split("\n**")[part]
    text = "\n".join(line[4:] for line in section.split("\n") if line.startswith("    ")).replace("\\\n", " ")
    return [line for line in text.split("\n") if line.strip()]


class Machine:
    def __init__(self, tree):
        self.tree, self.network = tree, Network()
        self.units, self.played = Units(tree, self.network), []

    def play(self, line):
        """One line of the page. systemctl is the stand-in's; apt-get needs the mirror; everything else runs in the network."""
        self.played.append(line)
        for command in line.split(" && "):
            if command.startswith("systemctl "):
                self.units.systemctl(command.split()[1:])
            elif command.startswith("apt-get "):
                self.tree.run("sh", "-ec", f"cd /root && {command}")
            else:
                self.run(command)

    def run(self, command, check=True):
        done = run(*self.network.enter(), "chroot", self.tree.folder, "sh", "-ec", command, check=check, stdin=subprocess.DEVNULL,
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"})
        return done.stdout

    def ask(self, path, body=None, key=None):
        """Over TLS, as clients of other machines do."""
        words = f"-d '{json.dumps(body)}'" if body is not None else ""
        words += f" -H 'Authorization: Bearer {key}'" if key else ""
        return json.loads(self.run("curl -sS --retry 9 --retry-connrefused --fail-with-body --cacert /etc/rollgate/tls.crt --connect-to gw.example:443:127.0.0.1:443 "
                                   f"-H 'content-type: application/json' {words} https://gw.example{path}"))

    def close(self):
        self.units.close()
        self.network.close()


@pytest.fixture
def machine(tree):
    (tree.folder / "etc/dpkg/dpkg.cfg.d/99mmdebstrap").unlink()     # the image leaves documents out; a machine has them
    made = Machine(tree)
    yield made
    made.close()


def test_page_makes_a_node_with_keys_tls_sink_and_alerts(dist, machine):
    for name in NAMES:
        shutil.copy(package(dist, name), machine.tree.folder / "root")
    shutil.copytree(ROOT / "tests/data/models/chatml-bytes", machine.tree.folder / "models/Qwen3-8B")
    engine = subprocess.Popen([*machine.network.enter(), "/usr/bin/python3", "-c", ENGINE, ROOT / "tests/blackbox"], stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout.readline() == "ready\n"
        play(machine, engine)
    finally:
        engine.kill()
        engine.wait()


def play(machine, engine):
    build, install = commands("Install")[:2], commands("Install")[2:]
    assert build == ["scripts/setup && scripts/setup --packages", "scripts/release"], "what the fixture `dist` has done"
    for line in install:
        machine.play(line)
    for title in ("Settings and service", "Keys", "TLS", "A sink"):
        for line in commands(title):
            machine.play(line)
    # keys and TLS: agents get a key of their session
    key = (machine.tree.folder / "etc/rollgate/admin-keys").read_text().strip()
    assert "401" in machine.run("curl -s -o /dev/null -w '%{http_code}' -X POST http://127.0.0.1:8600/sessions", check=False)
    session = machine.ask("/sessions", {}, key)
    assert session["base_url"].startswith("https://gw.example/")
    sid = session["session_id"]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert machine.ask(f"/sessions/{sid}/v1/chat/completions", body, session["api_key"])["choices"]
    # the sink
    machine.ask(f"/sessions/{sid}/finalize", {}, key)
    g.wait_until(lambda: (machine.tree.folder / f"var/lib/rollgate/episodes/{sid}.msgpack").exists(), what="the sink has the session")
    # metrics and alerts. The test shortens the times, which are minutes, and nothing else
    for line in commands("Metrics and alerts"):
        if line.startswith("systemctl"):
            folder = machine.tree.folder / "etc/prometheus"
            rules, settings = folder / "rollgate-rules.yaml", folder / "prometheus.yml"
            rules.write_text(re.sub(r"for: \d+m", "for: 1s", rules.read_text()))
            settings.write_text("global: {scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}\n" + settings.read_text())
        machine.play(line)

    def alerts():
        answer = machine.run("curl -s http://127.0.0.1:9090/api/v1/alerts", check=False)
        return {a["labels"]["alertname"] for a in json.loads(answer)["data"]["alerts"] if a["state"] == "firing"} if answer else set()

    def scraped():
        answer = machine.run("curl -s 'http://127.0.0.1:9090/api/v1/query?query=rollgate_engine_up'", check=False)
        return answer and [r for r in json.loads(answer)["data"]["result"] if int(r["value"][1]) > 0]      # workers that reach it
    g.wait_until(scraped, 60, "Prometheus has the gateway's metrics")
    assert not alerts() & {"RollgateNoEngine", "RollgateDown"}
    engine.kill()
    g.wait_until(lambda: "RollgateNoEngine" in alerts(), 60, "the alert fires")
    # backup and restore: a session that is made between the two is missing
    for line in commands("Back up, move, upgrade", "operations"):
        machine.play(line)
    later = machine.ask("/sessions", {}, key)["session_id"]
    for line in commands("Back up, move, upgrade", "operations", part=1):
        machine.play(line)
    states = {s: machine.run(f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {key}' http://127.0.0.1:8600/sessions/{s}") for s in (sid, later)}
    assert states == {sid: "200", later: "404"}
    assert len(machine.played) >= 29
    machine.units.stop("rollgate")
