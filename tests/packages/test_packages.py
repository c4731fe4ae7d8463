"""Debian packages: what they contain, and their life in a bare tree: install, upgrade under load, remove, purge."""
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading

import jsonschema
import pytest
import yaml

import gateway as g
from packages_kit import ROOT, run

NAMES = ("rollgate", "rollgate-runner", "python3-rollgate")

# In the tree's place of systemd, which does not run there: notes each call, and sends the signal that systemd sends.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>/run/systemctl.log
case "$*" in
*is-active*rollgate.service) kill -0 "$(cat /run/rollgate.pid)" ;;
"kill --signal=USR2 --kill-who=main rollgate.service") kill -USR2 "$(cat /run/rollgate.pid)" ;;
*stop*rollgate.service*) kill -TERM "$(cat /run/rollgate.pid)" ;;
esac
"""


def package(dist, name):
    found = [path for path in dist.glob(f"{name}_*.deb")]
    assert len(found) == 1, found
    return found[0]


def unpack(deb, folder):
    run("dpkg-deb", "-x", deb, folder)
    return folder


def test_lintian_finds_no_error(dist):
    done = run("lintian", "--allow-root", "--fail-on", "error", *(package(dist, name) for name in NAMES), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_has_pages_and_completions_from_the_table(dist, tmp_path):
    tree = unpack(package(dist, "rollgate"), tmp_path / "tree")
    binary = tree / "usr/bin/rollgate"
    assert (tree / "usr/share/rollgate/rollgate.yaml").read_text() == run(binary, "config", "--docs").stdout
    commands = re.findall(r"^  ([a-z-]+) ", run(binary, "--help").stdout, re.M)
    settings = re.findall(r"^#([a-z-]+): ", run(binary, "config", "--docs").stdout, re.M)
    assert len(commands) > 10 and len(settings) > 60
    for name in ("rollgate.1", "rollgate.yaml.5", *(f"rollgate-{c}.1" for c in commands)):
        page = tree / f"usr/share/man/man{name[-1]}/{name}.gz"
        done = run("man", "--warnings", "-l", page, env={**os.environ, "MANWIDTH": "120", "LC_ALL": "C.UTF-8"})
        assert "warning" not in done.stderr, (name, done.stderr)
        if name.startswith("rollgate-"):
            text = re.sub(r"\s+", " ", gzip.decompress(page.read_bytes()).decode().replace("\\-", "-"))
            for option in re.findall(r"^  .*?(--[a-z-]+)", run(binary, name[9:-2], "--help").stdout, re.M):
                assert option in text, (name, option)
    words = "source {}; COMP_WORDS=({}); COMP_CWORD={}; _rollgate; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    bash = tree / "usr/share/bash-completion/completions/rollgate"
    zsh, fish = tree / "usr/share/zsh/vendor-completions/_rollgate", tree / "usr/share/fish/vendor_completions.d/rollgate.fish"
    for line, at, want in (("rollgate ''", 1, set(commands)), ("rollgate serve --", 2, {f"--{s}" for s in settings}),
                           ("rollgate group ''", 2, {"submit", "list", "show", "wait", "cancel"})):
        found = run("bash", "-c", words.format(bash, line, at)).stdout.split("\n")
        assert want <= set(found), (line, want - set(found))
    run("zsh", "-n", zsh)
    found = run("fish", "--no-config", "-c", f"source {fish}; complete -C 'rollgate serve --work'").stdout
    assert "--workers" in found and "--worker-base" in found
    found = run("fish", "--no-config", "-c", f"source {fish}; complete -C 'rollgate '").stdout
    assert set(commands) <= {line.split("\t")[0] for line in found.split("\n")}
    assert all(f"--{s}[" in zsh.read_text() for s in settings)


def test_examples_find_their_files(dist, tmp_path):
    """They are installed as they are, not compressed, and Compose mounts what is next to it."""
    examples = unpack(package(dist, "rollgate"), tmp_path / "tree") / "usr/share/doc/rollgate/examples"
    assert not list(examples.rglob("*.gz"))
    services = yaml.safe_load((examples / "compose/docker-compose.yaml").read_text())["services"].values()
    mounts = [v.split(":")[0] for service in services for v in service["volumes"] if v.startswith(".")]
    assert len(mounts) >= 3 and all((examples / "compose" / m).is_file() for m in mounts), mounts


def test_cmake_installs_below_another_prefix(dist, tmp_path):
    """`cmake --install` of the tree that scripts/release has built."""
    built = next((ROOT / "build/release-tree").glob("rollgate-*/build/release"))
    run("cmake", "--install", built, "--prefix", "/opt/rollgate", env={**os.environ, "DESTDIR": str(tmp_path)})
    at = tmp_path / "opt/rollgate"
    assert run(at / "bin/rollgate", "--version").stdout.startswith("rollgate ")
    for name in ("share/man/man1/rollgate.1", "lib/systemd/system/rollgate.socket", "share/bash-completion/completions/rollgate",
                 "share/doc/rollgate/examples/compose/docker-compose.yaml"):
        assert (at / name).exists(), name
    assert "\nExecStart=/opt/rollgate/bin/rollgate serve " in (at / "lib/systemd/system/rollgate.service").read_text()


def test_release_has_checksums_of_all_files(dist):
    lines = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {p.name for p in dist.iterdir()} - {"SHA256SUMS"}
    assert set(lines) == files and sum(name.endswith((".whl", ".tar.gz", ".tar.xz")) for name in files) == 3
    for name in files:
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == lines[name]
    listed = run("tar", "-tf", next(dist.glob("*.tar.xz"))).stdout
    assert "/CMakeLists.txt\n" in listed and "/.git/" not in listed


def later_version(deb, folder):
    """The package of a later version: another number, and a binary of other bytes."""
    run("dpkg-deb", "-R", deb, folder)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1+later", control.read_text(), flags=re.M))
    control.write_text(re.sub(r"rollgate \(= ([^)]*)\)", r"rollgate (= \1+later)", control.read_text()))
    binary = folder / "usr/bin/rollgate"
    if binary.exists():
        with open(binary, "ab") as file:
            file.write(b"later")
    run("dpkg-deb", "-b", folder, folder.with_suffix(".deb"))
    return folder.with_suffix(".deb")


class Service:
    """The gateway of the tree, started by the unit's command line as a user of its own."""

    USER = 61999  # in the range of DynamicUser

    def __init__(self, tree):
        self.tree, self.port, self.log = tree, g.free_port(), tree.folder.parent / "gateway.log"
        with open(tree.folder / "etc/rollgate/rollgate.yaml", "a") as settings:
            settings.write(f"listen: 127.0.0.1:{self.port}\nworkers: 2\nengine: builtin:echo,delay_ms=20\n")
        self.process = None
        self.start()

    def start(self):
        unit = (self.tree.folder / "lib/systemd/system/rollgate.service").read_text()
        command = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
        folders = {"STATE_DIRECTORY": "var/lib/rollgate", "RUNTIME_DIRECTORY": "run/rollgate"}
        for place in folders.values():
            (self.tree.folder / place).mkdir(exist_ok=True)
            shutil.chown(self.tree.folder / place, self.USER, self.USER)
        env = {"PATH": "/usr/bin:/bin", "ROLLGATE_GRACE": "20s", **{k: f"/{v}" for k, v in folders.items()}}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["/usr/sbin/chroot", f"--userspec={self.USER}:{self.USER}", str(self.tree.folder), *command], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=env)
        (self.tree.folder / "run/rollgate.pid").write_text(str(self.process.pid))
        g.wait_until(lambda: self.process.poll() is not None or self.ready(), 60, "the gateway is ready")
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def ready(self):
        try:
            return self.ask("GET", "/ready")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None, {"content-type": "application/json"})
            answer = c.getresponse()
            text = answer.read()
            assert answer.getheader("Rollgate-Reseeded") is None
            return answer.status, json.loads(text) if text.startswith(b"{") else {}
        finally:
            c.close()

    def served(self):
        return len(re.findall(r"\bserving\b.*listen", self.log.read_text()))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Talk(threading.Thread):
    """A session whose turns go on until it is stopped; each must be answered, by its own history."""

    def __init__(self, service):
        super().__init__()
        self.service, self.done, self.failed, self.turns, self.messages = service, threading.Event(), None, 0, []
        self.session = service.ask("POST", "/sessions", {})[1]["session_id"]

    def turn(self):
        self.messages.append({"role": "user", "content": f"turn {self.turns}"})
        status, answer = self.service.ask("POST", f"/sessions/{self.session}/v1/chat/completions", {"model": "m", "messages": self.messages})
        assert status == 200, (status, answer)
        self.messages.append(answer["choices"][0]["message"])
        self.turns += 1

    def run(self):
        try:
            while not self.done.is_set():
                self.turn()
        except (OSError, AssertionError, http.client.HTTPException) as e:
            self.failed = e

    def stop(self):
        self.done.set()
        self.join(60)
        assert self.failed is None, self.failed


