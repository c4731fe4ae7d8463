"""Every call of the gateway, once: `Client` sends them and gives the value, `AsyncClient` gives an awaitable
of it. Fields that a method does not name go as keywords, spelt as in docs/http.md; the gateway refuses
what it does not know, by name.
"""
from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Iterable, NamedTuple, Optional
from urllib.parse import quote, urlencode

from . import records
from .errors import Unreachable

POLL_S = 30.0       # one long poll; a wait is made of as many as it needs
REPORT_BYTES = 512 << 10    # of one request with a trainer's logprobs: half of what the gateway takes by default


class Call(NamedTuple):
    """One request and how its answer is read."""

    method: str
    path: str
    body: Optional[bytes] = None
    read: Callable[[int, Mapping[str, str], bytes], Any] = lambda status, headers, body: None
    wait_s: float = 0.0         # the gateway may take so long on purpose
    repeatable: bool = True     # sent again when its answer was lost; asked twice, it does the same
    key: Optional[str] = None   # instead of the client's
    once: Optional[str] = None  # the same on every try: by it the gateway knows that they are one request


def read_json(status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """The JSON of an answer; None of an empty one (204)."""
    return json.loads(body) if body else None


def read_text(status: int, headers: Mapping[str, str], body: bytes) -> str:
    return body.decode()


def read_bytes(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    return body


def read_nothing(status: int, headers: Mapping[str, str], body: bytes) -> None:
    return None


def query(path: str, **parameters: Any) -> str:
    """The path with those parameters that are not None."""
    def text(v: Any) -> Any:
        if isinstance(v, bool):
            return "true" if v else "false"
        return int(v) if isinstance(v, float) and v.is_integer() else v
    given = {k: text(v) for k, v in parameters.items() if v is not None}
    return f"{path}?{urlencode(given)}" if given else path


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def plain(value: Any, where: str = "value") -> Any:
    """The value as JSON has it: tensors and arrays as lists, numpy's scalars as numbers, a configuration's own kinds of mappings
    and lists as such. TypeError or ValueError names what has
    no such form, by its place below `where`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot write")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} is a text that UTF-8 cannot write: {value!r:.80}") from None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), where)
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot write: {value!r:.80}")


def reported_turns(trajectory: Mapping[str, Any], logprobs: Any) -> list[dict[str, Any]]:
    """The turns of POST /sessions/{id}/logprobs: a trajectory's, with their part of `logprobs`, one for each response id. Turns
    without a number are left out."""
    values = logprobs.tolist() if hasattr(logprobs, "tolist") else list(logprobs)
    ids = trajectory["response_ids"]
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(values) != len(ids):
        raise ValueError(f"{len(values)} logprobs for {len(ids)} response ids")
    values = [None if v is None or v != v else float(f"{v:.9g}") for v in values]   # all of a float32
    parts = [(t["response_id"], slice(t["start"], t["end"])) for t in trajectory["turns"]]
    return [{"response_id": name, "ids": ids[part], "logprobs": values[part]} for name, part in parts
            if any(v is not None for v in values[part])]


def report_bodies(version: Any, turns: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The bodies of POST /sessions/{id}/logprobs, each of whole turns: at most REPORT_BYTES, or one turn."""
    head = encode({"version": plain(version, "version"), "turns": []}).removesuffix(b"]}")
    batches: list[list[bytes]] = [[]]
    size = 0
    for turn in turns:
        text = encode(turn)
        if batches[-1] and size + len(text) > REPORT_BYTES - len(head) - 2:
            batches.append([])
            size = 0
        batches[-1].append(text)
        size += len(text) + 1
    return [head + b",".join(batch) + b"]}" for batch in batches]


def merge_reports(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One answer of those to report_bodies: sums, means over all tokens, and the largest p99 and max."""
    if len(answers) == 1:
        return dict(answers[0])
    compared = [a for a in answers if a["tokens"]]
    tokens = sum(a["tokens"] for a in compared)
    means = {k: sum(a[k] * a["tokens"] for a in compared) / tokens if tokens else None for k in ("mean", "mean_abs")}
    most = {k: max((a[k] for a in compared), default=None) for k in ("p99", "max")}
    return {**answers[0], "turns": sum(a["turns"] for a in answers), "tokens": tokens, **means, **most}


def known(**fields: Any) -> dict[str, Any]:
    """Those that are not None: what is not given keeps the gateway's default."""
    return {k: v for k, v in fields.items() if v is not None}


def _session(session_id: str, tail: str = "") -> str:
    return f"/sessions/{quote(session_id, safe='')}{tail}"


def _group(group_id: str, tail: str = "") -> str:
    return f"/groups/{quote(group_id, safe='')}{tail}"


def _queue(name: str, tail: str = "") -> str:
    return f"/queues/{quote(name, safe='')}{tail}"


def next_cursor(page: Mapping[str, Any]) -> Optional[str]:
    """Where the next page of sessions begins, or None. Unreachable if a worker's or a peer's sessions are missing from this one."""
    missing = page.get("unreachable") or []
    workers = [m for m in missing if not isinstance(m, str)]
    if workers:
        raise Unreachable(f"the list is not whole: workers {workers} did not answer", retry=True)
    if missing:
        raise Unreachable(f"the list has one node's sessions only: ask the peers {missing} for theirs, by list_sessions")
    return page.get("next_cursor")


class Calls:
    """The methods of both clients. Each raises the class of errors.py that the gateway's answer names."""

    def send(self, call: Call) -> Any:
        raise NotImplementedError

    def _send_each(self, calls: Sequence[Call], merge: Callable[[list[Any]], Any]) -> Any:
        """Sends them one after the other, and merges their values."""
        raise NotImplementedError

    def _post(self, path: str, body: Mapping[str, Any], read: Callable[..., Any] = read_json, **more: Any) -> Any:
        return self.send(Call("POST", path, encode(body), read, **more))

    def _get(self, path: str, read: Callable[..., Any] = read_json, **more: Any) -> Any:
        return self.send(Call("GET", path, None, read, **more))

    def _as_session(self, fields: Mapping[str, Any]) -> Any:
        """The session with its calls (session.py)."""
        raise NotImplementedError

    def _read_session(self, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        fields = json.loads(body)
        if not isinstance(fields, dict):
            raise ValueError(f"a session is an object, not {body[:80]!r}")
        if "sessions" in fields:
            return {**fields, "sessions": [self._as_session(one) for one in fields["sessions"]]}
        return self._as_session(fields)

    # --- sessions ---

    def create_session(self, **options: Any) -> Any:
        """A Session (AsyncSession): a mapping of session_id, base_url, api_key, runner_key ... with the calls of session.py. With
        count=n: {"sessions": [n of them]}, one group. When the answer is lost the request is not sent again: that would make a second session."""
        return self._post("/sessions", options, self._read_session, repeatable=False)

    def session(self, session_id: str, records: bool = False) -> Any:
        """Its state; with records every call's request, ids and answer."""
        return self._get(query(_session(session_id), records="1" if records else None))

    def stats(self, start: Optional[float] = None, end: Optional[float] = None, step: Optional[int] = None, by: Optional[str] = None) -> Any:
        """The figures of the run (docs/run.md): of sessions that ended from `start` to `end` (unix seconds), in points of `step`
        seconds. by: "task", "model" or "version" adds rows."""
        return self._get(query("/stats", **known(**{"from": start, "to": end, "step": step, "by": by})))

    def list_sessions(self, *, phase: Optional[str] = None, label: Optional[str] = None, limit: Optional[int] = None,
                      cursor: Optional[str] = None, reseeded: Optional[bool] = None, archived: Optional[bool] = None) -> Any:
        """One page: {"sessions": [...], "next_cursor", "unreachable": [indexes of workers, and peers, that are missing]}.
        archived=False: without finalized sessions that have left memory."""
        return self._get(query("/sessions", phase=phase, label=label, limit=limit, cursor=cursor, reseeded=reseeded,
                               archived=archived))

    def reward(self, session_id: str, reward_info: Any, response_id: Optional[str] = None, *, key: Optional[str] = None) -> Any:
        """Posts a reward: a number, or an object whose `reward` is one. With response_id it is that turn's.
        key: the session's runner_key, for who has no admin key."""
        return self._post(_session(session_id, "/reward_info"),
                          known(reward_info=reward_object(reward_info), response_id=response_id), key=key)

    def report_logprobs(self, trajectory: Mapping[str, Any], logprobs: Any, version: Any, session_id: Optional[str] = None) -> Any:
        """Reports the trainer's own logprobs of a trajectory's response ids (NaN: not computed) under the weights `version`. The
        gateway compares them with the sampler's, turn by turn: {"turns", "tokens", "mean", "mean_abs", "p99", "max"}. A long
        trajectory takes several requests; p99 is then the largest of theirs."""
        path = _session(session_id or trajectory["session_id"], "/logprobs")
        bodies = report_bodies(version, reported_turns(trajectory, logprobs))
        return self._send_each([Call("POST", path, body, read_json) for body in bodies], merge_reports)

    def complete(self, session_id: str, reward_info: Any = None, finished: Optional[bool] = None,
                 reason: Optional[str] = None, stopped_by: Optional[str] = None, *, key: Optional[str] = None) -> Any:
        """The agent is done: wakes those that wait. stopped_by: "model", "budget", "agent", "trainer" or "infrastructure"."""
        info = None if reward_info is None else reward_object(reward_info)
        body = known(reward_info=info, finished=finished, reason=reason, stopped_by=stopped_by)
        return self._post(_session(session_id, "/complete"), body, key=key)

    def wait_once(self, session_id: str, timeout_s: float = POLL_S) -> Any:
        """One long poll: the state once the session is over, None after timeout_s."""
        return self._get(query(_session(session_id, "/wait"), timeout_s=timeout_s), wait_s=timeout_s)

    def trajectories(self, session_id: str, format: str = "msgpack", *, raw: bool = False, **options: Any) -> Any:
        """A look without closing: as finalize."""
        options = {k: ("on" if v is True else "off" if v is False else v) for k, v in options.items()}
        read = read_bytes if raw else records.reader(format)
        return self._get(query(_session(session_id, "/trajectories"), format=format, **options), read)

    def finalize(self, session_id: str, format: str = "msgpack", *, raw: bool = False, **options: Any) -> Any:
        """Closes the session and gives its export: `msgpack`, `safetensors`, `json`: a records.Export of trajectories;
        `verl`, `miles`, `areal`, `prefix-tree`: a records.Tensors; `slime`, `prime-rl`, `skyrl`, `nemo-gym`, `atif`,
        `none`: a dict; `openai-messages`: a list of dicts. raw: the bytes. Asked again, it answers the same."""
        read = read_bytes if raw else records.reader(format)
        return self._post(_session(session_id, "/finalize"), {"format": format, **options}, read)

    def samples(self, session_id: str, max_seq_len: Optional[int] = None, metadata: Optional[dict[str, Any]] = None) -> Any:
        """POST /samples: a records.Tensors in miles' layout."""
        return self._post(_session(session_id, "/samples"), known(max_seq_len=max_seq_len, metadata=metadata),
                          records.reader("miles"))

    def abort(self, session_id: str, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> Any:
        """Ends the session and its running calls; fine when it has ended. stopped_by ("infrastructure" ...) is for
        stop_reason."""
        return self._post(_session(session_id, "/abort"), known(stopped_by=stopped_by, reason=reason), read_nothing)

    def abort_all(self, labels: Mapping[str, Any], stopped_by: Optional[str] = None, reason: Optional[str] = None) -> Any:
        """The same of all sessions that have these labels: {"ended", "failed", "unreachable": [peers, not asked]}."""
        return self._post("/sessions/abort", known(labels=dict(labels), stopped_by=stopped_by, reason=reason))

    def finalize_all(self, labels: Mapping[str, Any]) -> Any:
        """Closes all sessions that have these labels; the sinks get their exports. Answers as abort_all."""
        return self._post("/sessions/finalize", {"labels": dict(labels)})

    def snapshot(self, session_id: str) -> Any:
        """The whole session, for `import_session` of any gateway with the same tokenizer."""
        return self._get(_session(session_id, "/snapshot"))

    def import_session(self, snapshot: Mapping[str, Any]) -> Any:
        """A new session that goes on from a snapshot, token-exact: as create_session, and imported_from."""
        return self._post("/sessions/import", dict(snapshot), self._read_session, repeatable=False)

    def fork(self, session_id: str, response_id: Optional[str] = None, **options: Any) -> Any:
        """A new session that goes on from that answer (default: the newest), token-exact: as create_session, and forked_from.
        Options: train_prefix, labels, metadata, sampling_params."""
        return self._post(_session(session_id, "/fork"), known(response_id=response_id, **options), self._read_session,
                          repeatable=False)

    def delete(self, session_id: str) -> Any:
        """Ends and forgets the session."""
        return self.send(Call("DELETE", _session(session_id), None, read_nothing))

    def chat(self, session_id: str, messages: Sequence[Mapping[str, Any]], *, key: Optional[str] = None, timeout_s: float = 600.0,
             **body: Any) -> Any:
        """One model call of the session (Chat Completions, not streamed): the answer's JSON. When that was
        lost it is asked for again by the same Idempotency-Key: the gateway gives what it has recorded for this call, or samples
        if it has nothing. key: the session's api_key. ValueError: stream=True, whose events this client does not read."""
        if body.get("stream"):
            raise ValueError("chat does not stream: leave out stream, or use an SDK with the session's base_url and api_key")
        return self._post(_session(session_id, "/v1/chat/completions"), {"model": "policy", "messages": list(messages), **body},
                          key=key, wait_s=timeout_s, once=uuid.uuid4().hex)

    # --- groups of rollouts ---

    def submit(self, groups: Sequence[Mapping[str, Any]], defaults: Optional[Mapping[str, Any]] = None) -> Any:
        """All of the groups or none: {"groups": [{"id", "state", "created"}]}. Sent again only when all have ids."""
        body = {"groups": list(groups), **known(defaults=defaults)}
        return self._post("/groups", body, repeatable=all(g.get("id") for g in body["groups"]))

    def put_group(self, group_id: str, **group: Any) -> Any:
        """Makes the group, or finds it when the same is there; GroupExists when it differs."""
        return self.send(Call("PUT", _group(group_id), encode(group), read_json))

    def group(self, group_id: str) -> Any:
        """Its result so far."""
        return self._get(_group(group_id))

    def list_groups(self, *, queue: Optional[str] = None, state: Optional[str] = None, label: Optional[str] = None,
                    limit: Optional[int] = None, cursor: Optional[str] = None) -> Any:
        """One page: {"groups": [...], "next_cursor", "unreachable": [peers whose groups are missing]}."""
        return self._get(query("/groups", queue=queue, state=state, label=label, limit=limit, cursor=cursor))

    def wait_group_once(self, group_id: str, timeout_s: float = POLL_S) -> Any:
        """One long poll: the result once the group has settled, None after timeout_s."""
        return self._get(query(_group(group_id, "/wait"), timeout_s=int(timeout_s)), wait_s=timeout_s)

    def cancel_group(self, group_id: str, deliver: bool = False) -> Any:
        """{"cancelled": [ids]}. Its agents' calls end with 410. deliver: it goes to its queue as cancelled."""
        return self._post(_group(group_id, "/cancel"), {"deliver": deliver})

    # --- queues ---

    def queue(self, name: str) -> Any:
        """Counts: waiting, running, rollouts_running, settled, taken, acked_total, oldest_s, blocked."""
        return self._get(_queue(name))

    def next(self, queue_name: str, max: int = 1, wait_s: float = 0, *, lease_s: Optional[float] = None,
             order: Optional[str] = None, states: Optional[Sequence[str]] = None) -> Any:
        """{"groups": [results], "queue": counts}: settled groups, leased for lease_s; they come again unless
        they are acknowledged by then. Repeated when its answer was lost; the lost groups come after their lease."""
        return self._get(query(_queue(queue_name, "/next"), max=max, wait_s=wait_s, lease_s=lease_s, order=order,
                               states=",".join(states) if states else None), wait_s=wait_s)

    def ack(self, queue_name: str, groups: Sequence[str]) -> Any:
        """Trained (after the checkpoint that holds the step): {"acked": n}."""
        return self._post(_queue(queue_name, "/ack"), {"groups": list(groups)})

    def give_back(self, queue_name: str, groups: Sequence[str]) -> Any:
        """Not trained: they may be taken again at once. {"returned": n}."""
        return self._post(_queue(queue_name, "/return"), {"groups": list(groups)})

    def cancel_queue(self, queue_name: str, *, states: Optional[Sequence[str]] = None, version_below: Optional[int] = None,
                     labels: Optional[Mapping[str, Any]] = None, deliver: bool = False) -> Any:
        """{"cancelled": [ids]}: what waits or runs (states: waiting, running, settled), perhaps only what is older."""
        return self._post(_queue(queue_name, "/cancel"),
                          known(states=states, version_below=version_below, labels=labels, deliver=deliver))

    # --- attempts (an executor's key) ---

    def claim(self, executor: str, slots: Mapping[str, int], wait_s: float = 0) -> Any:
        """{"attempts": [...]}, perhaps none. What a lost answer gave runs out with its lease."""
        return self._post("/attempts/claim", {"executor": executor, "slots": slots, "wait_s": wait_s}, wait_s=wait_s)

    def renew(self, executor: str, attempts: Sequence[str], wait_s: float = 0) -> Any:
        """{"kill": [{"attempt_id", "reason"}]}: at once when there is one, else after wait_s."""
        return self._post("/attempts/renew", {"executor": executor, "attempts": list(attempts), "wait_s": wait_s}, wait_s=wait_s)

    def end_attempt(self, attempt_id: str, executor: str, outcome: str, **fields: Any) -> Any:
        """{"rollout": "succeeded" | "retry" | "failed"}; AttemptEnded when it was lost or cancelled."""
        return self._post(f"/attempts/{quote(attempt_id, safe='')}/end",
                          {"executor": executor, "outcome": outcome, **known(**fields)})

    # --- the gateway ---

    def health(self) -> Any:
        """{"status": ...}; Draining while it stops."""
        return self._get("/health")

    def ready(self) -> Any:
        """Raises, with the reason, unless every worker serves and an engine answers."""
        return self._get("/ready")

    def metrics(self) -> Any:
        """{"rollgate_name{labels}": value}."""
        return self._get("/metrics", lambda status, headers, body: parse_metrics(body.decode()))

    def engines(self) -> Any:
        """{"edition", "engines": [{"name", "kind", "engine", "state", "inflight", ...}]}, as one worker sees them."""
        return self._get("/admin/engines")

    def set_engines(self, engines: Iterable[str], *, probe: bool = True, timeout_s: float = 0) -> Any:
        """From now on these are the engines, each as --engine takes it: "NAME=KIND:URL". {"edition", "added", "removed",
        "drained", "engines"}. New ones have to answer unless probe is False; waits up to timeout_s for removed ones to
        end what they run."""
        return self._engines("PUT", engines, probe=probe, timeout_s=timeout_s)

    def add_engines(self, engines: Iterable[str], *, probe: bool = True) -> Any:
        """These as well."""
        return self._engines("POST", engines, probe=probe)

    def remove_engines(self, names: Iterable[str], *, timeout_s: float = 0) -> Any:
        """These no longer: names, as engines() tells them; NotFound when there is no such engine."""
        return self._engines("DELETE", names, timeout_s=timeout_s)

    def _engines(self, method: str, engines: Iterable[str], **options: Any) -> Any:
        body = encode({"engines": list(engines), **options})
        return self.send(Call(method, "/admin/engines", body, read_json, wait_s=30 + options.get("timeout_s", 0),
                              repeatable=method != "DELETE"))

    def weight_version(self, version: Any, *, engines: bool = False) -> Any:
        """The version of later answers whose engine tells none: an integer from 0, a name, or None. With `engines` they
        are told as well, and the answer's `engines` says which were not, and why."""
        if not engines:
            return self._post("/admin/weight_version", {"version": version})
        return self._post("/admin/weight_version", {"version": version, "engines": True}, wait_s=60)

    def adapters(self) -> Any:
        """The LoRA adapters whose version was told."""
        return self._get("/admin/adapters")

    def adapter_version(self, name: str, version: Any) -> Any:
        """The version of a LoRA adapter's weights, for sessions with `adapter`: an integer from 0, a name, or None."""
        return self._post("/admin/adapters", {"name": name, "version": version})

    def pause(self, mode: str = "drain", timeout_s: Optional[float] = None) -> Any:
        """No new engine calls; agents wait. `drain` returns when those that run have ended, `hold` at once."""
        return self._post("/admin/pause", known(mode=mode, timeout_s=timeout_s), wait_s=300 if timeout_s is None else timeout_s)

    def resume(self) -> Any:
        """Ends the pause."""
        return self._post("/admin/resume", {})


def reward_object(reward: Any) -> dict[str, Any]:
    """reward_info of what a scorer gives: a number, or a mapping. Anything else is a TypeError; a value in it that JSON cannot
    write is one as well, or a ValueError, and named."""
    told: dict[str, Any]
    if isinstance(reward, Mapping):
        told = plain(reward, "reward_info")
        return told
    if isinstance(reward, (bool, int, float)) or hasattr(reward, "__float__"):
        told = plain({"reward": float(reward)}, "reward_info")
        return told
    raise TypeError(f"a reward is a number or a mapping, not {type(reward).__name__}: {reward!r:.80}")


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text as {name{labels}: value}."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}
