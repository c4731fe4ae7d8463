"""Attacks: what a hostile agent, or a stranger who reaches the port, tries against a real gateway. The
kits, fixtures and hygiene are those of tests/blackbox."""
import importlib.util
import sys
from pathlib import Path

BLACKBOX = Path(__file__).resolve().parents[1] / "blackbox"
sys.path.insert(0, str(BLACKBOX))

_spec = importlib.util.spec_from_file_location("blackbox_fixtures", BLACKBOX / "conftest.py")
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)
start, stub, shared = _fixtures.start, _fixtures.stub, _fixtures.shared
hygiene, hygiene_of_file = _fixtures.hygiene, _fixtures.hygiene_of_file
pytest_collection_finish, pytest_configure = _fixtures.pytest_collection_finish, _fixtures.pytest_configure
