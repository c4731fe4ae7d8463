"""A small vision model's folder, pictures made without a library, and the published formula in plain Python."""
import base64
import contextlib
import hashlib
import json
import math
import random
import struct
import zlib
from pathlib import Path

from gateway import ROOT
from stub_engines import StubEngine

TOKENIZER = ROOT / "tests/data/tokens/tiny-qwen3.5/tokenizer.json"
PAD_TEXT = "<|image_pad|>"
TEMPLATE = """{%- macro show(content) %}
{%- if content is string %}{{- content }}{%- else %}{%- for p in content %}
{%- if p.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{- p.text }}{%- endif %}
{%- endfor %}{%- endif %}{%- endmacro %}
{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}{%- for t in tools %}{{- t | tojson }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'system' and m.content is not string %}{%- for p in m.content %}{%- if p.type == 'image' %}
{{- raise_exception('System message cannot contain images.') }}{%- endif %}{%- endfor %}{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' }}{{- show(m.content) }}
{%- if m.tool_calls %}{%- for tc in m.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + tc.function.name + '", "arguments": ' }}
{{- tc.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
# Qwen3-VL's numbers
PROCESSOR = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2,
             "size": {"shortest_edge": 65536, "longest_edge": 16777216}}


def added(text):
    for t in json.loads(TOKENIZER.read_text(encoding="utf-8"))["added_tokens"]:
        if t["content"] == text:
            return t["id"]
    raise KeyError(text)


PAD, IM_END = added(PAD_TEXT), added("<|im_end|>")
GOOD = {"ids": [72, 73, IM_END], "matched": IM_END}     # an answer


def model_folder(path, processor=PROCESSOR, template=TEMPLATE, tokens=()):
    """Makes a model folder. `tokens` are added to the tokenizer."""
    path.mkdir()
    tokenizer = json.loads(TOKENIZER.read_text(encoding="utf-8"))
    known = tokenizer["added_tokens"]
    last = max(t["id"] for t in known)
    known += [{**known[0], "id": last + i, "content": t} for i, t in enumerate(tokens, 1)]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"eos_token": "<|im_end|>", "model_max_length": 200000, "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if processor:
        (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


def chunk(name, data):
    """Returns a chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, shade=0):
    """Returns a grey picture. A different shade gives a different file."""
    rows = (b"\0" + bytes([shade & 255]) * width) * height
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + \
        chunk(b"tEXt", b"n\0%d" % shade) + chunk(b"IEND", b"")


def big(kilobytes, seed=1):
    """Returns a picture that does not compress, because it contains random text."""
    data = png(64, 64)
    note = random.Random(seed).randbytes(kilobytes << 10)
    return data[:-12] + chunk(b"tEXt", note) + data[-12:]


def jpeg(width, height):
    """Returns the headers of a JPEG: a frame, an empty scan, the end."""
    sof = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + b"\xff\xc0" + struct.pack(">H", len(sof) + 2) + sof + \
        b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + b"\x12\xff\x00\x34" * 5 + b"\xff\xd9"


def b64(data):
    return base64.b64encode(data).decode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def url(data, kind="png"):
    return f"data:image/{kind};base64,{b64(data)}"


def image(data, kind="png"):
    return {"type": "image_url", "image_url": {"url": url(data, kind)}}


def grid(width, height, config=PROCESSOR):
    """Returns (1, rows, columns of patches) by the rules of the family's processor. Raises ValueError if it refuses
    the size."""
    factor = config["patch_size"] * config["merge_size"]
    low, high = config["size"]["shortest_edge"], config["size"]["longest_edge"]
    if max(height, width) / min(height, width) > 200:
        raise ValueError("aspect")
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > high:
        beta = math.sqrt((height * width) / high)
        h, w = (max(factor, math.floor(x / beta / factor) * factor) for x in (height, width))
    elif h * w < low:
        beta = math.sqrt(low / (height * width))
        h, w = (math.ceil(x * beta / factor) * factor for x in (height, width))
    return 1, h // config["patch_size"], w // config["patch_size"]


def tokens(width, height, config=PROCESSOR):
    _, h, w = grid(width, height, config)
    return h * w // config["merge_size"] ** 2


