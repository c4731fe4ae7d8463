"""What operators install: packages, image, manifests and moves of state. Needs root, apt and the packages of
`scripts/setup --packages`. systemd does not run in the bare tree: the tests start the binary as the unit's ExecStart does.
Tests marked `whole` run in `scripts/test packages`, and not in CI."""
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox")]
from packages_kit import BARE, DIST, ROOT, Tree, release_commands, run  # noqa: E402  pylint: disable=wrong-import-position


def pytest_configure(config):
    config.addinivalue_line("markers", "whole: too long for CI; scripts/test packages runs it")


def pytest_collection_modifyitems(items):
    """The limit of a test is not for what fixtures build: a release takes minutes where no object is cached, and has the limit of `run`."""
    for item in items:
        item.add_marker(pytest.mark.timeout(func_only=True))


@pytest.fixture(scope="session")
def dist(request):
    """The folder that scripts/release makes, by the commands of docs/releasing.md. Without tests marked `whole` the program has
    the objects of the dev build. RG_DIST names a folder that is there already."""
    if "RG_DIST" not in os.environ:
        short = not any(item.get_closest_marker("whole") for item in request.session.items)
        for line in release_commands()[:2]:
            run("bash", "-ec", line, cwd=ROOT, env={**os.environ, **({"DEB_BUILD_OPTIONS": "noopt"} if short else {})})
    return DIST


@pytest.fixture(scope="session")
def bare():
    """A Debian 12 as mmdebstrap makes it: essential packages and apt."""
    if os.getuid() != 0:
        pytest.skip("a bare tree needs root")
    if not BARE.exists():
        run(ROOT / "scripts/image", "--bare", BARE)
    return BARE


@pytest.fixture
def tree(bare, tmp_path):
    tmp_path.chmod(0o755)
    made = Tree(tmp_path / "tree", bare)
    yield made
    made.close()
