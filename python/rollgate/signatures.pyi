"""The clients' calls with their types, made from openapi.json by scripts/gen_python_types.py. For type checkers
alone: at run time the calls are those of calls.py."""
from __future__ import annotations

from typing import Any, Iterable, Literal, Mapping, Optional, Sequence, TypedDict, Union, overload

from .answers import Claims, GroupPage, GroupResult, QueueAnswer, QueueCounts, Reported
from .answers import SessionPage, SessionState, Stats, Submitted
from .records import Export, Tensors
from .session import AsyncSession, Session

Reward = Union[float, Mapping[str, Any]]


SamplingName = Literal['temperature', 'top_p', 'min_p', 'presence_penalty', 'frequency_penalty', 'repetition_penalty',
                       'top_k', 'max_tokens', 'seed', 'ignore_eos', 'stop', 'stop_token_ids', 'logit_bias', 'min_tokens',
                       'repeat_last_n', 'max_thinking_tokens', 'allowed_token_ids', 'bad_words', 'response_format',
                       'max_completion_tokens', 'max_output_tokens', 'max_new_tokens', 'stop_sequences', 'sampling_seed',
                       'min_new_tokens', 'thinking_token_budget']


class Group(TypedDict, total=False):
    id: Any
    queue: Any
    runner: Any
    input: Any
    n: Any
    extra: Any
    min: Any
    attempts: Any
    infra_attempts: Any
    on: Any
    reward: Any
    fail_reward: Any
    priority: Any
    version: Any
    run_timeout_s: Any
    deadline_s: Any
    session: Any
    members: Any
    export: Any
    labels: Any
    metadata: Any


class SamplingParams(TypedDict, total=False):
    temperature: float
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    top_k: int
    max_tokens: int
    seed: int
    ignore_eos: bool
    stop: Union[str, Sequence[str]]
    stop_token_ids: Any
    logit_bias: Any
    min_tokens: int
    repeat_last_n: int
    max_thinking_tokens: int
    allowed_token_ids: Any
    bad_words: Sequence[str]
    response_format: Any
    max_completion_tokens: int
    max_output_tokens: int
    max_new_tokens: int
    stop_sequences: Union[str, Sequence[str]]
    sampling_seed: int
    min_new_tokens: int
    thinking_token_budget: int
    engine_extra: Mapping[str, Any]


class Score(TypedDict, total=False):
    engine: str
    top_k: int
    what: Literal['teacher', 'reference', 'self']


class Prefer(TypedDict, total=False):
    engine: str


class Thinking(TypedDict, total=False):
    type: Any
    budget_tokens: Any