def install_commands():
    """The lines of docs/deploy.md that install packages."""
    text = (ROOT / "docs/deploy.md").read_text()
    return re.findall(r"^    (apt-get install [^\n]*\.deb[^\n]*)$", text, re.M)


@pytest.mark.whole
def test_life_in_a_bare_tree(dist, tree):
    names = [package(dist, name).name for name in NAMES]
    for name in names:
        shutil.copy(dist / name, tree.folder / "root")
    (tree.folder / "root/later").mkdir()
    for name in NAMES:
        shutil.copy(later_version(package(dist, name), tree.folder.parent / f"later-{name}"), tree.folder / f"root/later/{name}.deb")
    tree.run("apt-get", "update")
    tree.run("apt-get", "install", "-y", "--no-install-recommends", "systemd")
    assert len(install_commands()) == 2
    for line in install_commands():
        tree.run("sh", "-c", f"cd /root && {line}")
    # what is there
    docs = tree.run("rollgate", "config", "--docs").stdout
    settings = tree.folder / "etc/rollgate/rollgate.yaml"
    assert settings.read_text() == docs and tree.run("rollgate", "config", "--check", "--config", "/etc/rollgate/rollgate.yaml")
    assert "rollgate-runner" in tree.run("getent", "passwd", "rollgate-runner").stdout
    assert (tree.folder / "etc/rollgate-runner").is_dir()
    tree.run("python3", "-c", "import rollgate; assert rollgate.__version__")
    tree.run("rollgate-executor", "--help")
    units = [f"/lib/systemd/system/{n}" for n in ("rollgate.service", "rollgate.socket", "rollgate-runner.service")]
    done = tree.run("systemd-analyze", "verify", "--man=no", *units)
    assert not [line for line in done.stderr.split("\n") if "rollgate" in line], done.stderr
    assert not list((tree.folder / "etc/systemd/system").rglob("rollgate*")), "nothing starts before it has settings"
    # an upgrade, with sessions and calls in flight
    (tree.folder / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    tree.run("dpkg-divert", "--rename", "--add", "/bin/systemctl")
    (tree.folder / "bin/systemctl").write_text(SYSTEMCTL)
    (tree.folder / "bin/systemctl").chmod(0o755)
    service = Service(tree)
    talks = [Talk(service) for _ in range(3)]
    for talk in talks:
        talk.start()
    g.wait_until(lambda: all(t.turns > 3 or t.failed for t in talks), what="the sessions have turns")
    served, pid, mine = service.served(), service.process.pid, settings.read_text()
    tree.run("sh", "-c", "apt-get install -y /root/later/*.deb")
    g.wait_until(lambda: service.served() > served, 60, "the new binary serves")
    assert os.readlink(f"/proc/{pid}/exe").removeprefix(str(tree.folder)) == "/usr/bin/rollgate" and service.process.poll() is None
    turns = [t.turns for t in talks]
    g.wait_until(lambda: all(t.turns > n + 3 or t.failed for t, n in zip(talks, turns)), what="the sessions go on")
    for talk in talks:
        talk.stop()
    assert settings.read_text() == mine and tree.run("dpkg-query", "-W", "-f", "${Version}", "rollgate").stdout.endswith("+later")
    calls = (tree.folder / "run/systemctl.log").read_text()
    assert "daemon-reload" in calls and "kill --signal=USR2 --kill-who=main rollgate.service" in calls
    assert "stop" not in calls and "restart" not in calls
    # removed: it ends, and its settings and sessions stay
    tree.run("apt-get", "remove", "-y", *NAMES)
    assert service.process.wait(60) == 0
    assert not (tree.folder / "usr/bin/rollgate").exists() and settings.read_text() == mine
    for line in install_commands():
        tree.run("sh", "-c", f"cd /root && {line}")
    assert settings.read_text() == mine
    service.start()
    for talk in talks:
        before = talk.turns
        talk.turn()
        assert talk.turns == before + 1
    assert service.stop() == 0
    # purged: only the sessions stay, and dpkg says so
    said = tree.run("apt-get", "purge", "-y", *NAMES).stdout
    assert "/var/lib/rollgate has the sessions and stays" in said, said
    left = run("find", tree.folder, "-xdev", "-name", "*rollgate*", "-not", "-path", f"{tree.folder}/root/*", "-not", "-path", f"{tree.folder}/run/*",
               "-not", "-path", f"{tree.folder}/var/lib/rollgate*").stdout.split()
    assert left == []


TEXT = {"type": "string", "minLength": 1}
IDENTIFIER = {"type": "string", "pattern": r"^SPDXRef-[A-Za-z0-9.-]+$"}
# SPDX 2.3, sections 6, 7 and 11: required fields, and the optional ones that scripts/make_bill.py writes.
SPDX = {
    "type": "object", "additionalProperties": False,
    "required": ["spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"],
    "properties": {
        "spdxVersion": {"const": "SPDX-2.3"}, "dataLicense": {"const": "CC0-1.0"}, "SPDXID": {"const": "SPDXRef-DOCUMENT"}, "name": TEXT,
        "documentNamespace": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:[^#]+$"},
        "creationInfo": {"type": "object", "additionalProperties": False, "required": ["created", "creators"], "properties": {
            "created": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
            "creators": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^(Tool|Organization|Person): ."}}}},
        "packages": {"type": "array", "minItems": 1, "items": {
            "type": "object", "additionalProperties": False, "required": ["SPDXID", "name", "downloadLocation"],
            "properties": {
                "SPDXID": IDENTIFIER, "name": TEXT, "versionInfo": TEXT, "packageFileName": TEXT, "downloadLocation": TEXT, "filesAnalyzed": {"const": False},
                "supplier": {"type": "string", "pattern": "^(Organization|Person): .|^NOASSERTION$"}, "licenseConcluded": TEXT, "licenseDeclared": TEXT,
                "copyrightText": TEXT,
                "checksums": {"type": "array", "items": {"type": "object", "additionalProperties": False, "required": ["algorithm", "checksumValue"], "properties": {
                    "algorithm": {"const": "SHA256"}, "checksumValue": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}}},
                "externalRefs": {"type": "array", "items": {"type": "object", "additionalProperties": False,
                                                            "required": ["referenceCategory", "referenceType", "referenceLocator"], "properties": {
                                                                "referenceCategory": {"const": "PACKAGE-MANAGER"}, "referenceType": {"const": "purl"},
                                                                "referenceLocator": {"type": "string", "pattern": r"^pkg:deb/debian/[^@]+@[^@]+$"}}}}}}},
        "relationships": {"type": "array", "items": {"type": "object", "additionalProperties": False,
                                                     "required": ["spdxElementId", "relationshipType", "relatedSpdxElement"], "properties": {
                                                         "spdxElementId": IDENTIFIER, "relatedSpdxElement": IDENTIFIER,
                                                         "relationshipType": {"enum": ["DESCRIBES", "GENERATED_FROM", "DYNAMIC_LINK"]}}}},
    }}


def test_bill_of_materials_is_valid_and_complete(dist):
    bill = json.loads(next(dist.glob("*.spdx.json")).read_text())
    jsonschema.validate(bill, SPDX)
    by_id = {p["SPDXID"]: p for p in bill["packages"]}
    assert len(by_id) == len(bill["packages"])
    assert {end for r in bill["relationships"] for end in (r["spdxElementId"], r["relatedSpdxElement"])} <= {*by_id, "SPDXRef-DOCUMENT"}
    files = {p["packageFileName"]: p["checksums"][0]["checksumValue"] for p in bill["packages"] if "packageFileName" in p}
    assert set(files) == {p.name for p in dist.iterdir() if p.suffix in (".deb", ".whl", ".gz", ".xz")}
    assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == value for name, value in files.items())
    linked = {by_id[r["relatedSpdxElement"]]["name"] for r in bill["relationships"] if r["relationshipType"] == "DYNAMIC_LINK"}
    depends = re.findall(r"\b(lib[\w.+-]+|zlib1g)", run("dpkg-deb", "-f", package(dist, "rollgate"), "Depends").stdout)
    assert len(depends) > 8 and set(depends) <= linked, set(depends) - linked
