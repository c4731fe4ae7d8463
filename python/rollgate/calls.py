"""Every call of the gateway. `Client` returns the value, `AsyncClient` an awaitable of it. Fields that a method does
not name are keyword arguments, spelt as in docs/http.md. The gateway rejects unknown fields by name."""
from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Iterable, NamedTuple, Optional
from urllib.parse import quote, urlencode

from . import records
from .errors import Unreachable

POLL_S = 30.0       # seconds of one long poll; a wait sends as many as it needs
REPORT_BYTES = 512 << 10    # bytes of one report of logprobs: half of what the gateway accepts by default


class Call(NamedTuple):
    """One request, and the function that reads its answer."""

    method: str
    path: str
    body: Optional[bytes] = None
    read: Callable[[int, Mapping[str, str], bytes], Any] = lambda status, headers, body: None
    wait_s: float = 0.0         # seconds that the gateway may wait on purpose
    repeatable: bool = True     # sent again after a lost answer, because a second request does the same
    key: Optional[str] = None   # replaces the client's
    once: Optional[str] = None  # the same at every attempt, so that the gateway recognizes a repeated request


def read_json(status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """Returns the JSON of an answer, or None for an empty one (204)."""
    return json.loads(body) if body else None


def read_text(status: int, headers: Mapping[str, str], body: bytes) -> str:
    return body.decode()


def read_bytes(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    return body


def read_nothing(status: int, headers: Mapping[str, str], body: bytes) -> None:
    return None


def query(path: str, **parameters: Any) -> str:
    """Returns the path with those parameters that are not None."""
    def text(v: Any) -> Any:
        if isinstance(v, bool):
            return "true" if v else "false"
        return int(v) if isinstance(v, float) and v.is_integer() else v
    given = {k: text(v) for k, v in parameters.items() if v is not None}
    return f"{path}?{urlencode(given)}" if given else path


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def plain(value: Any, where: str = "value") -> Any:
    """Converts a value to JSON types: tensors and arrays to lists, numpy's scalars to numbers, mappings and lists of
    configurations to dicts and lists. Raises TypeError or ValueError that names a value without such a form, by its
    path below `where`."""
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
    """Returns the turns of POST /sessions/{id}/logprobs: a trajectory's turns with their slices of `logprobs`, which
    has one number for each response id. Turns without a number are left out."""
    values = logprobs.tolist() if hasattr(logprobs, "tolist") else list(logprobs)
    ids = trajectory["response_ids"]
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(values) != len(ids):
        raise ValueError(f"{len(values)} logprobs for {len(ids)} response ids")
    values = [None if v is None or v != v else float(f"{v:.9g}") for v in values]   # keeps every bit of a float32
    parts = [(t["response_id"], slice(t["start"], t["end"])) for t in trajectory["turns"]]
    return [{"response_id": name, "ids": ids[part], "logprobs": values[part]} for name, part in parts
            if any(v is not None for v in values[part])]


def report_bodies(version: Any, turns: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Splits turns into bodies of POST /sessions/{id}/logprobs: whole turns, at most REPORT_BYTES or one turn."""
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
    """Merges the answers to report_bodies: sums, means over all tokens, and the largest p99 and max."""
    if len(answers) == 1:
        return dict(answers[0])
    compared = [a for a in answers if a["tokens"]]
    tokens = sum(a["tokens"] for a in compared)
    means = {k: sum(a[k] * a["tokens"] for a in compared) / tokens if tokens else None for k in ("mean", "mean_abs")}
    most = {k: max((a[k] for a in compared), default=None) for k in ("p99", "max")}
    return {**answers[0], "turns": sum(a["turns"] for a in answers), "tokens": tokens, **means, **most}


def known(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None. All others keep the gateway's default."""
    return {k: v for k, v in fields.items() if v is not None}


def _session(session_id: str, tail: str = "") -> str:
    return f"/sessions/{quote(session_id, safe='')}{tail}"


def _group(group_id: str, tail: str = "") -> str:
    return f"/groups/{quote(group_id, safe='')}{tail}"


def _queue(name: str, tail: str = "") -> str:
    return f"/queues/{quote(name, safe='')}{tail}"


def next_cursor(page: Mapping[str, Any]) -> Optional[str]:
    """Returns the cursor of the next page of sessions, or None. Raises Unreachable if the page lacks sessions of a
    worker, a node or a peer."""
    missing = page.get("unreachable") or []
    silent = [m for m in missing if not isinstance(m, str) or "=" not in m]
    if silent:
        raise Unreachable(f"the list is not whole: workers or nodes {silent} did not answer", retry=True)
    if missing:
        raise Unreachable(f"the list has one node's sessions only: ask the peers {missing} for theirs, by list_sessions")
    return page.get("next_cursor")


class Calls:
    """The methods of both clients. Each raises the class of errors.py for the error that the gateway returns."""

    def send(self, call: Call) -> Any:
        raise NotImplementedError

    def _send_each(self, calls: Sequence[Call], merge: Callable[[list[Any]], Any]) -> Any:
        """Sends calls one after the other, and merges their values."""
        raise NotImplementedError

    def _post(self, path: str, body: Mapping[str, Any], read: Callable[..., Any] = read_json, **more: Any) -> Any:
        return self.send(Call("POST", path, encode(body), read, **more))

    def _get(self, path: str, read: Callable[..., Any] = read_json, **more: Any) -> Any:
        return self.send(Call("GET", path, None, read, **more))

    def _as_session(self, fields: Mapping[str, Any]) -> Any:
        """Makes the session object of the answer (session.py)."""
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
        """Creates a session. Returns a Session (AsyncSession): a mapping of session_id, base_url, api_key, runner_key
        ... with the methods of session.py. count=n: returns {"sessions": [n of them]}, one group. A lost answer is
        not requested again, because that would create a second session."""
        return self._post("/sessions", options, self._read_session, repeatable=False)

    def session(self, session_id: str, records: bool = False) -> Any:
        """Returns the session's state. records: with the request, ids and answer of every call."""
        return self._get(query(_session(session_id), records="1" if records else None))

    def stats(self, start: Optional[float] = None, end: Optional[float] = None, step: Optional[int] = None, by: Optional[str] = None) -> Any:
        """Returns the figures of the run (docs/run.md): of sessions that ended from `start` to `end` (Unix seconds),
        in points of `step` seconds. by: "task", "model" or "version" adds rows."""
        return self._get(query("/stats", **known(**{"from": start, "to": end, "step": step, "by": by})))

    def list_sessions(self, *, phase: Optional[str] = None, label: Optional[str] = None, limit: Optional[int] = None,
                      cursor: Optional[str] = None, reseeded: Optional[bool] = None, archived: Optional[bool] = None,
                      here: Optional[bool] = None) -> Any:
        """Returns one page: {"sessions": [...], "next_cursor", "unreachable": [indexes of missing workers and
        peers]}. archived=False: without finalized sessions that have left memory. here=True: of one node of a fleet."""
        return self._get(query("/sessions", phase=phase, label=label, limit=limit, cursor=cursor, reseeded=reseeded,
                               archived=archived, here=here))

    def reward(self, session_id: str, reward_info: Any, response_id: Optional[str] = None, *, key: Optional[str] = None) -> Any:
        """Sets a reward: a number, or an object whose `reward` is a number. response_id: the reward of that turn.
        key: the session's runner_key, for callers without an admin key."""
        return self._post(_session(session_id, "/reward_info"),
                          known(reward_info=reward_object(reward_info), response_id=response_id), key=key)

    def report_logprobs(self, trajectory: Mapping[str, Any], logprobs: Any, version: Any, session_id: Optional[str] = None) -> Any:
        """Reports the trainer's own logprobs of a trajectory's response ids (NaN: not computed) under the weights
        `version`. The gateway compares them with the sampler's, for each turn. Returns {"turns", "tokens", "mean",
        "mean_abs", "p99", "max"}. A long trajectory needs several requests; p99 is the largest of theirs."""
        path = _session(session_id or trajectory["session_id"], "/logprobs")
        bodies = report_bodies(version, reported_turns(trajectory, logprobs))
        return self._send_each([Call("POST", path, body, read_json) for body in bodies], merge_reports)

    def complete(self, session_id: str, reward_info: Any = None, finished: Optional[bool] = None,
                 reason: Optional[str] = None, stopped_by: Optional[str] = None, *, key: Optional[str] = None) -> Any:
        """Marks the agent as done, which ends waits. stopped_by: "model", "budget", "agent", "trainer" or
        "infrastructure"."""
        info = None if reward_info is None else reward_object(reward_info)
        body = known(reward_info=info, finished=finished, reason=reason, stopped_by=stopped_by)
        return self._post(_session(session_id, "/complete"), body, key=key)

    def wait_once(self, session_id: str, timeout_s: float = POLL_S) -> Any:
        """Sends one long poll. Returns the state when the session is over, or None after timeout_s."""
        return self._get(query(_session(session_id, "/wait"), timeout_s=timeout_s), wait_s=timeout_s)

    def trajectories(self, session_id: str, format: str = "msgpack", *, raw: bool = False, **options: Any) -> Any:
        """Returns the export without closing the session. Arguments and result: as finalize."""
        options = {k: ("on" if v is True else "off" if v is False else v) for k, v in options.items()}
        read = read_bytes if raw else records.reader(format)
        return self._get(query(_session(session_id, "/trajectories"), format=format, **options), read)

    def finalize(self, session_id: str, format: str = "msgpack", *, raw: bool = False, **options: Any) -> Any:
        """Closes the session and returns its export. `msgpack`, `safetensors`, `json`: a records.Export of
        trajectories. `verl`, `miles`, `areal`, `prefix-tree`: a records.Tensors. `slime`, `prime-rl`, `skyrl`,
        `nemo-gym`, `atif`, `none`: a dict. `openai-messages`: a list of dicts. raw: the bytes. A repeated call
        returns the same."""
        read = read_bytes if raw else records.reader(format)
        return self._post(_session(session_id, "/finalize"), {"format": format, **options}, read)

    def samples(self, session_id: str, max_seq_len: Optional[int] = None, metadata: Optional[dict[str, Any]] = None) -> Any:
        """Sends POST /samples. Returns a records.Tensors in miles' layout."""
        return self._post(_session(session_id, "/samples"), known(max_seq_len=max_seq_len, metadata=metadata),
                          records.reader("miles"))

    def abort(self, session_id: str, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> Any:
        """Ends the session and its running calls. Does nothing if it has ended. stopped_by ("infrastructure" ...)
        appears in stop_reason."""
        return self._post(_session(session_id, "/abort"), known(stopped_by=stopped_by, reason=reason), read_nothing)

    def abort_all(self, labels: Mapping[str, Any], stopped_by: Optional[str] = None, reason: Optional[str] = None) -> Any:
        """Aborts all sessions with these labels. Returns {"ended", "failed", "unreachable": [peers that were not
        reached]}."""
        return self._post("/sessions/abort", known(labels=dict(labels), stopped_by=stopped_by, reason=reason))

    def finalize_all(self, labels: Mapping[str, Any]) -> Any:
        """Closes all sessions with these labels. Sinks get their exports. Returns the same as abort_all."""
        return self._post("/sessions/finalize", {"labels": dict(labels)})

    def snapshot(self, session_id: str) -> Any:
        """Returns the whole session, for `import_session` of any gateway with the same tokenizer."""
        return self._get(_session(session_id, "/snapshot"))

    def import_session(self, snapshot: Mapping[str, Any]) -> Any:
        """Creates a session that continues a snapshot, token-exact. Returns the same as create_session, and
        imported_from."""
        return self._post("/sessions/import", dict(snapshot), self._read_session, repeatable=False)

    def fork(self, session_id: str, response_id: Optional[str] = None, **options: Any) -> Any:
        """Creates a session that continues from an answer (default: the newest), token-exact. Returns the same as
        create_session, and forked_from. Options: train_prefix, labels, metadata, sampling_params."""
        return self._post(_session(session_id, "/fork"), known(response_id=response_id, **options), self._read_session,
                          repeatable=False)

    def delete(self, session_id: str) -> Any:
        """Ends and deletes the session."""
        return self.send(Call("DELETE", _session(session_id), None, read_nothing))

    def chat(self, session_id: str, messages: Sequence[Mapping[str, Any]], *, key: Optional[str] = None, timeout_s: float = 600.0,
             **body: Any) -> Any:
        """Makes one model call of the session (Chat Completions, not streamed). Returns the JSON of the answer. If
        the answer was lost, the request is repeated with the same Idempotency-Key: the gateway returns its recorded
        answer, or samples if it has none. key: the session's api_key. Raises ValueError for stream=True, whose events
        this client does not read."""
        if body.get("stream"):
            raise ValueError("chat does not stream: leave out stream, or use an SDK with the session's base_url and api_key")
        return self._post(_session(session_id, "/v1/chat/completions"), {"model": "policy", "messages": list(messages), **body},
                          key=key, wait_s=timeout_s, once=uuid.uuid4().hex)

    # --- groups of rollouts ---

    def submit(self, groups: Sequence[Mapping[str, Any]], defaults: Optional[Mapping[str, Any]] = None) -> Any:
        """Submits all of the groups or none. Returns {"groups": [{"id", "state", "created"}]}. Repeated after a lost
        answer only if all groups have ids."""
        body = {"groups": list(groups), **known(defaults=defaults)}
        return self._post("/groups", body, repeatable=all(g.get("id") for g in body["groups"]))

    def put_group(self, group_id: str, **group: Any) -> Any:
        """Creates the group. Does nothing if the same group exists. Raises GroupExists if it differs."""
        return self.send(Call("PUT", _group(group_id), encode(group), read_json))

    def group(self, group_id: str) -> Any:
        """Returns the group's result so far."""
        return self._get(_group(group_id))

    def list_groups(self, *, queue: Optional[str] = None, state: Optional[str] = None, label: Optional[str] = None,
                    limit: Optional[int] = None, cursor: Optional[str] = None) -> Any:
        """Returns one page: {"groups": [...], "next_cursor", "unreachable": [peers whose groups are missing]}."""
        return self._get(query("/groups", queue=queue, state=state, label=label, limit=limit, cursor=cursor))

    def wait_group_once(self, group_id: str, timeout_s: float = POLL_S) -> Any:
        """Sends one long poll. Returns the result when the group has settled, or None after timeout_s."""
        return self._get(query(_group(group_id, "/wait"), timeout_s=int(timeout_s)), wait_s=timeout_s)

    def cancel_group(self, group_id: str, deliver: bool = False) -> Any:
        """Cancels a group. Returns {"cancelled": [ids]}. Its agents' calls fail with 410. deliver: the cancelled
        group is put into its queue."""
        return self._post(_group(group_id, "/cancel"), {"deliver": deliver})

    # --- queues ---

    def queue(self, name: str) -> Any:
        """Returns counts of a queue: waiting, running, rollouts_running, settled, taken, acked_total, oldest_s,
        blocked."""
        return self._get(_queue(name))

    def next(self, queue_name: str, max: int = 1, wait_s: float = 0, *, lease_s: Optional[float] = None,
             order: Optional[str] = None, states: Optional[Sequence[str]] = None) -> Any:
        """Takes settled groups: {"groups": [results], "queue": counts}. They are leased for lease_s, and offered
        again if they are not acknowledged by then. Repeated after a lost answer; its groups are offered again after
        their lease."""
        return self._get(query(_queue(queue_name, "/next"), max=max, wait_s=wait_s, lease_s=lease_s, order=order,
                               states=",".join(states) if states else None), wait_s=wait_s)

    def ack(self, queue_name: str, groups: Sequence[str]) -> Any:
        """Acknowledges trained groups, after the checkpoint with the step. Returns {"acked": n}."""
        return self._post(_queue(queue_name, "/ack"), {"groups": list(groups)})

    def give_back(self, queue_name: str, groups: Sequence[str]) -> Any:
        """Releases groups that were not trained, so that they can be taken again at once. Returns {"returned": n}."""
        return self._post(_queue(queue_name, "/return"), {"groups": list(groups)})

    def cancel_queue(self, queue_name: str, *, states: Optional[Sequence[str]] = None, version_below: Optional[int] = None,
                     labels: Optional[Mapping[str, Any]] = None, deliver: bool = False) -> Any:
        """Cancels groups of a queue in these states (waiting, running, settled), or only older ones (version_below).
        Returns {"cancelled": [ids]}."""
        return self._post(_queue(queue_name, "/cancel"),
                          known(states=states, version_below=version_below, labels=labels, deliver=deliver))

    # --- attempts (an executor's key) ---

    def claim(self, executor: str, slots: Mapping[str, int], wait_s: float = 0) -> Any:
        """Claims attempts: {"attempts": [...]}, which may be empty. Leases of a lost answer expire."""
        return self._post("/attempts/claim", {"executor": executor, "slots": slots, "wait_s": wait_s}, wait_s=wait_s)

    def renew(self, executor: str, attempts: Sequence[str], wait_s: float = 0) -> Any:
        """Renews leases. Returns {"kill": [{"attempt_id", "reason"}]}: at once if an attempt must end, else after
        wait_s."""
        return self._post("/attempts/renew", {"executor": executor, "attempts": list(attempts), "wait_s": wait_s}, wait_s=wait_s)

    def end_attempt(self, attempt_id: str, executor: str, outcome: str, **fields: Any) -> Any:
        """Ends an attempt. Returns {"rollout": "succeeded" | "retry" | "failed"}. Raises AttemptEnded if it was lost
        or cancelled."""
        return self._post(f"/attempts/{quote(attempt_id, safe='')}/end",
                          {"executor": executor, "outcome": outcome, **known(**fields)})

    # --- the gateway ---

    def health(self) -> Any:
        """Returns {"status": ...}. Raises Draining while the gateway stops."""
        return self._get("/health")

    def ready(self) -> Any:
        """Raises an error with the reason unless every worker serves and an engine answers."""
        return self._get("/ready")

    def metrics(self) -> Any:
        """Returns {"rollgate_name{labels}": value}."""
        return self._get("/metrics", lambda status, headers, body: parse_metrics(body.decode()))

    def engines(self) -> Any:
        """Returns {"edition", "engines": [{"name", "kind", "engine", "state", "inflight", ...}]}, as one worker sees
        them."""
        return self._get("/admin/engines")

    def set_engines(self, engines: Iterable[str], *, probe: bool = True, timeout_s: float = 0) -> Any:
        """Replaces the engines. Each is written as for --engine: "NAME=KIND:URL". Returns {"edition", "added",
        "removed", "drained", "engines"}. New ones must answer unless probe is False. Waits up to timeout_s for the
        calls of removed ones."""
        return self._engines("PUT", engines, probe=probe, timeout_s=timeout_s)

    def add_engines(self, engines: Iterable[str], *, probe: bool = True) -> Any:
        """Adds engines. Arguments: as set_engines."""
        return self._engines("POST", engines, probe=probe)

    def remove_engines(self, names: Iterable[str], *, timeout_s: float = 0) -> Any:
        """Removes engines by the names of engines(). Raises NotFound for an unknown name."""
        return self._engines("DELETE", names, timeout_s=timeout_s)

    def _engines(self, method: str, engines: Iterable[str], **options: Any) -> Any:
        body = encode({"engines": list(engines), **options})
        return self.send(Call(method, "/admin/engines", body, read_json, wait_s=30 + options.get("timeout_s", 0),
                              repeatable=method != "DELETE"))

    def weight_version(self, version: Any, *, engines: bool = False) -> Any:
        """Sets the version of later answers whose engine reports none: an integer from 0, a name, or None. engines:
        also sets it on the engines; `engines` of the answer lists those that failed, with the reason."""
        if not engines:
            return self._post("/admin/weight_version", {"version": version})
        return self._post("/admin/weight_version", {"version": version, "engines": True}, wait_s=60)

    def adapters(self) -> Any:
        """Returns the LoRA adapters with a version."""
        return self._get("/admin/adapters")

    def adapter_version(self, name: str, version: Any) -> Any:
        """Sets the version of a LoRA adapter's weights, for sessions with `adapter`: an integer from 0, a name, or
        None."""
        return self._post("/admin/adapters", {"name": name, "version": version})

    def pause(self, mode: str = "drain", timeout_s: Optional[float] = None) -> Any:
        """Stops new engine calls; agents wait. `drain` returns when running calls have ended, `hold` at once."""
        return self._post("/admin/pause", known(mode=mode, timeout_s=timeout_s), wait_s=300 if timeout_s is None else timeout_s)

    def resume(self) -> Any:
        """Ends the pause."""
        return self._post("/admin/resume", {})


def reward_object(reward: Any) -> dict[str, Any]:
    """Converts a scorer's result to reward_info: a number, or a mapping. Raises TypeError for anything else. Raises
    TypeError or ValueError that names a value which JSON cannot represent."""
    told: dict[str, Any]
    if isinstance(reward, Mapping):
        told = plain(reward, "reward_info")
        return told
    if isinstance(reward, (bool, int, float)) or hasattr(reward, "__float__"):
        told = plain({"reward": float(reward)}, "reward_info")
        return told
    raise TypeError(f"a reward is a number or a mapping, not {type(reward).__name__}: {reward!r:.80}")


def parse_metrics(text: str) -> dict[str, float]:
    """Parses Prometheus' text to {name{labels}: value}."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}