class SyncCalls:
    @overload
    def create_session(self, *, count: int, group: Optional[str] = None, rollout: Optional[int] = None,
                       group_size: Optional[int] = None, hold: Optional[bool] = None, dispatched: Optional[bool] = None,
                       sink: Optional[bool] = None, metadata: Optional[Mapping[str, Any]] = None,
                       labels: Optional[Mapping[str, Any]] = None, sampling_params: Optional[SamplingParams] = None,
                       temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
                       lock_sampling: Optional[Sequence[SamplingName]] = None,
                       history: Optional[Literal['tree', 'chains', 'linear', 'timelines']] = None,
                       message_matcher: Optional[Literal['canonical', 'strict', 'loose_tool_call', 'role_content_only']] = None,
                       timeline_compare_level: Optional[Literal['text', 'token']] = None,
                       rollback_last_assistant: Optional[bool] = None, idempotent_retry: Optional[bool] = None,
                       ignore_tools: Optional[bool] = None, ignore_cch: Optional[bool] = None,
                       branch_on_rewrite: Optional[bool] = None,
                       on_truncated: Optional[Literal['auto', 'continue', 'branch', 'refuse']] = None,
                       after_complete: Optional[Literal['serve', 'refuse']] = None, evaluation: Optional[bool] = None,
                       max_turns: Optional[int] = None, max_total_tokens: Optional[int] = None,
                       prompt_length: Optional[int] = None, response_length: Optional[int] = None,
                       ttl_s: Optional[int] = None, model: Optional[str] = None, pools: Optional[Sequence[str]] = None,
                       adapter: Optional[str] = None, sampling_support: Optional[bool] = None,
                       indexer_topk: Optional[bool] = None, top_logprobs: Optional[int] = None,
                       score: Optional[Sequence[Score]] = None, node: Optional[str] = None, prefer: Optional[Prefer] = None,
                       max_nodes: Optional[int] = None) -> dict[str, list[Session]]: ...
    @overload
    def create_session(self, *, count: None = None, group: Optional[str] = None, rollout: Optional[int] = None,
                       group_size: Optional[int] = None, hold: Optional[bool] = None, dispatched: Optional[bool] = None,
                       sink: Optional[bool] = None, metadata: Optional[Mapping[str, Any]] = None,
                       labels: Optional[Mapping[str, Any]] = None, sampling_params: Optional[SamplingParams] = None,
                       temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
                       lock_sampling: Optional[Sequence[SamplingName]] = None,
                       history: Optional[Literal['tree', 'chains', 'linear', 'timelines']] = None,
                       message_matcher: Optional[Literal['canonical', 'strict', 'loose_tool_call', 'role_content_only']] = None,
                       timeline_compare_level: Optional[Literal['text', 'token']] = None,
                       rollback_last_assistant: Optional[bool] = None, idempotent_retry: Optional[bool] = None,
                       ignore_tools: Optional[bool] = None, ignore_cch: Optional[bool] = None,
                       branch_on_rewrite: Optional[bool] = None,
                       on_truncated: Optional[Literal['auto', 'continue', 'branch', 'refuse']] = None,
                       after_complete: Optional[Literal['serve', 'refuse']] = None, evaluation: Optional[bool] = None,
                       max_turns: Optional[int] = None, max_total_tokens: Optional[int] = None,
                       prompt_length: Optional[int] = None, response_length: Optional[int] = None,
                       ttl_s: Optional[int] = None, model: Optional[str] = None, pools: Optional[Sequence[str]] = None,
                       adapter: Optional[str] = None, sampling_support: Optional[bool] = None,
                       indexer_topk: Optional[bool] = None, top_logprobs: Optional[int] = None,
                       score: Optional[Sequence[Score]] = None, node: Optional[str] = None, prefer: Optional[Prefer] = None,
                       max_nodes: Optional[int] = None) -> Session: ...
    def session(self, session_id: str, records: bool = False) -> SessionState: ...
    def stats(self, start: Optional[float] = None, end: Optional[float] = None, step: Optional[int] = None,
              by: Optional[Literal['task', 'model', 'version']] = None) -> Stats: ...
    def list_sessions(self, *, here: Optional[bool] = None,
                      phase: Optional[Literal['open', 'completed', 'finalized', 'aborted', 'expired']] = None,
                      label: Optional[str] = None, reseeded: Optional[bool] = None, archived: Optional[bool] = None,
                      limit: Optional[int] = None, cursor: Optional[str] = None) -> SessionPage: ...
    def reward(self, session_id: str, reward_info: Reward, response_id: Optional[str] = None, *,
               key: Optional[str] = None) -> dict[str, Any]: ...
    def report_logprobs(self, trajectory: Mapping[str, Any], logprobs: Any, version: Union[int, str],
                        session_id: Optional[str] = None) -> Reported: ...
    def complete(self, session_id: str, reward_info: Optional[Reward] = None, finished: Optional[bool] = None,
                 reason: Optional[str] = None, stopped_by: Optional[str] = None, *,
                 key: Optional[str] = None) -> dict[str, Any]: ...
    def wait_once(self, session_id: str, timeout_s: float = 30.0) -> Optional[SessionState]: ...
    @overload
    def trajectories(self, session_id: str, format: Literal['msgpack', 'json', 'safetensors'] = 'msgpack', *,
                     raw: Literal[False] = False,
                     select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                     pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                     purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                     train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                     ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                     drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                     media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                     require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                     session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Export: ...
    @overload
    def trajectories(self, session_id: str, format: Literal['verl', 'miles', 'areal', 'prefix-tree'], *,
                     raw: Literal[False] = False,
                     select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                     pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                     purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                     train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                     ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                     drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                     media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                     require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                     session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Tensors: ...
    @overload
    def trajectories(self, session_id: str, format: str = 'msgpack', *, raw: Literal[True],
                     select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                     pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                     purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                     train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                     ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                     drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                     media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                     require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                     session_index: Optional[int] = None, global_steps: Optional[int] = None) -> bytes: ...
    @overload
    def trajectories(self, session_id: str, format: str, *, raw: bool = False,
                     select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                     pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                     purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                     train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                     ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                     drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                     media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                     require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                     session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Any: ...
    @overload
    def finalize(self, session_id: str, format: Literal['msgpack', 'json', 'safetensors'] = 'msgpack', *,
                 raw: Literal[False] = False,
                 select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                 pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                 purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                 train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                 ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                 drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                 media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                 require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                 session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Export: ...
    @overload
    def finalize(self, session_id: str, format: Literal['verl', 'miles', 'areal', 'prefix-tree'], *,
                 raw: Literal[False] = False,
                 select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                 pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                 purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                 train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                 ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                 drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                 media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                 require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                 session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Tensors: ...
    @overload
    def finalize(self, session_id: str, format: str = 'msgpack', *, raw: Literal[True],
                 select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                 pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                 purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                 train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                 ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                 drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                 media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                 require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                 session_index: Optional[int] = None, global_steps: Optional[int] = None) -> bytes: ...
    @overload
    def finalize(self, session_id: str, format: str, *, raw: bool = False,
                 select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                 pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                 purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                 train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                 ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                 drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                 media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                 require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                 session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Any: ...
    def samples(self, session_id: str, max_seq_len: Optional[int] = None,
                metadata: Optional[Mapping[str, Any]] = None) -> Tensors: ...
    def abort(self, session_id: str, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> None: ...
    def abort_all(self, labels: Mapping[str, Any], stopped_by: Optional[str] = None,
                  reason: Optional[str] = None) -> dict[str, Any]: ...
    def finalize_all(self, labels: Mapping[str, Any]) -> dict[str, Any]: ...
    def snapshot(self, session_id: str) -> dict[str, Any]: ...
    def import_session(self, snapshot: Mapping[str, Any]) -> Session: ...
    def fork(self, session_id: str, response_id: Optional[str] = None, *, train_prefix: Optional[bool] = None,
             labels: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, Any]] = None,
             sampling_params: Optional[SamplingParams] = None) -> Session: ...
    def delete(self, session_id: str) -> None: ...
    def chat(self, session_id: str, messages: Sequence[Mapping[str, Any]], *, key: Optional[str] = None,
             timeout_s: float = 600.0, model: Any = None, user: Any = None, metadata: Any = None,
             temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
             min_p: Optional[float] = None, seed: Optional[int] = None, repetition_penalty: Optional[float] = None,
             presence_penalty: Optional[float] = None, frequency_penalty: Optional[float] = None,
             stop: Optional[Union[str, Sequence[str]]] = None, logit_bias: Any = None, ignore_eos: Optional[bool] = None,
             stop_token_ids: Any = None, min_tokens: Optional[int] = None, max_thinking_tokens: Optional[int] = None,
             thinking_token_budget: Optional[int] = None, repeat_last_n: Optional[int] = None, allowed_token_ids: Any = None,
             bad_words: Optional[Sequence[str]] = None, n: Any = None, response_format: Any = None, logprobs: Any = None,
             max_tokens: Optional[int] = None, tools: Any = None, tool_choice: Any = None, chat_template_kwargs: Any = None,
             parallel_tool_calls: Any = None, top_logprobs: Any = None, store: Any = None,
             max_completion_tokens: Optional[int] = None, functions: Any = None, function_call: Any = None,
             reasoning_effort: Any = None, enable_thinking: Any = None, thinking: Optional[Thinking] = None,
             modalities: Any = None) -> dict[str, Any]: ...
    def submit(self, groups: Sequence[Group], defaults: Optional[Group] = None) -> Submitted: ...
    def put_group(self, group_id: str, *, queue: Any = None, runner: Any = None, input: Any = None, n: Any = None,
                  extra: Any = None, min: Any = None, attempts: Any = None, infra_attempts: Any = None, on: Any = None,
                  reward: Any = None, fail_reward: Any = None, priority: Any = None, version: Any = None,
                  run_timeout_s: Any = None, deadline_s: Any = None, session: Any = None, members: Any = None,
                  export: Any = None, labels: Any = None, metadata: Any = None) -> GroupResult: ...
    def group(self, group_id: str) -> GroupResult: ...
    def list_groups(self, *, queue: Optional[str] = None, state: Optional[str] = None, label: Optional[str] = None,
                    cursor: Optional[str] = None, limit: Optional[str] = None) -> GroupPage: ...
    def wait_group_once(self, group_id: str, timeout_s: float = 30.0) -> Optional[GroupResult]: ...
    def cancel_group(self, group_id: str, deliver: bool = False) -> dict[str, Any]: ...
    def queue(self, name: str) -> QueueCounts: ...
    def next(self, queue_name: str, max: int = 1, wait_s: float = 0, *, lease_s: Optional[float] = None,
             order: Optional[str] = None, states: Optional[Sequence[str]] = None) -> QueueAnswer: ...
    def ack(self, queue_name: str, groups: Sequence[str]) -> dict[str, Any]: ...
    def give_back(self, queue_name: str, groups: Sequence[str]) -> dict[str, Any]: ...
    def cancel_queue(self, queue_name: str, *, states: Optional[Sequence[str]] = None, version_below: Optional[int] = None,
                     labels: Optional[Mapping[str, Any]] = None, deliver: bool = False) -> dict[str, Any]: ...
    def claim(self, executor: str, slots: Mapping[str, int], wait_s: float = 0) -> Claims: ...
    def renew(self, executor: str, attempts: Sequence[str], wait_s: float = 0) -> dict[str, Any]: ...
    def end_attempt(self, attempt_id: str, executor: str, outcome: str, *, stopping: Any = None, exit: Any = None,
                    signal: Any = None, reward_info: Any = None, finished: Any = None, reason: Any = None,
                    timings: Any = None, log: Any = None, log_tail: Any = None) -> dict[str, Any]: ...
    def health(self) -> dict[str, Any]: ...
    def ready(self) -> dict[str, Any]: ...
    def metrics(self) -> dict[str, float]: ...
    def engines(self) -> dict[str, Any]: ...
    def set_engines(self, engines: Iterable[str], *, probe: bool = True, timeout_s: float = 0) -> dict[str, Any]: ...
    def add_engines(self, engines: Iterable[str], *, probe: bool = True) -> dict[str, Any]: ...
    def remove_engines(self, names: Iterable[str], *, timeout_s: float = 0) -> dict[str, Any]: ...
    def weight_version(self, version: Union[int, str, None], *, engines: bool = False) -> dict[str, Any]: ...
    def adapters(self) -> dict[str, Any]: ...
    def adapter_version(self, name: str, version: Union[int, str, None]) -> dict[str, Any]: ...
    def pause(self, mode: Literal['drain', 'hold'] = 'drain', timeout_s: Optional[float] = None) -> dict[str, Any]: ...
    def resume(self) -> dict[str, Any]: ...


class AsyncCalls:
    @overload
    async def create_session(self, *, count: int, group: Optional[str] = None, rollout: Optional[int] = None,
                             group_size: Optional[int] = None, hold: Optional[bool] = None, dispatched: Optional[bool] = None,
                             sink: Optional[bool] = None, metadata: Optional[Mapping[str, Any]] = None,
                             labels: Optional[Mapping[str, Any]] = None, sampling_params: Optional[SamplingParams] = None,
                             temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
                             lock_sampling: Optional[Sequence[SamplingName]] = None,
                             history: Optional[Literal['tree', 'chains', 'linear', 'timelines']] = None,
                             message_matcher: Optional[Literal['canonical', 'strict', 'loose_tool_call', 'role_content_only']] = None,
                             timeline_compare_level: Optional[Literal['text', 'token']] = None,
                             rollback_last_assistant: Optional[bool] = None, idempotent_retry: Optional[bool] = None,
                             ignore_tools: Optional[bool] = None, ignore_cch: Optional[bool] = None,
                             branch_on_rewrite: Optional[bool] = None,
                             on_truncated: Optional[Literal['auto', 'continue', 'branch', 'refuse']] = None,
                             after_complete: Optional[Literal['serve', 'refuse']] = None, evaluation: Optional[bool] = None,
                             max_turns: Optional[int] = None, max_total_tokens: Optional[int] = None,
                             prompt_length: Optional[int] = None, response_length: Optional[int] = None,
                             ttl_s: Optional[int] = None, model: Optional[str] = None, pools: Optional[Sequence[str]] = None,
                             adapter: Optional[str] = None, sampling_support: Optional[bool] = None,
                             indexer_topk: Optional[bool] = None, top_logprobs: Optional[int] = None,
                             score: Optional[Sequence[Score]] = None, node: Optional[str] = None,
                             prefer: Optional[Prefer] = None,
                             max_nodes: Optional[int] = None) -> dict[str, list[AsyncSession]]: ...
    @overload
    async def create_session(self, *, count: None = None, group: Optional[str] = None, rollout: Optional[int] = None,
                             group_size: Optional[int] = None, hold: Optional[bool] = None, dispatched: Optional[bool] = None,
                             sink: Optional[bool] = None, metadata: Optional[Mapping[str, Any]] = None,
                             labels: Optional[Mapping[str, Any]] = None, sampling_params: Optional[SamplingParams] = None,
                             temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
                             lock_sampling: Optional[Sequence[SamplingName]] = None,
                             history: Optional[Literal['tree', 'chains', 'linear', 'timelines']] = None,
                             message_matcher: Optional[Literal['canonical', 'strict', 'loose_tool_call', 'role_content_only']] = None,
                             timeline_compare_level: Optional[Literal['text', 'token']] = None,
                             rollback_last_assistant: Optional[bool] = None, idempotent_retry: Optional[bool] = None,
                             ignore_tools: Optional[bool] = None, ignore_cch: Optional[bool] = None,
                             branch_on_rewrite: Optional[bool] = None,
                             on_truncated: Optional[Literal['auto', 'continue', 'branch', 'refuse']] = None,
                             after_complete: Optional[Literal['serve', 'refuse']] = None, evaluation: Optional[bool] = None,
                             max_turns: Optional[int] = None, max_total_tokens: Optional[int] = None,
                             prompt_length: Optional[int] = None, response_length: Optional[int] = None,
                             ttl_s: Optional[int] = None, model: Optional[str] = None, pools: Optional[Sequence[str]] = None,
                             adapter: Optional[str] = None, sampling_support: Optional[bool] = None,
                             indexer_topk: Optional[bool] = None, top_logprobs: Optional[int] = None,
                             score: Optional[Sequence[Score]] = None, node: Optional[str] = None,
                             prefer: Optional[Prefer] = None, max_nodes: Optional[int] = None) -> AsyncSession: ...
    async def session(self, session_id: str, records: bool = False) -> SessionState: ...
    async def stats(self, start: Optional[float] = None, end: Optional[float] = None, step: Optional[int] = None,
                    by: Optional[Literal['task', 'model', 'version']] = None) -> Stats: ...
    async def list_sessions(self, *, here: Optional[bool] = None,
                            phase: Optional[Literal['open', 'completed', 'finalized', 'aborted', 'expired']] = None,
                            label: Optional[str] = None, reseeded: Optional[bool] = None, archived: Optional[bool] = None,
                            limit: Optional[int] = None, cursor: Optional[str] = None) -> SessionPage: ...
    async def reward(self, session_id: str, reward_info: Reward, response_id: Optional[str] = None, *,
                     key: Optional[str] = None) -> dict[str, Any]: ...
    async def report_logprobs(self, trajectory: Mapping[str, Any], logprobs: Any, version: Union[int, str],
                              session_id: Optional[str] = None) -> Reported: ...
    async def complete(self, session_id: str, reward_info: Optional[Reward] = None, finished: Optional[bool] = None,
                       reason: Optional[str] = None, stopped_by: Optional[str] = None, *,
                       key: Optional[str] = None) -> dict[str, Any]: ...
    async def wait_once(self, session_id: str, timeout_s: float = 30.0) -> Optional[SessionState]: ...
    @overload
    async def trajectories(self, session_id: str, format: Literal['msgpack', 'json', 'safetensors'] = 'msgpack', *,
                           raw: Literal[False] = False,
                           select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                           pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                           purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                           train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                           ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                           max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                           ids: Optional[Literal['expanded', 'collapsed']] = None,
                           media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                           require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                           uid: Optional[str] = None, session_index: Optional[int] = None,
                           global_steps: Optional[int] = None) -> Export: ...
    @overload
    async def trajectories(self, session_id: str, format: Literal['verl', 'miles', 'areal', 'prefix-tree'], *,
                           raw: Literal[False] = False,
                           select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                           pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                           purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                           train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                           ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                           max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                           ids: Optional[Literal['expanded', 'collapsed']] = None,
                           media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                           require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                           uid: Optional[str] = None, session_index: Optional[int] = None,
                           global_steps: Optional[int] = None) -> Tensors: ...
    @overload
    async def trajectories(self, session_id: str, format: str = 'msgpack', *, raw: Literal[True],
                           select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                           pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                           purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                           train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                           ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                           max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                           ids: Optional[Literal['expanded', 'collapsed']] = None,
                           media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                           require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                           uid: Optional[str] = None, session_index: Optional[int] = None,
                           global_steps: Optional[int] = None) -> bytes: ...
    @overload
    async def trajectories(self, session_id: str, format: str, *, raw: bool = False,
                           select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                           pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                           purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                           train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                           ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                           max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                           ids: Optional[Literal['expanded', 'collapsed']] = None,
                           media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                           require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                           uid: Optional[str] = None, session_index: Optional[int] = None,
                           global_steps: Optional[int] = None) -> Any: ...
    @overload
    async def finalize(self, session_id: str, format: Literal['msgpack', 'json', 'safetensors'] = 'msgpack', *,
                       raw: Literal[False] = False,
                       select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                       pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                       purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                       train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                       ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                       max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                       ids: Optional[Literal['expanded', 'collapsed']] = None,
                       media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                       require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                       uid: Optional[str] = None, session_index: Optional[int] = None,
                       global_steps: Optional[int] = None) -> Export: ...
    @overload
    async def finalize(self, session_id: str, format: Literal['verl', 'miles', 'areal', 'prefix-tree'], *,
                       raw: Literal[False] = False,
                       select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                       pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                       purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                       train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                       ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                       max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                       ids: Optional[Literal['expanded', 'collapsed']] = None,
                       media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                       require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                       uid: Optional[str] = None, session_index: Optional[int] = None,
                       global_steps: Optional[int] = None) -> Tensors: ...
    @overload
    async def finalize(self, session_id: str, format: str = 'msgpack', *, raw: Literal[True],
                       select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                       pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                       purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                       train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                       ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                       max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                       ids: Optional[Literal['expanded', 'collapsed']] = None,
                       media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                       require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                       uid: Optional[str] = None, session_index: Optional[int] = None,
                       global_steps: Optional[int] = None) -> bytes: ...
    @overload
    async def finalize(self, session_id: str, format: str, *, raw: bool = False,
                       select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                       pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                       purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                       train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                       ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                       max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                       ids: Optional[Literal['expanded', 'collapsed']] = None,
                       media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                       require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                       uid: Optional[str] = None, session_index: Optional[int] = None,
                       global_steps: Optional[int] = None) -> Any: ...
    async def samples(self, session_id: str, max_seq_len: Optional[int] = None,
                      metadata: Optional[Mapping[str, Any]] = None) -> Tensors: ...
    async def abort(self, session_id: str, stopped_by: Optional[str] = None, reason: Optional[str] = None) -> None: ...
    async def abort_all(self, labels: Mapping[str, Any], stopped_by: Optional[str] = None,
                        reason: Optional[str] = None) -> dict[str, Any]: ...
    async def finalize_all(self, labels: Mapping[str, Any]) -> dict[str, Any]: ...
    async def snapshot(self, session_id: str) -> dict[str, Any]: ...
    async def import_session(self, snapshot: Mapping[str, Any]) -> AsyncSession: ...
    async def fork(self, session_id: str, response_id: Optional[str] = None, *, train_prefix: Optional[bool] = None,
                   labels: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, Any]] = None,
                   sampling_params: Optional[SamplingParams] = None) -> AsyncSession: ...
    async def delete(self, session_id: str) -> None: ...
    async def chat(self, session_id: str, messages: Sequence[Mapping[str, Any]], *, key: Optional[str] = None,
                   timeout_s: float = 600.0, model: Any = None, user: Any = None, metadata: Any = None,
                   temperature: Optional[float] = None, top_p: Optional[float] = None, top_k: Optional[int] = None,
                   min_p: Optional[float] = None, seed: Optional[int] = None, repetition_penalty: Optional[float] = None,
                   presence_penalty: Optional[float] = None, frequency_penalty: Optional[float] = None,
                   stop: Optional[Union[str, Sequence[str]]] = None, logit_bias: Any = None,
                   ignore_eos: Optional[bool] = None, stop_token_ids: Any = None, min_tokens: Optional[int] = None,
                   max_thinking_tokens: Optional[int] = None, thinking_token_budget: Optional[int] = None,
                   repeat_last_n: Optional[int] = None, allowed_token_ids: Any = None,
                   bad_words: Optional[Sequence[str]] = None, n: Any = None, response_format: Any = None,
                   logprobs: Any = None, max_tokens: Optional[int] = None, tools: Any = None, tool_choice: Any = None,
                   chat_template_kwargs: Any = None, parallel_tool_calls: Any = None, top_logprobs: Any = None,
                   store: Any = None, max_completion_tokens: Optional[int] = None, functions: Any = None,
                   function_call: Any = None, reasoning_effort: Any = None, enable_thinking: Any = None,
                   thinking: Optional[Thinking] = None, modalities: Any = None) -> dict[str, Any]: ...
    async def submit(self, groups: Sequence[Group], defaults: Optional[Group] = None) -> Submitted: ...
    async def put_group(self, group_id: str, *, queue: Any = None, runner: Any = None, input: Any = None, n: Any = None,
                        extra: Any = None, min: Any = None, attempts: Any = None, infra_attempts: Any = None, on: Any = None,
                        reward: Any = None, fail_reward: Any = None, priority: Any = None, version: Any = None,
                        run_timeout_s: Any = None, deadline_s: Any = None, session: Any = None, members: Any = None,
                        export: Any = None, labels: Any = None, metadata: Any = None) -> GroupResult: ...
    async def group(self, group_id: str) -> GroupResult: ...
    async def list_groups(self, *, queue: Optional[str] = None, state: Optional[str] = None, label: Optional[str] = None,
                          cursor: Optional[str] = None, limit: Optional[str] = None) -> GroupPage: ...
    async def wait_group_once(self, group_id: str, timeout_s: float = 30.0) -> Optional[GroupResult]: ...
    async def cancel_group(self, group_id: str, deliver: bool = False) -> dict[str, Any]: ...
    async def queue(self, name: str) -> QueueCounts: ...
    async def next(self, queue_name: str, max: int = 1, wait_s: float = 0, *, lease_s: Optional[float] = None,
                   order: Optional[str] = None, states: Optional[Sequence[str]] = None) -> QueueAnswer: ...
    async def ack(self, queue_name: str, groups: Sequence[str]) -> dict[str, Any]: ...
    async def give_back(self, queue_name: str, groups: Sequence[str]) -> dict[str, Any]: ...
    async def cancel_queue(self, queue_name: str, *, states: Optional[Sequence[str]] = None,
                           version_below: Optional[int] = None, labels: Optional[Mapping[str, Any]] = None,
                           deliver: bool = False) -> dict[str, Any]: ...
    async def claim(self, executor: str, slots: Mapping[str, int], wait_s: float = 0) -> Claims: ...
    async def renew(self, executor: str, attempts: Sequence[str], wait_s: float = 0) -> dict[str, Any]: ...
    async def end_attempt(self, attempt_id: str, executor: str, outcome: str, *, stopping: Any = None, exit: Any = None,
                          signal: Any = None, reward_info: Any = None, finished: Any = None, reason: Any = None,
                          timings: Any = None, log: Any = None, log_tail: Any = None) -> dict[str, Any]: ...
    async def health(self) -> dict[str, Any]: ...
    async def ready(self) -> dict[str, Any]: ...
    async def metrics(self) -> dict[str, float]: ...
    async def engines(self) -> dict[str, Any]: ...
    async def set_engines(self, engines: Iterable[str], *, probe: bool = True, timeout_s: float = 0) -> dict[str, Any]: ...
    async def add_engines(self, engines: Iterable[str], *, probe: bool = True) -> dict[str, Any]: ...
    async def remove_engines(self, names: Iterable[str], *, timeout_s: float = 0) -> dict[str, Any]: ...
    async def weight_version(self, version: Union[int, str, None], *, engines: bool = False) -> dict[str, Any]: ...
    async def adapters(self) -> dict[str, Any]: ...
    async def adapter_version(self, name: str, version: Union[int, str, None]) -> dict[str, Any]: ...
    async def pause(self, mode: Literal['drain', 'hold'] = 'drain', timeout_s: Optional[float] = None) -> dict[str, Any]: ...
    async def resume(self) -> dict[str, Any]: ...


class SyncSessionCalls:
    def trajectories(self, *, select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                     pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                     purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                     train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                     ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                     drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                     media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                     require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                     session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Export: ...
    def finalize(self, *, select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                 pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                 purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                 train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                 ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None, max_seq_len: Optional[int] = None,
                 drift: Optional[bool] = None, ids: Optional[Literal['expanded', 'collapsed']] = None,
                 media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                 require_trained: Optional[bool] = None, require_reward: Optional[bool] = None, uid: Optional[str] = None,
                 session_index: Optional[int] = None, global_steps: Optional[int] = None) -> Export: ...
    def chat(self, messages: Sequence[Mapping[str, Any]], *, timeout_s: float = 600.0, model: Any = None, user: Any = None,
             metadata: Any = None, temperature: Optional[float] = None, top_p: Optional[float] = None,
             top_k: Optional[int] = None, min_p: Optional[float] = None, seed: Optional[int] = None,
             repetition_penalty: Optional[float] = None, presence_penalty: Optional[float] = None,
             frequency_penalty: Optional[float] = None, stop: Optional[Union[str, Sequence[str]]] = None,
             logit_bias: Any = None, ignore_eos: Optional[bool] = None, stop_token_ids: Any = None,
             min_tokens: Optional[int] = None, max_thinking_tokens: Optional[int] = None,
             thinking_token_budget: Optional[int] = None, repeat_last_n: Optional[int] = None, allowed_token_ids: Any = None,
             bad_words: Optional[Sequence[str]] = None, n: Any = None, response_format: Any = None, logprobs: Any = None,
             max_tokens: Optional[int] = None, tools: Any = None, tool_choice: Any = None, chat_template_kwargs: Any = None,
             parallel_tool_calls: Any = None, top_logprobs: Any = None, store: Any = None,
             max_completion_tokens: Optional[int] = None, functions: Any = None, function_call: Any = None,
             reasoning_effort: Any = None, enable_thinking: Any = None, thinking: Optional[Thinking] = None,
             modalities: Any = None) -> dict[str, Any]: ...


class AsyncSessionCalls:
    async def trajectories(self, *, select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                           pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                           purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                           train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                           ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                           max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                           ids: Optional[Literal['expanded', 'collapsed']] = None,
                           media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                           require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                           uid: Optional[str] = None, session_index: Optional[int] = None,
                           global_steps: Optional[int] = None) -> Export: ...
    async def finalize(self, *, select: Optional[Literal['leaves', 'all_checkpoints', 'last', 'longest']] = None,
                       pick: Optional[Literal['all', 'drop_retries']] = None, train_once: Optional[bool] = None,
                       purposes: Optional[str] = None, train_purposes: Optional[str] = None, roles: Optional[str] = None,
                       train_roles: Optional[str] = None, merge: Optional[Literal['none', 'text', 'token']] = None,
                       ignore_tools: Optional[bool] = None, max_tokens: Optional[int] = None,
                       max_seq_len: Optional[int] = None, drift: Optional[bool] = None,
                       ids: Optional[Literal['expanded', 'collapsed']] = None,
                       media: Optional[Literal['refs', 'inline', 'none']] = None, mask_unfinished: Optional[bool] = None,
                       require_trained: Optional[bool] = None, require_reward: Optional[bool] = None,
                       uid: Optional[str] = None, session_index: Optional[int] = None,
                       global_steps: Optional[int] = None) -> Export: ...
    async def chat(self, messages: Sequence[Mapping[str, Any]], *, timeout_s: float = 600.0, model: Any = None,
                   user: Any = None, metadata: Any = None, temperature: Optional[float] = None, top_p: Optional[float] = None,
                   top_k: Optional[int] = None, min_p: Optional[float] = None, seed: Optional[int] = None,
                   repetition_penalty: Optional[float] = None, presence_penalty: Optional[float] = None,
                   frequency_penalty: Optional[float] = None, stop: Optional[Union[str, Sequence[str]]] = None,
                   logit_bias: Any = None, ignore_eos: Optional[bool] = None, stop_token_ids: Any = None,
                   min_tokens: Optional[int] = None, max_thinking_tokens: Optional[int] = None,
                   thinking_token_budget: Optional[int] = None, repeat_last_n: Optional[int] = None,
                   allowed_token_ids: Any = None, bad_words: Optional[Sequence[str]] = None, n: Any = None,
                   response_format: Any = None, logprobs: Any = None, max_tokens: Optional[int] = None, tools: Any = None,
                   tool_choice: Any = None, chat_template_kwargs: Any = None, parallel_tool_calls: Any = None,
                   top_logprobs: Any = None, store: Any = None, max_completion_tokens: Optional[int] = None,
                   functions: Any = None, function_call: Any = None, reasoning_effort: Any = None,
                   enable_thinking: Any = None, thinking: Optional[Thinking] = None,
                   modalities: Any = None) -> dict[str, Any]: ...
