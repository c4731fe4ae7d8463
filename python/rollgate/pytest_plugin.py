"""Fixtures of pytest, found by it where the package is installed (else: pytest_plugins = ["rollgate.pytest_plugin"]).

    @pytest.mark.rollgate(tool_parser="hermes")         # settings of the gateway; without it the defaults
    def test_agent(rollgate_engine, rollgate_gateway):
        rollgate_engine.answers = ["Hello."]
        assert run_agent(rollgate_gateway.client.create_session()) == "Hello."
"""
from __future__ import annotations

from typing import Any, Generator, Iterator

import pytest

from .testing import Gateway, ScriptedEngine, find_binary

SHOWN = 20      # lines of the log in the report of a failed test


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rollgate(**settings): settings of the gateway that rollgate_gateway starts")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Adds the gateway's warnings and the end of its log to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    gateway = getattr(item, "funcargs", {}).get("rollgate_gateway")
    if report.failed and call.when == "call" and isinstance(gateway, Gateway):
        lines = gateway.log().splitlines()
        report.sections.append(("rollgate: warnings and errors", "\n".join(gateway.errors()) or "none"))
        report.sections.append(("rollgate: end of the log", "\n".join(lines[-SHOWN:])))


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("rollgate")
    if marker and marker.args:
        raise pytest.UsageError(f"the marker rollgate takes settings by name, not {', '.join(map(repr, marker.args))}")
    return dict(marker.kwargs) if marker else {}


@pytest.fixture
def rollgate_engine(request: pytest.FixtureRequest) -> Iterator[ScriptedEngine]:
    """A scripted engine without answers. The test sets them."""
    with ScriptedEngine(binary=find_binary(), model=_settings(request).get("model")) as engine:
        yield engine


@pytest.fixture
def rollgate_gateway(request: pytest.FixtureRequest, rollgate_engine: ScriptedEngine) -> Iterator[Gateway]:
    """A gateway for this test, with that engine unless the marker names a different one. It must end with status 0."""
    settings = _settings(request)
    with Gateway(settings.pop("engine", rollgate_engine), **settings) as gateway:
        yield gateway
