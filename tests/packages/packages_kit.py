"""Where the tree is, a command that must succeed, and a bare tree to install packages in."""
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("RG_DIST", ROOT / "build/dist")).resolve()
BARE = ROOT / "build/image/bare.tar"


def run(*command, check=True, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, check=False, **options)
    assert not check or done.returncode == 0, f"{command}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
    return done


def release_commands():
    """Those of docs/releasing.md that build what is published: packages, then the image."""
    lines = re.findall(r"^ {8}(scripts/.*)$", (ROOT / "docs/releasing.md").read_text(), re.M)
    assert len(lines) == 3 and lines[1] == "scripts/release" and lines[2].startswith("scripts/image ")
    return lines


class Tree:
    """A bare tree to install packages in, by chroot."""

    def __init__(self, folder, tar):
        self.folder = folder
        folder.mkdir(mode=0o755)
        run("tar", "-C", folder, "-xf", tar)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        run("mount", "-t", "proc", "proc", folder / "proc")
        run("mount", "-t", "tmpfs", "tmpfs", folder / "dev/shm")

    def run(self, *command, check=True):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        return run("chroot", self.folder, *command, check=check, env=env, stdin=subprocess.DEVNULL)

    def close(self):
        for place in ("dev/shm", "proc"):
            run("umount", "-l", self.folder / place)