def size_of(data):
    """Returns width and height of a PNG."""
    if data[:4] == b"\x89PNG":
        return struct.unpack(">II", data[16:24])
    at = data.index(b"\xff\xc0")
    height, width = struct.unpack(">HH", data[at + 5:at + 9])
    return width, height


def expand(ids, pictures, config=PROCESSOR):
    """Expands each placeholder to the run of its picture."""
    left = list(pictures)
    out = []
    for i in ids:
        out += [PAD] * tokens(*size_of(left.pop(0)), config) if i == PAD else [i]
    if left:
        raise ValueError(f"{len(left)} pictures without a placeholder")
    return out


def of_data_url(text):
    """Returns the bytes of an image_data entry, parsed as strictly as the server does."""
    head, data = text.split(",", 1)
    assert head.startswith("data:image/") and head.endswith(";base64"), head
    return base64.b64decode(data, validate=True)


def position_ids(ids, grids, merge=2):
    """Returns the rows text, t, h, w that models of the Qwen family compute for still pictures."""
    text, rows, left, at, i = list(range(len(ids))), [[], [], []], list(grids), 0, 0
    while i < len(ids):
        if ids[i] != PAD:
            for r in rows:
                r.append(at)
            at, i = at + 1, i + 1
            continue
        t, h, w = left.pop(0)
        h, w = h // merge, w // merge
        for a in range(t):
            for b in range(h):
                for c in range(w):
                    for r, v in zip(rows, (a, b, c)):
                        r.append(at + v)
        at, i = at + max(t, h, w), i + t * h * w
    return [text, *rows]


class VisionStub(StubEngine):
    """An engine that expands placeholders, as SGLang does with `image_data`. `vision` is a function of ids and
    pictures that returns the ids that the model sees. `seen` has its results."""

    def __init__(self, kind="sglang", **more):
        super().__init__(kind, **more)
        self.vision, self.seen, self.looks, self.knows = expand, [], [], True

    def told(self, body, ids, urls):
        """Returns the ids of the prompt as the model sees them. Records the gateway's questions at its start
        separately."""
        if "vision-probe" in (body.get("rid") or body.get("request_id")):
            self.looks.append(body)
            self.requests[:] = [r for r in self.requests if r["body"] is not body]
        told = self.vision(ids, [of_data_url(u) for u in urls]) if urls and self.knows else ids
        if body not in self.looks:
            self.seen.append(told)
        return told

    def sglang(self, body, plan, stream, route):
        told = self.told(body, body["input_ids"], body.get("image_data") or ())
        docs = super().sglang(body, {"prompt_tokens": len(told), **plan}, stream, route)
        for doc in docs if body.get("return_prompt_token_ids") else ():
            doc["prompt_token_ids"] = told
        return docs

    def vllm(self, body, plan, stream, route):
        if route != "generate":
            return super().vllm(body, plan, stream, route)
        # Flat content parts, as both fronts of vLLM read them (September 2026). Images in nested parts are not seen.
        urls = [p["url"] for p in body.get("content_parts") or () if p.get("type") == "image_url" and isinstance(p.get("url"), str)]
        told = self.told(body, body["token_ids"], urls)
        docs = super().vllm({**body, "token_ids": told}, plan, stream, route)
        if body.get("return_token_ids") and self.knows:
            docs[0]["prompt_token_ids"] = told
        return docs


def session(gateway, **options):
    """Makes a session. Returns its id."""
    a = gateway.post("/sessions", options)
    assert a.status == 200, a.text
    return a.json()["session_id"]


def chat(gateway, sid, messages, **more):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"messages": messages, **more})


def user(*parts):
    return {"role": "user", "content": list(parts)}


def text(t):
    return {"type": "text", "text": t}


def files(gateway):
    """Returns each picture of the node by its name, with the number of sessions that have it. Accepts that one is
    deleted meanwhile."""
    found = {}
    for p in media(gateway).glob("??/*"):
        with contextlib.suppress(FileNotFoundError):
            found[p.name] = p.stat().st_nlink - 1
    return found


def media(gateway):
    return Path(gateway.settings["state-dir"]) / "media"
