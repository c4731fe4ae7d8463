"""Exports of sessions with images: every array covers the runs of tokens, and formats have their trainers' members
(docs/multimodal.md, 5)."""
import base64
import http.client
import json
import subprocess

import pytest

import vision_kit as kit
from export_readers import Msgpack, read_safetensors
from gateway import wait_until
from odds_engine import OddsEngine
from scoring_engine import ScoringEngine
from vision_kit import big, chat, image, media, session, text, user

SHOTS = [kit.png(320, 240, 1), kit.png(256, 512, 2)]


class VisionOdds(kit.VisionStub, OddsEngine):
    """Supports and alternatives of an answer to a prompt with images."""


def talk(gateway, sid, shots=SHOTS):
    """A turn with a picture each, the first behind a turn without: runs in the prompt's and in the response's part."""
    messages = [user(text("begin"), *(image(s) for s in shots[:1]))]
    for shot in (*shots[1:], None):
        answer = chat(gateway, sid, messages)
        assert answer.status == 200, answer.body
        messages.append(answer.json()["choices"][0]["message"])
        if shot:
            messages.append(user(text("look"), image(shot), text("there")))
    return messages


def cells(trajectory, name, dtype):
    import numpy
    return numpy.frombuffer(base64.b64decode(trajectory[name]), dtype).reshape(trajectory[name + "_shape"])


def test_alternatives_stand_behind_the_runs_too(vision):
    engine, gateway = vision(made_by=VisionOdds)
    sid = session(gateway, sampling_support=True, top_logprobs=2)
    talk(gateway, sid)
    for ids in ("expanded", "collapsed"):
        t = gateway.get(f"/sessions/{sid}/trajectories?ids={ids}").json()["trajectories"][0]
        n, mask = len(t["response_ids"]), t["response_mask"]
        assert (n > sum(mask) + 100) == (ids == "expanded")
        counts, tops = cells(t, "response_support_counts", "<i4"), cells(t, "response_top_ids", "<i4")
        assert counts.shape == (n,) and tops.shape == (n, 2) == cells(t, "response_top_logprobs", "<f4").shape
        assert [int(c > 0) for c in counts] == mask == [int(row[0] >= 0) for row in tops]
        firsts = counts.cumsum() - counts
        support = cells(t, "response_support_ids", "<i4")
        assert [support[at] for at, m in zip(firsts, mask) if m] == [i for i, m in zip(t["response_ids"], mask) if m]


def test_scorers_are_not_asked_for_pictures(vision):
    """They are sent ids alone, another prompt: that nothing is known is told, or refused when it was asked for just now."""
    with ScoringEngine("sglang") as scorer:
        engine, gateway = vision(scorer=[f"teacher={scorer.setting}"])
        wants = [{"engine": "teacher"}]
        sid = session(gateway, score=wants)
        talk(gateway, sid)
        refused = gateway.post(f"/sessions/{sid}/finalize", {"score": wants})
        assert refused.status == 400 and "images" in refused.json()["error"]["message"], refused.body
        done = gateway.post(f"/sessions/{sid}/finalize", {}).json()
        assert "score" in done["summary"]["warnings"][-1] and "teacher_logprobs" not in done["trajectories"][0]
        assert not scorer.requests


def exported(vision, shots=SHOTS):
    engine, gateway = vision()
    sid = session(gateway, metadata={"env_name": "e"})
    talk(gateway, sid, shots)
    path = f"/sessions/{sid}/trajectories?format="
    return sid, gateway, lambda what: gateway.get(path + what)


def table_of(gateway, sid, shots=SHOTS):
    return [{"sha256": kit.sha(s), "format": "png", "width": kit.size_of(s)[0], "height": kit.size_of(s)[1], "bytes": len(s),
             "exif_orientation": 1, "url": f"/sessions/{sid}/media/{kit.sha(s)}"} for s in shots]


def test_the_table_holds_the_bytes_when_it_is_asked_to(vision):
    sid, gateway, get = exported(vision)
    table = table_of(gateway, sid)
    native = get("json").json()
    assert native["summary"]["media"] == table == get("json&media=refs").json()["summary"]["media"]
    assert [i["turn"] for i in native["trajectories"][0]["images"]] == [0, 1]
    whole = get("json&media=inline").json()
    assert whole["trajectories"] == native["trajectories"]
    assert whole["summary"]["media"] == [{**row, "data": kit.b64(s)} for row, s in zip(table, SHOTS)]
    packed = Msgpack(get("msgpack&media=inline").body).value()
    assert packed["summary"]["media"] == [{**row, "data": s} for row, s in zip(table, SHOTS)]
    assert Msgpack(get("msgpack").body).value()["summary"] == native["summary"]
    bare = get("json&media=none").json()
    assert "media" not in bare["summary"] and bare["trajectories"] == native["trajectories"]
    refused = get("json&media=all")
    assert refused.status == 400 and "media must be one of refs, inline, none" in refused.text
    assert get("openai-messages&media=inline").status == 400


