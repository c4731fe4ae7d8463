"""The container image: its size, its settings, and a run on a read-only root as a user without rights. It runs under podman
where the machine allows that; elsewhere its tree runs below a chroot, as the image's settings say, and the test says so."""
import gzip
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request

import pytest

import gateway as g
from packages_kit import ROOT, release_commands, run
from test_packages import package

pytestmark = pytest.mark.whole
MOST_BYTES = 60 * 10**6


def page_commands():
    """Those of the section on containers of docs/deploy.md."""
    section = (ROOT / "docs/deploy.md").read_text().split(". Containers\n")[1]
    lines = re.findall(r"^ {4}(\S.*)$", section.replace("\\\n", " "), re.M)
    assert [line.split()[0] for line in lines] == ["scripts/image", "gunzip", "openssl", "podman"]
    return lines


@pytest.fixture(scope="session")
def image(dist, bare, tmp_path_factory):
    """(archive, its settings), by the command of docs/deploy.md and docs/releasing.md"""
    path = tmp_path_factory.mktemp("image") / "rollgate.tar.gz"
    pages = {page_commands()[0], release_commands()[2]}
    made = {line.replace("build/dist/rollgate_*", f"{dist}/rollgate_*").rsplit(" ", 1)[0] for line in pages}
    assert len(made) == 1, "both pages build the same image"
    run("bash", "-ec", f"{made.pop()} {path}", cwd=ROOT)
    with tarfile.open(path) as tar:
        name = json.load(tar.extractfile("manifest.json"))[0]["Config"]
        settings = json.load(tar.extractfile(name))["config"]
    return path, settings


def test_image_is_small_and_without_rights(image):
    path, settings = image
    assert path.stat().st_size < MOST_BYTES
    assert settings["User"] == "10001:10001" and list(settings["Volumes"]) == ["/var/lib/rollgate"]
    assert settings["Healthcheck"]["Test"][0] == "CMD" and settings["StopSignal"] == "SIGTERM"


