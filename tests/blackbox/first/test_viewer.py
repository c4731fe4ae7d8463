"""The viewer over HTTP: its files, and the routes that only it uses. A browser runs the page itself in
test_viewer_page.py."""
import base64
import gzip
import itertools
import json
import math
import re
import struct

import pytest

import gateway as g

ADMIN = "an-admin-key-of-the-viewers-tests"


@pytest.fixture
def locked(start, tmp_path):
    """A gateway that wants keys."""
    keys = tmp_path / "admin.keys"
    keys.write_text(ADMIN + "\n")
    return start(engine="builtin:echo", admin_key_file=str(keys))


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def read_tensors(data):
    """A safetensors file: (name -> list of numbers, metadata)."""
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    meta = {k: v if k in ("session_id", "phase") else json.loads(v) for k, v in head.pop("__metadata__").items()}
    kinds = {"I32": ("i", 4), "F32": ("f", 4), "U8": ("B", 1)}
    out = {}
    for name, t in head.items():
        letter, size = kinds[t["dtype"]]
        first, last = t["data_offsets"]
        out[name] = list(struct.unpack(f"<{(last - first) // size}{letter}", data[8 + n:][first:last]))
    return out, meta


def bytes_of(word):
    return word["t"].encode() if "t" in word else base64.b64decode(word["b"])


def test_files(start):
    gateway = start(engine="builtin:echo", workers=1)
    page = gateway.get("/ui")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff" and "frame-ancestors 'none'" in policy
    files = re.findall(r'(?:src|href)="(ui/[^"]+)"', page.text)
    assert "ui/app.js" in files and "ui/app.css" in files
    todo, size = set(files), len(gzip.compress(page.body))
    seen = set()
    while todo:     # every module that is imported is there, and nothing comes from elsewhere
        name = todo.pop()
        seen.add(name)
        packed = gateway.get("/" + name, headers={"Accept-Encoding": "gzip, br"})
        plain = gateway.get("/" + name)
        assert packed.status == plain.status == 200, name
        assert packed.headers["Content-Encoding"] == "gzip" and plain.headers.get("Content-Encoding") is None
        assert gzip.decompress(packed.body) == plain.body == (g.ROOT / name).read_bytes()
        assert plain.headers["ETag"] == packed.headers["ETag"] and plain.headers["Vary"] == "Accept-Encoding"
        assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", plain.text) and "https://" not in plain.text
        todo |= {"ui/" + other for other in re.findall(r'from "\./([^"]+)"', plain.text)} - seen
        size += len(packed.body)
    assert size < 300_000
    again = gateway.get("/ui/app.js", headers={"If-None-Match": gateway.get("/ui/app.js").headers["ETag"]})
    assert again.status == 304 and again.body == b"" and again.headers["ETag"]
    other = gateway.get("/ui/app.js", headers={"If-None-Match": '"another"'})
    assert other.status == 200 and other.body


def test_what_is_no_file(start):
    gateway = start(engine="builtin:echo", workers=1)
    slash = gateway.get("/ui/")
    assert slash.status == 308 and slash.headers["Location"] == "../ui"
    for path in ("/ui/none.js", "/ui/../ui/app.js", "/ui/app.js/x", "/ui/%61pp.js"):
        assert gateway.get(path).status == 404, path
    wrong = gateway.post("/ui/app.js", {})
    assert wrong.status == 405 and wrong.headers["Allow"] == "GET"
    assert gateway.post("/ui", {}).status == 405
    assert gateway.get("/ui?x=1").status == 400


def test_switched_off(start):
    gateway = start(engine="builtin:echo", workers=1, ui=False)
    for path in ("/ui", "/ui/app.js"):
        answer = gateway.get(path)
        assert answer.status == 404 and "--ui" in answer.json()["error"]["message"]


def test_files_need_no_key_and_hold_none(locked):
    assert locked.get("/ui").status == 200 and locked.get("/ui/app.js").status == 200
    session = locked.post("/sessions", {}, headers=bearer(ADMIN)).json()
    for key in (ADMIN, session["api_key"], session["runner_key"], "no key at all"):
        assert locked.get("/ui", headers=bearer(key)).status == 200