@pytest.mark.parametrize("form", ["safetensors", "verl", "areal", "miles"])
def test_tensors_hold_places_and_bytes(vision, form):
    sid, gateway, get = exported(vision)
    t = get("json").json()["trajectories"][0]
    tensors, _ = read_safetensors(get(f"{form}&media=inline").body)
    assert [bytes(tensors[f"media.{k}"][2]) for k in range(len(SHOTS))] == SHOTS
    assert tensors["image_media.0"][1:] == ([2], [0, 1])
    assert tensors["image_spans.0"][1:] == ([2, 2], [n for i in t["images"] for n in (i["offset"], i["length"])])
    assert tensors["image_grid_thw.0"][1:] == ([2, 3], [n for i in t["images"] for n in i["grid_thw"]])
    ids = next(tensors[name][2] for name in ("input_ids.0", "tokens.0", "prompt_ids.0") if name in tensors)
    assert ids == (t["prompt_ids"] + t["response_ids"])[:len(ids)]
    refs, _ = read_safetensors(get(form).body)
    assert not [name for name in refs if name.startswith("media.")]
    assert {k: v for k, v in refs.items() if k != "_samples_meta"}.items() <= tensors.items()
    if form == "miles":
        sample, = json.loads(bytes(refs["_samples_meta"][2]))["samples"]
        assert sample["multimodal_inputs"] == {"images": [row["url"] for row in table_of(gateway, sid)]}
        sample, = json.loads(bytes(tensors["_samples_meta"][2]))["samples"]
        assert sample["multimodal_inputs"] == {"images": ["media.0", "media.1"]}
    else:
        assert "image_spans.0" in refs


def test_positions_of_verl_are_those_of_the_model(vision):
    """[text, time, row, column]; a row of a text, of a model that sees pictures, counts up on all four."""
    sid, gateway, get = exported(vision)
    t = get("json").json()["trajectories"][0]
    tensors, _ = read_safetensors(get("verl").body)
    ids = t["prompt_ids"] + t["response_ids"]
    grids = [list(kit.grid(*kit.size_of(s))) for s in SHOTS]
    assert tensors["image_grid_thw.0"][2] == [n for grid in grids for n in grid]
    want = kit.position_ids(ids, grids)
    assert tensors["position_ids.0"][1:] == ([4, len(ids)], [n for row in want for n in row])
    collapsed, _ = read_safetensors(get("verl&ids=collapsed").body)
    n = len(collapsed["input_ids.0"][2])
    assert n < len(ids) and collapsed["position_ids.0"][1:] == ([n], list(range(n)))
    other = session(gateway)
    assert chat(gateway, other, [user(text("text"))]).status == 200
    tensors, _ = read_safetensors(gateway.get(f"/sessions/{other}/trajectories?format=verl").body)
    n = len(tensors["input_ids.0"][2])
    assert tensors["position_ids.0"][1:] == ([4, n], list(range(n)) * 4)


@pytest.mark.parametrize("media", ["refs", "inline"])
def test_samples_name_the_pictures_as_their_trainers_do(vision, media):
    sid, gateway, get = exported(vision)
    t = get("json").json()["trajectories"][0]
    urls = [kit.url(s) for s in SHOTS] if media == "inline" else [row["url"] for row in table_of(gateway, sid)]
    sample, = get(f"slime&media={media}").json()["samples"]
    assert sample["multimodal_inputs"] == {"images": urls}
    sample, = get(f"prime-rl&media={media}").json()["samples"]
    assert sample["mm_token_type_ids"] == [int(i == kit.PAD) for i in sample["token_ids"]]
    assert sample["mm_refs"] == {"images": [{"url": u, "offset": i["offset"], "length": i["length"]}
                                            for u, i in zip(urls, t["images"])]}
    for form in ("slime", "prime-rl"):
        sample, = get(f"{form}&media=none").json()["samples"]
        assert "multimodal_inputs" not in sample and "mm_refs" not in sample


