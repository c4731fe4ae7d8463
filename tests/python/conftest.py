"""The Python package against real gateways: the black-box tests' fixtures and hygiene (every gateway ends, no error
lines, no descriptors left), and the package on the path. rollgate.* is imported from python/, not from an installation."""
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/blackbox")]

spec = importlib.util.spec_from_file_location("blackbox_conftest", ROOT / "tests/blackbox/conftest.py")
blackbox = importlib.util.module_from_spec(spec)
spec.loader.exec_module(blackbox)
hygiene, hygiene_of_file, start = blackbox.hygiene, blackbox.hygiene_of_file, blackbox.start
pytest_collection_finish = blackbox.pytest_collection_finish


def pytest_configure(config):
    blackbox.pytest_configure(config)


@pytest.hookimpl(tryfirst=True)  # before -m
def pytest_collection_modifyitems(items):
    """The longest files first: mypy's, wheel's and matplotlib's."""
    blackbox.mark_whole(items)
    long = ["test_types", "test_package", "test_tiny"]
    items.sort(key=lambda item: long.index(item.module.__name__) if item.module.__name__ in long else len(long))
