"""Samples of miles and slime, whose trainers share their layout: what both generate functions do.

The fields come from the gateway's `miles` format (docs/trajectories.md), and overwrite those of a copy of the
trainer's own sample."""
from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, Mapping, Optional

from .hooks import Hook, RolloutFailed, group_options
from .records import Tensors
from .retries import key_from_environment

ARRAYS = ("tokens", "loss_mask", "rollout_log_probs")
PLACES = ("rollout_routed_experts", "image_media", "image_spans", "image_grid_thw")     # set by themselves
# arrays that a session requests, by the start of their names -> the option
ASKED_FOR = {"teacher_log_probs": "score", "rollout_indexer_topk": "indexer_topk", "rollout_topk_": "top_logprobs",
             "rollout_sampling_mask_": "sampling_support"}


def hook_of(args: Any, hooks: dict[tuple[Any, ...], Hook], *, one_row: bool = False) -> Hook:
    """Returns the hook for the trainer's arguments: rollgate_runner, rollgate_url, rollgate_key, and the mappings
    rollgate_group, rollgate_session and rollgate_export. Different arguments, such as those of an evaluation, have
    separate hooks."""
    runner, url, key, group, session, export = (getattr(args, f"rollgate_{name}", None)
                                                for name in ("runner", "url", "key", "group", "session", "export"))
    key = key_from_environment(key)
    options = group_options(group, session, export)
    name = (runner, url, key, json.dumps(options, sort_keys=True))
    if name not in hooks:
        hooks[name] = Hook(runner or "", url, key, options, one_row=one_row)
    return hooks[name]


def show(out: Any, tensors: Tensors, i: int, names: list[str], processor: Any) -> None:
    """Adds sample i's pictures (tensors of their files' bytes), and the tensors that the model's processor makes of
    them without resizing, so that each picture has as many tokens as the engine counted. Raises ValueError if the
    counts differ, or there is no processor."""
    import io

    from PIL import Image
    if processor is None:
        raise ValueError(f"a sample shows {len(names)} images, and the trainer has no processor of the model: "
                         "they would be dropped")
    images = [Image.open(io.BytesIO(bytes(tensors.view(name)))) for name in names]
    made = dict(processor.image_processor(images=images, return_tensors="pt"))
    want = tensors[f"image_grid_thw.{i}"].tolist()
    if made["image_grid_thw"].tolist() != want:
        raise ValueError(f"the trainer's processor makes the grids {made['image_grid_thw'].tolist()} of images that the "
                         f"engine saw as {want}")
    out.multimodal_inputs, out.multimodal_train_inputs = {"images": images}, made


def put_top_p(out: Any, tensors: Mapping[str, Any], i: int) -> None:
    """Sets slime's fields of a sampling support: `rollout_top_p_token_ids`, and `rollout_top_p_token_offsets`, where
    each token's ids begin. Tokens that were not sampled have no row; in miles' layout they have themselves."""
    import numpy
    out.rollout_top_p_token_ids = out.rollout_top_p_token_offsets = None
    if f"rollout_sampling_mask_ids.{i}" not in tensors:
        return
    ids, offsets = (tensors[f"rollout_sampling_mask_{what}.{i}"] for what in ("ids", "offsets"))
    sampled, counts = tensors[f"loss_mask.{i}"].astype(bool), numpy.diff(offsets)
    out.rollout_top_p_token_ids = ids[numpy.repeat(sampled, counts)].tolist()
    out.rollout_top_p_token_offsets = [0, *numpy.cumsum(numpy.where(sampled, counts, 0)).tolist()]


def put_asked_for(out: Any, tensors: Mapping[str, Any], i: int) -> None:
    """Sets the arrays that the session requested, if the trainer's samples have attributes of these names: logprobs
    of tokens as lists, the others as arrays. Raises ValueError for an array without an attribute, which would be
    lost."""
    for name in ("teacher_log_probs", "rollout_indexer_topk"):
        if hasattr(out, name):      # left from an earlier rollout of the same sample
            setattr(out, name, None)
    top_p = hasattr(out, "rollout_top_p_token_ids")
    if top_p:
        put_top_p(out, tensors, i)
    for whole in tensors:
        name, _, k = whole.rpartition(".")
        if k != str(i) or name in (*ARRAYS, *PLACES, "media") or top_p and name.startswith("rollout_sampling_mask_"):
            continue
        if not hasattr(out, name):
            option = next((option for begin, option in ASKED_FOR.items() if name.startswith(begin)), "no known option")
            raise ValueError(f"the session kept {name} (by {option}), and the trainer's samples have no place for it")
        setattr(out, name, tensors[whole].tolist() if name.endswith("_log_probs") else tensors[whole].copy())


def overlay(sample: Any, tensors: Tensors, i: int, meta: Mapping[str, Any], processor: Any = None) -> Any:
    """Copies the trainer's sample with the fields of sample i of a miles export (media=inline)."""
    out = deepcopy(sample)
    if meta.get("multimodal_inputs"):
        show(out, tensors, i, meta["multimodal_inputs"]["images"], processor)
    for name in ARRAYS:
        setattr(out, name, tensors[f"{name}.{i}"].tolist() if f"{name}.{i}" in tensors else None)
    experts = f"rollout_routed_experts.{i}"
    out.rollout_routed_experts = tensors[experts].copy() if experts in tensors else None
    put_asked_for(out, tensors, i)
    out.response, out.response_length = meta["response"], meta["response_length"]
    out.status = type(out).Status(meta["status"])
    out.weight_versions = list(meta["weight_versions"])
    out.prefix_cache_info = type(out).PrefixCacheInfo.from_dict(meta["prefix_cache_info"])
    out.metadata = {**(sample.metadata or {}), **meta["metadata"]}
    if meta["reward"] is not None:
        out.reward = meta["reward"]
    return out


def refused(sample: Any, why: str) -> Any:
    """Makes the sample of a rollout without training data: aborted and without loss."""
    out = deepcopy(sample)
    out.status, out.remove_sample = type(out).Status.ABORTED, True
    out.metadata = {**(sample.metadata or {}), "rollgate_failure": why}
    return out


async def generate(hook: Hook, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool, pick: Optional[str] = None,
                   processor: Any = None) -> list[Any]:
    """Returns the samples of one rollout, or the one refused sample. pick: the trainer's own choice of branches.
    processor: the model's, if it takes images."""
    task = {"prompt": sample.prompt, "label": sample.label, "metadata": sample.metadata or {}, "evaluation": evaluation}
    labels = {"index": str(sample.index), "group_index": str(sample.group_index)}
    try:
        member = await hook.one(task, sampling_params, labels=labels, evaluation=evaluation)
    except RolloutFailed as e:
        return [refused(sample, str(e))]
    tensors = await hook.export(member, "miles", pick, media="inline")
    metas = tensors_meta(tensors)
    if not metas:
        return [refused(sample, f"session {member['session_id']} has nothing to train")]
    if not hook.external and any(m["reward"] is None for m in metas):
        raise ValueError(f"session {member['session_id']} has no reward; "
                         "set rollgate_group.reward to external where the trainer scores")
    return [overlay(sample, tensors, i, m, processor) for i, m in enumerate(metas)]


def tensors_meta(tensors: Tensors) -> list[dict[str, Any]]:
    """Returns the JSON in the file of a miles export: one entry for each sample."""
    samples: list[dict[str, Any]] = json.loads(bytes(tensors.view("_samples_meta")))["samples"]
    return samples
