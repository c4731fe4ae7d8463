"""The number of tokens of a picture: 20,000 sizes for each configuration, compared with the families' published
functions in plain Python (docs/multimodal.md, 4)."""
import math
import random
import subprocess

import pytest

import gateway as g

DRIVER = g.BUILD / "tests/blackbox/vision_driver"
SIZES, MAX_SIDE = 20000, 32768


def qwen(w, h, patch, merge, low, high):
    f = patch * merge
    if max(h, w) / min(h, w) > 200:
        return None
    rows, columns = round(h / f) * f, round(w / f) * f
    if rows * columns > high:
        beta = math.sqrt((h * w) / high)
        rows, columns = max(f, math.floor(h / beta / f) * f), max(f, math.floor(w / beta / f) * f)
    elif rows * columns < low:
        beta = math.sqrt(low / (h * w))
        rows, columns = math.ceil(h * beta / f) * f, math.ceil(w * beta / f) * f
    return rows // patch, columns // patch, rows * columns // f ** 2


def glm(w, h, patch, merge, low, high, frames=2):
    f = patch * merge
    if h < f or w < f:
        scale = max(f / h, f / w)
        h, w = int(h * scale), int(w * scale)
    if max(h, w) / min(h, w) > 200:
        return None
    rows, columns = round(h / f) * f, round(w / f) * f
    if frames * rows * columns > high:
        beta = math.sqrt((frames * h * w) / high)
        rows, columns = max(f, math.floor(h / beta / f) * f), max(f, math.floor(w / beta / f) * f)
    elif frames * rows * columns < low:
        beta = math.sqrt(low / (frames * h * w))
        rows, columns = math.ceil(h * beta / f) * f, math.ceil(w * beta / f) * f
    return rows // patch, columns // patch, rows * columns // f ** 2


def kimi(w, h, patch, merge, limit, side, fixed=0):
    scale = min(1.0, math.sqrt(limit / (max(1.0, w // patch) * max(1.0, h // patch))), side * patch / w, side * patch / h)
    w, h = min(max(1, int(w * scale)), side * patch), min(max(1, int(h * scale)), side * patch)
    f = patch * merge
    w, h = w + (f - w % f) % f, h + (f - h % f) % f
    return h // patch, w // patch, fixed or (h // f) * (w // f)


# the function, and the driver's first nine numbers
CONFIGS = {
    "qwen2-vl": (lambda w, h: qwen(w, h, 14, 2, 3136, 1003520), [0, 14, 2, 2, 3136, 1003520, 0, 0, 0]),
    "qwen2.5-vl": (lambda w, h: qwen(w, h, 14, 2, 3136, 12845056), [0, 14, 2, 2, 3136, 12845056, 0, 0, 0]),
    "qwen3-vl": (lambda w, h: qwen(w, h, 16, 2, 65536, 16777216), [0, 16, 2, 2, 65536, 16777216, 0, 0, 0]),
    "qwen3-vl-small": (lambda w, h: qwen(w, h, 16, 2, 65536, 1003520), [0, 16, 2, 2, 65536, 1003520, 0, 0, 0]),
    "narrow": (lambda w, h: qwen(w, h, 16, 2, 200704, 262144), [0, 16, 2, 2, 200704, 262144, 0, 0, 0]),
    "glm-4.5v": (lambda w, h: glm(w, h, 14, 2, 12544, 11760000), [1, 14, 2, 2, 12544, 11760000, 0, 0, 0]),
    "kimi-k2.5": (lambda w, h: kimi(w, h, 14, 2, 16384, 512), [2, 14, 2, 0, 0, 0, 16384, 512, 0]),
    "kimi-k3": (lambda w, h: kimi(w, h, 14, 2, 65536, 512), [2, 14, 2, 0, 0, 0, 65536, 512, 0]),
    "fixed": (lambda w, h: kimi(w, h, 14, 2, 4096, 64, 256), [2, 14, 2, 0, 0, 0, 4096, 64, 256]),
}

ANCHORS = [
    ("qwen3-vl", 2048, 1365, (86, 128, 2752)), ("qwen3-vl", 64, 64, (16, 16, 64)), ("qwen3-vl", 1920, 1080, (68, 120, 2040)),
    ("qwen3-vl", 1280, 720, (44, 80, 880)), ("qwen3-vl", 80, 1600, (100, 4, 100)), ("qwen3-vl", 100, 37, (10, 28, 70)),
    ("qwen3-vl", 6000, 4000, (208, 312, 16224)), ("qwen3-vl-small", 1795, 2397, (72, 54, 972)),
    ("qwen2.5-vl", 1920, 1080, (78, 138, 2691)),
    ("qwen2.5-vl", 70, 700, (50, 4, 50)),
    ("qwen2.5-vl", 1280, 720, (52, 92, 1196)), ("qwen2.5-vl", 5000, 3000, (198, 330, 16335)), ("qwen2.5-vl", 1, 201, None),
    ("kimi-k3", 225, 223, (16, 18, 72))]


def sizes(seed):
    """Small, large and ordinary ones, exact halves of a token's side, aspects around 200, one pixel."""
    rng = random.Random(seed)

    def side(most):
        return rng.randint(1, most)
    made = [lambda: (side(MAX_SIDE), side(MAX_SIDE)), lambda: (side(400), side(400)), lambda: (side(4000), side(4000)),
            lambda: (14 * side(300), 14 * side(300)), lambda: (16 * side(300), 16 * side(300)),
            lambda: (28 * side(100) + rng.randint(-1, 1), 32 * side(100) + rng.randint(-1, 1)), lambda: (1, side(260)),
            lambda: (lambda n: (n, min(MAX_SIDE, n * rng.randint(198, 202) + rng.randint(-2, 2))))(side(160)),
            lambda: (lambda n: (min(MAX_SIDE, n * rng.randint(198, 202)), n))(side(160))]
    return [made[i % len(made)]() for i in range(SIZES)]


def told(name, pairs):
    lines = "".join(" ".join(map(str, [*CONFIGS[name][1], w, h])) + "\n" for w, h in pairs)
    out = subprocess.run([DRIVER], input=lines, capture_output=True, text=True, check=True, timeout=120).stdout
    return [None if line == "refused" else tuple(map(int, line.split())) for line in out.splitlines()]


@pytest.mark.parametrize("name", CONFIGS)
def test_grids_are_the_published_functions(name):
    pairs = sizes(name)
    for pair, got in zip(pairs, told(name, pairs)):
        assert got == CONFIGS[name][0](*pair), (name, pair)


def test_numbers_that_others_have_published():
    for name, w, h, grid in ANCHORS:
        assert told(name, [(w, h)]) == [grid] == [CONFIGS[name][0](w, h)], (name, w, h)
