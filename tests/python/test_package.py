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
    assert any(n == f"rollgate-{rollgate.__version__}.dist-info/METADATA" for n in zipfile.ZipFile(wheel).namelist())
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        assert modules <= {n.split("/", 1)[1] for n in tar.getnames() if "/" in n}


def test_versions_agree():
    told = re.search(r"project\(rollgate VERSION (\S+)", (g.ROOT / "CMakeLists.txt").read_text())[1]
    assert rollgate.__version__ == told
    assert 'version = {attr = "rollgate.__version__"}' in (PACKAGE / "pyproject.toml").read_text(), "it is told once"


def test_each_adapter_has_an_extra():
    import tomllib
    extras = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {p.stem for p in (g.ROOT / "docs/trainers").iterdir()} | {"arrays", "arrow", "ray", "redis"} == set(extras)
    for page in (g.ROOT / "docs/trainers").iterdir():
        modules = [p for p in (PACKAGE / "rollgate").glob("*.py") if p.stem in (page.stem.replace("-", "_"), f"{page.stem}_manager")]
        pictures = any("pil_images" in p.read_text() or "from . import samples" in p.read_text() for p in modules)
        assert ("pillow" in extras[page.stem]) == pictures, page.stem


def test_the_page_of_the_api_is_what_the_docstrings_say():
    done = subprocess.run([sys.executable, g.ROOT / "scripts/python_api.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (g.ROOT / "docs/python-api.md").read_text()
    assert [n for n in rollgate.__all__ if n != "Calls" and f"class {n}" not in page and f"def {n}(" not in page] == []
