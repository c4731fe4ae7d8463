"""The wheel and the sdist build with Debian's tools, hold every module, and tell the gateway's version."""
import re
import subprocess
import sys
import tarfile
import zipfile

import gateway as g

sys.path.insert(0, str(g.ROOT / "python"))
import rollgate  # noqa: E402

PACKAGE = g.ROOT / "python"


def test_wheel_and_sdist(tmp_path):
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", PACKAGE, source], check=True)
    subprocess.run(["find", source, "-name", "__pycache__", "-prune", "-exec", "rm", "-r", "{}", "+"], check=True)
    built = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", source],
                           capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    modules = {f"rollgate/{p.name}" for p in (PACKAGE / "rollgate").iterdir() if p.suffix in (".py", ".pyi") or p.name == "py.typed"}
    modules.add("rollgate_prime_rl.py")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert modules <= set(zipfile.ZipFile(wheel).namelist())
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        assert modules <= {n.split("/", 1)[1] for n in tar.getnames() if "/" in n}


def test_versions_agree():
    told = re.search(r"project\(rollgate VERSION (\S+)", (g.ROOT / "CMakeLists.txt").read_text())[1]
    assert rollgate.__version__ == told == re.search(r'^version = "(.*)"', (PACKAGE / "pyproject.toml").read_text(), re.M)[1]