def test_a_branch_token_by_token(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    path = f"/sessions/{session['session_id']}"
    messages = [{"role": "user", "content": "Grüße, 世界"}]
    first = gateway.chat(session, messages).json()
    ends = [first["id"]]
    for text in ("and on", "and on another way"):
        messages_now = messages + [first["choices"][0]["message"], {"role": "user", "content": text}]
        ends.append(gateway.chat(session, messages_now).json()["id"])
    everything = gateway.get(path + "/trajectories?select=all_checkpoints").json()["trajectories"]
    native = {t["turns"][-1]["response_id"]: t for t in everything}
    newest, _ = read_tensors(gateway.get(path + "/tokens").body)
    for end in ends:
        tensors, meta = read_tensors(gateway.get(f"{path}/tokens?branch={end}").body)
        want = next(t for name, t in native.items() if name.endswith(end.rsplit("-", 1)[-1]))
        assert tensors["ids.0"] == want["prompt_ids"] + want["response_ids"]
        assert tensors["response_mask.0"] == want["response_mask"]
        assert tensors["response_logprobs.0"] == pytest.approx(want["response_logprobs"])
        (rest,) = meta["trajectories"]
        assert rest["messages"] == want["messages"] and rest["turns"] == want["turns"]
        assert rest["extra_fields"]["drift"] is None
        assert set(map(int, meta["vocabulary"])) == set(tensors["ids.0"])
        assert (tensors["ids.0"] == newest["ids.0"]) == (end == ends[-1])
        words = meta["vocabulary"]
        text = b"".join(bytes_of(words[str(i)]) for i in tensors["ids.0"]).decode()
        assert "<|im_start|>user\nGrüße, 世界<|im_end|>" in text
        assert {v["t"] for v in words.values() if v.get("s")} == {"<|im_start|>", "<|im_end|>"}
    audited = read_tensors(gateway.get(f"{path}/tokens?drift=on").body)[1]["trajectories"][0]
    assert audited["extra_fields"]["drift"] == {"count": 0, "first": None}


def test_tools_that_alternate_are_written_once(start, tmp_path):
    template = tmp_path / "t.jinja"     # long tools would be a long prompt
    template.write_text("{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}"
                        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}")
    gateway = start(engine="builtin:echo", workers=1, chat_template=str(template))

    def tools_of(*lists):
        session = gateway.post("/sessions", {"history": "timelines"}).json()
        messages = []
        for i, tools in enumerate(lists):
            messages.append({"role": "user", "content": f"word {i}"})
            answer = gateway.chat(session, messages, **({"tools": tools} if tools else {}))
            assert answer.status == 200, answer.text
            messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        _, meta = read_tensors(gateway.get(f"/sessions/{session['session_id']}/tokens").body)
        assert len(meta["trajectories"][0]["turns"]) == len(lists)
        return meta["tools"]

    def tool(name, length):
        return [{"type": "function", "function": {"name": name, "description": "x" * length, "parameters": {"type": "object"}}}]
    a, b = tool("a", 10), tool("b", 10)
    assert tools_of(a, a, b, b, a, b, None, a) == [
        {"turn": 0, "tools": a}, {"turn": 2, "tools": b}, {"turn": 4, "same": 0}, {"turn": 5, "same": 2}, {"turn": 6, "tools": []},
        {"turn": 7, "same": 0}]
    a, b = tool("a", 700_000), tool("b", 600_000)
    assert tools_of(a, b, a, b) == [
        {"turn": 0, "tools": a}, {"turn": 1, "cut": True, "n": 1}, {"turn": 2, "same": 0}, {"turn": 3, "same": 1}]


def test_a_branch_that_is_none(start):
    gateway = start(engine="builtin:echo", workers=1)
    session = gateway.post("/sessions", {}).json()
    path = f"/sessions/{session['session_id']}/tokens"
    tensors, meta = read_tensors(gateway.get(path).body)
    assert tensors == {} and meta["trajectories"] == [] and meta["vocabulary"] == {}
    wrong = gateway.get(path + "?branch=chatcmpl-00").json()["error"]
    assert wrong["param"] == "branch"
    assert gateway.get(path + "?branch=").status == 400
    assert gateway.get(path + "?format=json").status == 400
    assert gateway.get(path.replace("/tokens", "/trajectories?format=view")).status == 400


def test_who_may_look_at_tokens(locked):
    one, two = (locked.post("/sessions", {}, headers=bearer(ADMIN)).json() for _ in range(2))
    path = f"/sessions/{one['session_id']}/tokens"
    assert locked.get(path).status == 401
    assert locked.get(path, headers=bearer(ADMIN)).status == 200
    assert locked.get(path, headers=bearer(one["runner_key"])).status == 200
    for key in (one["api_key"], two["runner_key"], two["api_key"]):
        assert locked.get(path, headers=bearer(key)).status == 403


def linear(v):
    return v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4


def luminance(colour):
    red, green, blue = (linear(int(colour[i:i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# Inks of the style sheet on the grounds that they stand on.
PAIRS = ([(ink, ground) for ink in ("ink", "quiet", "link", "good", "bad", "warn") for ground in ("ground", "panel", "own")]
         + [("on-mark", "mark"), ("ink", "del"), ("ink", "ins")])


def test_themes_have_contrast():
    css = (g.ROOT / "ui/app.css").read_text()
    themes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r"root[^{]*\{([^}]*)\}", css)]
    assert len(themes) == 3 and themes[1] == themes[2], "light; dark by choice and dark by the system are the same"
    for theme in themes[:2]:
        for ink, ground in PAIRS:
            assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground, contrast(theme[ink], theme[ground]))
        for line in ("curve", "second", "mark", "quiet"):
            assert contrast(theme[line], theme["panel"]) >= 3, line


def test_tokens_have_contrast():
    pairs = re.findall(r'\["(#[0-9a-f]{6})", "(#[0-9a-f]{6})"\]', (g.ROOT / "ui/colours.js").read_text())
    assert len(pairs) > 30
    for ground, ink in pairs:
        assert contrast(ground, ink) >= 4.5, (ground, ink, contrast(ground, ink))


# How eyes without one of the three cones see linear RGB (Machado, Oliveira and Fernandes, 2009).
EYES = {"all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "no red": ((.152286, 1.052583, -.204868), (.114503, .786281, .099216), (-.003882, -.048116, 1.051998)),
        "no green": ((.367322, .860646, -.227968), (.280085, .672501, .047413), (-.011820, .042940, .968881)),
        "no blue": ((1.255528, -.076749, -.178779), (-.078411, .930809, .147602), (.004733, .691367, .303900))}
XYZ = ((.4124 / .9505, .3576 / .9505, .1805 / .9505), (.2126, .7152, .0722), (.0193 / 1.089, .1192 / 1.089, .9505 / 1.089))


def lab(colour, eyes):
    """CIE L*a*b* of a colour as these eyes see it: 2.3 is a difference that can just be noticed."""
    rgb = [linear(int(colour[i:i + 2], 16) / 255) for i in (1, 3, 5)]
    seen = [min(1, max(0, sum(a * b for a, b in zip(row, rgb)))) for row in EYES[eyes]]
    light = [sum(a * b for a, b in zip(row, seen)) for row in XYZ]
    x, y, z = (v ** (1 / 3) if v > .008856 else 7.787 * v + 16 / 116 for v in light)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["LIGHT", "DARK"])
def test_tokens_can_be_told_apart_by_all_eyes(theme):
    block = re.search(rf"const {theme} = \{{(.*?)\n\}};", (g.ROOT / "ui/colours.js").read_text(), re.S)[1]
    found = re.findall(r"(\w+): (\[\[.*?\]\]|\[.*?\]),", block, re.S)
    grounds = {name: re.findall(r'\["(#[0-9a-f]{6})"', value) for name, value in found}
    assert len(grounds["kinds"]) == 8 and len(grounds["amounts"]) == len(grounds["ratios"]) == 7
    scales = [[ground for name in names for ground in grounds[name]] for names in (
        ("context", "amounts"), ("context", "kinds"), ("context", "model", "untrained"), ("context", "differs", "none"), ("context", "ratios"))]
    for eyes in EYES:
        for scale in scales:
            for a, b in itertools.combinations(scale, 2):
                assert math.dist(lab(a, eyes), lab(b, eyes)) >= 5, (eyes, a, b)