def test_a_picture_that_is_gone_or_another_is_no_export(vision):
    sid, gateway, get = exported(vision)
    path = media(gateway) / "sessions" / sid / kit.sha(SHOTS[1])
    for bytes_, why in ((SHOTS[1][:-20] + b"x" * 20, "changed"), (SHOTS[1][:-1], "changed"), (None, "gone")):
        path.unlink()
        if bytes_:
            path.write_bytes(bytes_)
        for form in ("json", "msgpack", "verl", "slime"):
            gateway.allow("an export broke", "malformed")
            try:
                answer = get(f"{form}&media=inline")
            except (OSError, http.client.HTTPException):
                continue    # it was seen behind the first byte
            seen_late = answer.status == 502 and "malformed" in answer.text
            assert seen_late or answer.status in (500, 503) and why in answer.text, (form, why, answer.body)
        assert get("json").status == 200


def test_a_large_picture_goes_into_exports_whole(vision):
    shots = [big(3000), big(1), big(900, 2)]
    sid, gateway, get = exported(vision, shots)
    table = get("json&media=inline").json()["summary"]["media"]
    assert [base64.b64decode(row["data"], validate=True) for row in table] == shots
    assert [row["data"] for row in Msgpack(get("msgpack&media=inline").body).value()["summary"]["media"]] == shots
    sample, = get("slime&media=inline").json()["samples"]
    assert [kit.of_data_url(u) for u in sample["multimodal_inputs"]["images"]] == shots
    gateway.stop()
    done = subprocess.run([str(gateway.binary), "export", str(media(gateway).parent / "worker-0"), "--format", "json",
                           "--model", gateway.settings["model"], "media=inline"], capture_output=True, text=True, timeout=60)
    assert [base64.b64decode(row["data"]) for row in json.loads(done.stdout)["summary"]["media"]] == shots, done.stderr


def test_a_sink_gets_the_bytes_that_finalize_asked_for(vision, tmp_path):
    engine, gateway = vision(sink=f"file:{tmp_path}/out")
    sid = session(gateway)
    talk(gateway, sid)
    assert gateway.post(f"/sessions/{sid}/finalize", {"format": "none", "media": "inline"}).status == 200
    out = tmp_path / "out" / f"{sid}.msgpack"
    wait_until(out.exists, what="it is delivered")
    assert [row["data"] for row in Msgpack(out.read_bytes()).value()["summary"]["media"]] == SHOTS


def test_a_sink_gets_a_session_once_its_picture_is_at_hand_again(vision, tmp_path):
    engine, gateway = vision(sink=f"file:{tmp_path}/out")
    sid = session(gateway, sink=False)
    talk(gateway, sid)
    path = media(gateway) / "sessions" / sid / kit.sha(SHOTS[1])
    assert gateway.post(f"/sessions/{sid}/finalize", {"format": "none"}).status == 200
    path.rename(tmp_path / "kept")
    assert gateway.post(f"/sessions/{sid}/deliver", {"media": "inline"}).status == 200
    gateway.wait_line("an export for the sinks failed: it is tried again.*image of this session is gone")
    other = session(gateway)
    talk(gateway, other)
    assert gateway.post(f"/sessions/{other}/finalize").status == 200
    wait_until((tmp_path / "out" / f"{other}.msgpack").exists, 20, "it holds up no other")
    (tmp_path / "kept").rename(path)
    there = tmp_path / "out" / f"{sid}.msgpack"
    wait_until(there.exists, 60, "it came")
    assert [row["data"] for row in Msgpack(there.read_bytes()).value()["summary"]["media"]] == SHOTS


def test_what_cannot_be_assembled_is_given_up_and_holds_up_no_sink(vision, tmp_path):
    """The model takes no images any more, of which a session has some: no later try could be better."""
    engine, gateway = vision(sink=f"file:{tmp_path}/out")
    sid = session(gateway, sink=False)
    talk(gateway, sid)
    assert gateway.post(f"/sessions/{sid}/finalize", {"format": "none"}).status == 200
    assert gateway.stop() == 0
    (tmp_path / "vision-model" / "preprocessor_config.json").unlink()
    gateway.allow("cannot be exported to the sinks")
    gateway.start()
    assert gateway.post(f"/sessions/{sid}/deliver").status == 200
    gateway.wait_line("cannot be exported to the sinks.*takes text only")
    wait_until(lambda: gateway.metrics()["rollgate_sink_waiting"] == 0, what="it does not wait")
    other = session(gateway)
    assert chat(gateway, other, [user(text("hello"))]).status == 200
    assert gateway.post(f"/sessions/{other}/finalize").status == 200
    wait_until((tmp_path / "out" / f"{other}.msgpack").exists, 20, "another is delivered")
    assert gateway.metrics()["rollgate_sink_errors_total"] == 1 and not gateway.has_line("it is tried again")
    assert gateway.request("DELETE", f"/sessions/{sid}").status == 204
