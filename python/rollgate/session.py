"""A session as its creator has it: what the gateway answered (`s["session_id"]`, `s["base_url"]` ...), its calls, and ready clients.

    with gateway.create_session(labels={"task": "42"}) as s:
        agent(s.openai())                       # or s.anthropic(), s.env, s.chat(messages)
        s.reward(1.0)
    export = s.finalize()
"""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from .errors import Ended, RollgateError

if TYPE_CHECKING:
    import anthropic
    import openai

    from .aio import AsyncClient
    from .answers import SessionState
    from .client import Client
    from .signatures import AsyncSessionCalls, Reward, SyncSessionCalls
else:
    SyncSessionCalls = AsyncSessionCalls = object


def environment(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the environment of a child process that calls a model: addresses and key, by the names that OpenAI's
    and Anthropic's SDKs read."""
    key = fields.get("api_key") or "none"
    return {"OPENAI_BASE_URL": fields["base_url"], "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": fields["anthropic_base_url"], "ANTHROPIC_API_KEY": key}


def openai_client(fields: Mapping[str, Any], wait: bool, options: Mapping[str, Any]) -> Any:
    """Makes OpenAI (or AsyncOpenAI unless `wait`) for the session's calls. Needs the package `openai`."""
    import openai
    kind = openai.OpenAI if wait else openai.AsyncOpenAI
    return kind(**{"base_url": fields["base_url"], "api_key": fields.get("api_key") or "none", **options})


def anthropic_client(fields: Mapping[str, Any], wait: bool, options: Mapping[str, Any]) -> Any:
    """Makes Anthropic (or AsyncAnthropic unless `wait`) for the session's calls. Needs the package `anthropic`."""
    import anthropic
    kind = anthropic.Anthropic if wait else anthropic.AsyncAnthropic
    return kind(**{"base_url": fields["anthropic_base_url"], "api_key": fields.get("api_key") or "none", **options})


class _Fields(dict[str, Any]):
    """The gateway's answer, and the client that requested it."""

    def __init__(self, fields: Mapping[str, Any], client: Any):
        super().__init__(fields)
        self._client = client

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self._client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    @property
    def id(self) -> str:
        return str(self["session_id"])

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI's SDKs."""
        return str(self["base_url"])

    @property
    def anthropic_base_url(self) -> str:
        return str(self["anthropic_base_url"])

    @property
    def api_key(self) -> str:
        """The agent's key; `none` if the gateway has no keys."""
        return str(self.get("api_key") or "none")

    @property
    def env(self) -> dict[str, str]:
        return environment(self)


class Session(_Fields, SyncSessionCalls):
    """The result of Client.create_session. As a context manager it completes the session, or aborts it if the block
    raises an exception. A session that has ended before is unchanged."""

    _client: "Client"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]) -> None:
        try:
            if error is None:
                self.complete()
            else:
                self.abort(reason=f"{type(error).__name__}: {error}"[:200])
        except Ended:
            pass
        except RollgateError:
            if error is None:
                raise

    def openai(self, **options: Any) -> "openai.OpenAI":
        """Makes openai.OpenAI for this session. Options are those of OpenAI."""
        client: "openai.OpenAI" = openai_client(self, True, options)
        return client

    def anthropic(self, **options: Any) -> "anthropic.Anthropic":
        """Makes anthropic.Anthropic for this session. Options are those of Anthropic."""
        client: "anthropic.Anthropic" = anthropic_client(self, True, options)
        return client

    if not TYPE_CHECKING:       # signatures.py has their options by name
        def chat(self, messages: Sequence[Mapping[str, Any]], **body: Any) -> dict[str, Any]:
            """Like Client.chat, with the agent's key."""
            return self._client.chat(self.id, messages, key=self.get("api_key"), **body)

        def trajectories(self, **options: Any) -> Any:
            """Like Client.trajectories, as msgpack: an Export."""
            return self._client.trajectories(self.id, **options)

        def finalize(self, **options: Any) -> Any:
            """Like Client.finalize, as msgpack: an Export."""
            return self._client.finalize(self.id, **options)

    def state(self, records: bool = False) -> "SessionState":
        """Like Client.session."""
        return self._client.session(self.id, records)

    def reward(self, reward_info: "Reward", response_id: Optional[str] = None) -> dict[str, Any]:
        """Like Client.reward."""
        return self._client.reward(self.id, reward_info, response_id)

    def complete(self, reward_info: Optional["Reward"] = None, finished: Optional[bool] = None, reason: Optional[str] = None,
                 stopped_by: Optional[str] = None) -> dict[str, Any]:
        """Like Client.complete."""
        return self._client.complete(self.id, reward_info, finished, reason, stopped_by)

    def wait(self, timeout_s: Optional[float] = None) -> Optional["SessionState"]:
        """Like Client.wait."""
        return self._client.wait(self.id, timeout_s)

    def abort(self, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> None:
        """Like Client.abort."""
        self._client.abort(self.id, stopped_by, reason)

    def delete(self) -> None:
        """Like Client.delete."""
        self._client.delete(self.id)


class AsyncSession(_Fields, AsyncSessionCalls):
    """The result of AsyncClient.create_session: like Session, with coroutines and the SDKs' asynchronous clients."""

    _client: "AsyncClient"

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        where: Optional[TracebackType]) -> None:
        try:
            if error is None:
                await self.complete()
            else:
                await self.abort(reason=f"{type(error).__name__}: {error}"[:200])
        except Ended:
            pass
        except RollgateError:
            if error is None:
                raise

    def openai(self, **options: Any) -> "openai.AsyncOpenAI":
        """Makes openai.AsyncOpenAI for this session. Options are those of AsyncOpenAI."""
        client: "openai.AsyncOpenAI" = openai_client(self, False, options)
        return client

    def anthropic(self, **options: Any) -> "anthropic.AsyncAnthropic":
        """Makes anthropic.AsyncAnthropic for this session. Options are those of AsyncAnthropic."""
        client: "anthropic.AsyncAnthropic" = anthropic_client(self, False, options)
        return client

    if not TYPE_CHECKING:       # signatures.py has their options by name
        async def chat(self, messages: Sequence[Mapping[str, Any]], **body: Any) -> dict[str, Any]:
            """Like Client.chat, with the agent's key."""
            return await self._client.chat(self.id, messages, key=self.get("api_key"), **body)

        async def trajectories(self, **options: Any) -> Any:
            """Like Client.trajectories, as msgpack: an Export."""
            return await self._client.trajectories(self.id, **options)

        async def finalize(self, **options: Any) -> Any:
            """Like Client.finalize, as msgpack: an Export."""
            return await self._client.finalize(self.id, **options)

    async def state(self, records: bool = False) -> "SessionState":
        """Like Client.session."""
        return await self._client.session(self.id, records)

    async def reward(self, reward_info: "Reward", response_id: Optional[str] = None) -> dict[str, Any]:
        """Like Client.reward."""
        return await self._client.reward(self.id, reward_info, response_id)

    async def complete(self, reward_info: Optional["Reward"] = None, finished: Optional[bool] = None, reason: Optional[str] = None,
                 stopped_by: Optional[str] = None) -> dict[str, Any]:
        """Like Client.complete."""
        return await self._client.complete(self.id, reward_info, finished, reason, stopped_by)

    async def wait(self, timeout_s: Optional[float] = None) -> Optional["SessionState"]:
        """Like Client.wait."""
        return await self._client.wait(self.id, timeout_s)

    async def abort(self, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> None:
        """Like Client.abort."""
        await self._client.abort(self.id, stopped_by, reason)

    async def delete(self) -> None:
        """Like Client.delete."""
        await self._client.delete(self.id)