def ask(port, path, body=None, key=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body and json.dumps(body).encode(),
                                     headers={"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class Container:
    """The image under podman, in a storage of its own."""

    def __init__(self, folder, image, environment):
        self.folder, self.name = folder, "rollgate:" + re.search(r"rollgate VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.storage = tempfile.mkdtemp()      # podman wants a short path
        self.podman = ["podman", "--root", f"{self.storage}/root", "--runroot", f"{self.storage}/run", "--storage-driver", "vfs", "--runtime", "runc",
                       "--cgroup-manager", "cgroupfs"]
        limits = ["--ulimit", "nofile=1024:4096", "--ulimit", "nproc=4096:4096"]     # those of podman may exceed the machine's
        self.options = ["--network", "host", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", *limits, "-v", f"{folder}/state:/var/lib/rollgate",
                        "-v", f"{folder}/keys:/run/keys:ro", *(w for k, v in environment.items() for w in ("-e", f"{k}={v}"))]
        run("sh", "-c", 'image=$1; shift; gunzip -c "$image" | "$@" load', "load", image, *self.podman)

    def works(self):
        """Why containers do not run here, or an empty text."""
        done = run(*self.podman, "run", "--rm", "--no-healthcheck", *self.options, self.name, "--version", check=False)
        return "" if done.returncode == 0 else (done.stderr.strip() or "podman run fails")[-300:]

    def start(self, words):
        run(*self.podman, "run", "-d", "--name", "rg", "--no-healthcheck", *self.options, self.name, *words)

    def execute(self, words):
        return run(*self.podman, "exec", "rg", *words, check=False)

    def log(self):
        return run(*self.podman, "logs", "rg", check=False).stderr

    def stop(self):
        run(*self.podman, "stop", "-t", "60", "rg")
        return int(run(*self.podman, "inspect", "-f", "{{.State.ExitCode}}", "rg").stdout)

    def close(self):
        run(*self.podman, "rm", "-f", "-a", check=False)
        run(*self.podman, "rmi", "-f", "-a", check=False)
        shutil.rmtree(self.storage)


class Chroot:
    """The image's tree below a chroot, on a read-only mount, with its user, its environment and one writable folder."""

    def __init__(self, folder, image, environment, settings):
        self.folder, self.tree, self.settings, self.process = folder, folder / "tree", settings, None
        self.environment = {**dict(word.split("=", 1) for word in settings["Env"]), **environment}
        self.tree.mkdir()
        with gzip.open(image) as packed, tarfile.open(fileobj=packed) as tar:
            layers = json.load(tar.extractfile("manifest.json"))[0]["Layers"]
            for layer in layers:
                tar.extract(layer, folder)
                run("tar", "-C", self.tree, "-xf", folder / layer)
        (self.tree / "run/keys").mkdir(exist_ok=True)
        run("mount", "--bind", self.tree, self.tree)
        run("mount", "-o", "remount,bind,ro", self.tree)
        for source, place in ((folder / "state", "var/lib/rollgate"), (folder / "keys", "run/keys"), ("/proc", "proc"), ("/dev", "dev")):
            run("mount", "--bind", source, self.tree / place)

    def command(self, words):
        return ["/usr/sbin/chroot", f"--userspec={self.settings['User']}", str(self.tree), *words]

    def start(self, words):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(self.command([*self.settings["Entrypoint"], *words]), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=self.environment)

    def execute(self, words):
        return run(*self.command(words), check=False, env=self.environment)

    def log(self):
        return (self.folder / "log").read_text()

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for place in ("dev", "proc", "run/keys", "var/lib/rollgate", "."):
            run("umount", "-l", self.tree / place, check=False)


def test_image_serves_on_a_read_only_root(image, tmp_path, record_property):
    path, settings = image
    tmp_path.chmod(0o755)
    (tmp_path / "state").mkdir(mode=0o700)
    shutil.chown(tmp_path / "state", 10001, 10001)
    (tmp_path / "keys").mkdir(mode=0o755)
    (tmp_path / "keys/admin").write_text("k" * 48 + "\n")
    shutil.chown(tmp_path / "keys/admin", 10001, 10001)
    port = g.free_port()
    environment = {"ROLLGATE_ADMIN_KEY_FILE": "/run/keys/admin", "ROLLGATE_WORKERS": "1"}
    container = Container(tmp_path, path, environment)
    why = container.works()
    if why:
        print("podman cannot run a container here, so its steps run below a chroot:", why)
        record_property("podman", why)
        container.close()
        container = Chroot(tmp_path, path, environment, settings)
    try:
        container.start([word.replace("8600", str(port)) for word in settings["Cmd"]])
        check = [word.replace("8600", str(port)) for word in settings["Healthcheck"]["Test"][1:]]
        try:
            g.wait_until(lambda: container.execute(check).returncode == 0, 60, "the health check passes")
        except AssertionError:
            raise AssertionError(container.log()[-3000:]) from None
        session = ask(port, "/sessions", {}, key="k" * 48)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        answer = ask(port, f"/sessions/{session['session_id']}/v1/chat/completions", body, key=session["api_key"])
        assert answer["choices"][0]["message"]["content"] == "Hello"
        assert container.execute(["/bin/sh", "-c", "echo x >/etc/x"]).returncode != 0, "the root is read-only"
        assert container.execute(["/usr/bin/id", "-u"]).stdout.strip() == "10001"
        assert container.execute([w.replace(str(port), "1") for w in check]).returncode != 0, "the health check can fail"
        assert os.listdir(tmp_path / "state")
        assert container.stop() == 0
    finally:
        container.close()


# Adds a storage of the test's own. Where containers do not run, `run` becomes `create`, which reads the same words.
PODMAN = """#!/bin/sh
verb=$1
shift
[ "$verb" != run ] || [ -n "$RUNS" ] || { verb=create; [ "$1" != -d ] || shift; }
exec /usr/bin/podman --root "$STORAGE/root" --runroot "$STORAGE/run" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs "$verb" "$@"
"""


def test_commands_of_the_page_run_a_container(image, tmp_path, record_property):
    """All lines of the section but the first, which has made the image. Published ports and limits need a machine that runs
    containers; elsewhere the last line only creates the container, and this test says so."""
    path, _ = image
    probe = Container(tmp_path, path, {})
    why = probe.works()
    storage = tempfile.mkdtemp()
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin", "STORAGE": storage, "RUNS": "" if why else "1", "HOME": str(tmp_path)}
    (tmp_path / "build/image").mkdir(parents=True)
    (tmp_path / "build/image/rollgate.tar.gz").symlink_to(path)
    try:
        for line in page_commands()[1:]:
            run("bash", "-ec", line, cwd=tmp_path, env=env)
        found = json.loads(run(tmp_path / "podman", "inspect", "rollgate", env=env).stdout)[0]
        assert found["HostConfig"]["ReadonlyRootfs"] and found["Config"]["User"] == "10001:10001" and not found["EffectiveCaps"]
        assert {m["Destination"] for m in found["Mounts"]} == {"/var/lib/rollgate", "/run/admin-keys"}
        assert (tmp_path / "admin-keys").stat().st_mode & 0o777 == 0o644, "the container's user reads it"
        if why:
            print("podman cannot run a container here, so it was only created:", why)
            record_property("podman", why)
        else:
            g.wait_until(lambda: run(tmp_path / "podman", "healthcheck", "run", "rollgate", check=False, env=env).returncode == 0, 60, "it is healthy")
    finally:
        run(tmp_path / "podman", "rm", "-f", "-a", check=False, env=env)
        probe.close()
        shutil.rmtree(storage)
