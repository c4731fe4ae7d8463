"""What trainers get of sessions with images: every array has room for the runs, formats have their trainers' members
(docs/multimodal.md, 5)."""
import base64

import vision_kit as kit
from odds_engine import OddsEngine
from scoring_engine import ScoringEngine
from vision_kit import chat, image, session, text, user

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
