"""A stand-in for systemd, which does not run below a chroot: `systemctl` of a test starts what the unit files and drop-ins of
the tree say, with their user, environment, folders, credentials and ambient capabilities, in a network of its own. Sandboxing
lines and sockets are left out: tests/blackbox/deploy/test_deploy.py has systemd check these."""
import os
import re
import shutil
import signal
import socket
import subprocess

import gateway as g
from packages_kit import run

DYNAMIC = 61999     # a uid of DynamicUser's range
KNOWN = {"enable", "start", "restart", "reload", "stop", "daemon-reload"}


class Network:
    """A network namespace with a loopback of its own, so that the ports of a page are free."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        g.wait_until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"), what="the network is there")
        run(*self.enter(), "ip", "link", "set", "lo", "up")

    def enter(self):
        return ["nsenter", "-t", str(self.holder.pid), "--net"]

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Units:
    def __init__(self, tree, network):
        self.tree, self.network, self.processes = tree.folder, network, {}

    def systemctl(self, words):
        """Does what a line of a page asks for."""
        verb, names = words[0], [w.removesuffix(".service") for w in words[1:] if not w.startswith("-") and not w.endswith(".socket")]
        assert verb in KNOWN, words
        for name in names:
            if verb in ("stop", "restart"):
                self.stop(name)
            if verb in ("enable", "start", "restart"):
                self.start(name)
            if verb == "reload":
                self.processes[name].send_signal(signal.SIGHUP)

    def settings(self, name):
        """[(key, value)] of the unit's [Service] and its drop-ins, in order."""
        files = [self.tree / f"lib/systemd/system/{name}.service", *sorted((self.tree / f"etc/systemd/system/{name}.service.d").glob("*.conf"))]
        text = "\n".join(f.read_text().replace("\\\n", " ") for f in files)
        return re.findall(r"^(\w+)=(.*)$", text, re.M)

    def start(self, name):
        rows = self.settings(name)
        values = dict(rows)
        user = values.get("User", "")
        uid = DYNAMIC if values.get("DynamicUser") == "yes" else int(re.search(rf"^{user}:x:(\d+):", (self.tree / "etc/passwd").read_text(), re.M)[1])
        credentials = f"/run/credentials/{name}.service"
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        for key, place in (("State", "var/lib"), ("Runtime", "run"), ("Logs", "var/log")):
            if folder := values.get(f"{key}Directory"):
                env[f"{key.upper()}_DIRECTORY"] = f"/{place}/{folder}"
                self.make_folder(place, folder, uid, key == "State" and values.get("DynamicUser") == "yes")
        for key, value in rows:
            if key == "LoadCredential":
                self.load(uid, credentials, *value.split(":", 1))
            elif key == "Environment":
                env.update(word.split("=", 1) for word in value.replace("%d", credentials).split())
            elif key == "EnvironmentFile" and (self.tree / value.strip("-/")).exists():
                found = re.findall(r'^(\w+)="?(.*?)"?$', (self.tree / value.strip("-/")).read_text(), re.M)
                env.update(found)
        words = [w for word in values["ExecStart"].replace("%d", credentials).split() for w in ([word] if not re.fullmatch(r"\$\w+", word) else env.get(word[1:], "").split())]
        words = [re.sub(r"\$\{(\w+)\}", lambda m: env[m[1]], w) for w in words]
        capabilities = [f"+{c.removeprefix('CAP_').lower()}" for c in values.get("AmbientCapabilities", "").split()]
        rights = [f"--{kind}={','.join(capabilities)}" for kind in ("inh-caps", "ambient-caps") if capabilities]
        notify = self.listen(values, env, uid)
        with open(self.tree.parent / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.network.enter(), "chroot", str(self.tree), "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *rights, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        if notify:
            self.await_ready(name, notify)

    def make_folder(self, place, folder, uid, private):
        """A state folder of a dynamic user is in private/, with a link to it; all of it belongs to the user."""
        path = self.tree / place / ("private" if private else "") / folder
        path.mkdir(exist_ok=True, parents=True)
        if private and not (link := self.tree / place / folder).is_symlink():
            link.symlink_to(f"private/{folder}")
            path.parent.chmod(0o711)        # systemd mounts it where the unit sees it
        if path.stat().st_uid != uid:
            run("chown", "-R", f"{uid}:{uid}", path)

    def load(self, uid, folder, name, source):
        place = self.tree / folder.strip("/")
        place.mkdir(parents=True, exist_ok=True, mode=0o755)
        shutil.copy(self.tree / source.strip("/"), place / name)    # a missing file fails the start
        (place / name).chmod(0o400)
        shutil.chown(place / name, uid, uid)

    def listen(self, values, env, uid):
        """The socket of Type=notify."""
        if values.get("Type") != "notify":
            return None
        env["NOTIFY_SOCKET"] = "/run/notify"
        (self.tree / "run/notify").unlink(missing_ok=True)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        folder = os.open(self.tree / "run", os.O_PATH)
        s.bind(f"/proc/self/fd/{folder}/notify")
        os.close(folder)
        shutil.chown(self.tree / "run/notify", uid, uid)
        s.settimeout(1)
        return s

    def await_ready(self, name, notify):
        def is_ready():
            assert self.processes[name].poll() is None, self.log(name)
            try:
                return b"READY=1" in notify.recv(4096)
            except TimeoutError:
                return False
        g.wait_until(is_ready, 60, f"{name} is ready")
        notify.close()

    def stop(self, name):
        if name in self.processes:
            self.processes[name].terminate()
            assert self.processes.pop(name).wait(60) == 0, self.log(name)

    def log(self, name):
        return (self.tree.parent / f"{name}.log").read_text()[-4000:]

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
