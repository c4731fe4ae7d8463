"""Headers of pictures that Pillow writes have the size and orientation that Pillow reads. Cut at any byte, the file
is not a picture (docs/multimodal.md, 2)."""
import io
import random
import struct
import subprocess
import zlib

import pytest

import gateway as g
import vision_kit as kit

Image = pytest.importorskip("PIL.Image")

DRIVER = g.BUILD / "tests/blackbox/vision_driver"
ORIENTATION = 0x112
WEBP_SIDE_MAX = 16383


def grain(rng, mode, size):
    """Some squares, so that nothing is flat and little is stored."""
    band = Image.new("RGB", size, tuple(rng.randrange(256) for _ in range(3)))
    for _ in range(3):
        x, y = rng.randrange(size[0]), rng.randrange(size[1])
        band.paste(tuple(rng.randrange(256) for _ in range(3)), (x, y, min(size[0], x + 9), min(size[1], y + 9)))
    if mode == "I;16":
        return Image.frombytes(mode, size, bytes(rng.randrange(256) for _ in range(2)) * (size[0] * size[1]))
    if mode == "LA":
        return band.convert("L").convert("LA")
    return band.convert(mode)


def exif(orientation):
    e = Image.Exif()
    e[ORIENTATION] = orientation
    return e.tobytes()


def saved(image, form, **how):
    out = io.BytesIO()
    image.save(out, form, **how)
    return out.getvalue()


def animated(rng, form, size):
    frames = [grain(rng, "RGB", size) for _ in range(3)]
    return saved(frames[0], form, save_all=True, append_images=frames[1:], duration=40, loop=0)


def applied(jpeg, kilobytes):
    """So much in segments of applications, each with a thumbnail's frame in it, before the picture's own."""
    thumb = b"\xff\xd8\xff\xc0\0\x0b\x08\0\x02\0\x02\1\1\x11\0\xff\xd9"
    body = thumb + b"x" * (kilobytes * 256 - len(thumb))
    return jpeg[:2] + 4 * (b"\xff\xe5" + struct.pack(">H", len(body) + 2) + body) + jpeg[2:]


def interlaced(size):
    """Pillow reads Adam7 and does not write it: a grey one by hand."""
    w, h = size
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        width, height = (w - x0 + dx - 1) // dx if w > x0 else 0, (h - y0 + dy - 1) // dy if h > y0 else 0
        rows += (b"\0" + b"\x80" * width) * height if width else b""
    return b"\x89PNG\r\n\x1a\n" + kit.chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 1)) + \
        kit.chunk(b"IDAT", zlib.compress(rows)) + kit.chunk(b"IEND", b"")


def top_down(bmp):
    """Rows from the top: a height less than none."""
    height, = struct.unpack("<i", bmp[22:26])
    return bmp[:22] + struct.pack("<i", -height) + bmp[26:]


def kinds(rng, size):
    """Every way in which a picture of that size is written."""
    def of(mode):
        return grain(rng, mode, size)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        yield f"png {mode}", saved(of(mode), "PNG")
    yield "png exif", saved(of("RGB"), "PNG", exif=exif(rng.randint(1, 8)))
    yield "png interlaced", interlaced(size)
    for mode in ("L", "RGB", "CMYK"):
        yield f"jpeg {mode}", saved(of(mode), "JPEG", quality=rng.randint(5, 95))
        yield f"jpeg progressive {mode}", saved(of(mode), "JPEG", progressive=True)
    for subsampling in range(3):
        yield f"jpeg subsampled {subsampling}", saved(of("RGB"), "JPEG", subsampling=subsampling, optimize=True)
    yield "jpeg exif", saved(of("RGB"), "JPEG", exif=exif(rng.randint(1, 8)), comment=b"\xff\xd9 no end")
    yield "jpeg segments", applied(saved(of("RGB"), "JPEG", icc_profile=b"p" * 900), 2)
    if max(size) <= WEBP_SIDE_MAX:
        yield "webp", saved(of("RGB"), "WEBP", quality=rng.randint(5, 95))
        yield "webp alpha", saved(of("RGBA"), "WEBP")
        yield "webp lossless", saved(of("RGB"), "WEBP", lossless=True)
        yield "webp lossless alpha", saved(of("RGBA"), "WEBP", lossless=True)
        yield "webp exif", saved(of("RGB"), "WEBP", exif=exif(rng.randint(1, 8)))
        yield "webp animated", animated(rng, "WEBP", size)
    for mode in ("1", "L", "P"):
        yield f"gif {mode}", saved(of(mode), "GIF", interlace=rng.randint(0, 1), comment=b"; no end")
    yield "gif animated", animated(rng, "GIF", size)
    for mode in ("1", "L", "P", "RGB"):
        bmp = saved(of(mode), "BMP")
        yield f"bmp {mode}", bmp
        yield f"bmp top down {mode}", top_down(bmp)


SIZES = [(1, 1), (2, 3), (3, 2), (7, 5), (8, 8), (9, 17), (15, 16), (16, 15), (31, 1), (1, 33), (64, 48), (65, 33), (90, 100), (17, 200),
         (257, 3)]


def told(paths):
    out = subprocess.run([DRIVER], input="".join(f"{p}\n" for p in paths), capture_output=True, text=True, check=True, timeout=500).stdout
    return out.splitlines()


def compare(tmp_path, pictures):
    """Against Pillow. Of the cut ones some are whole: a WebP's last byte and a BMP's last of a row only fill up."""
    paths = []
    for n, (_, data) in enumerate(pictures):
        paths.append(tmp_path / str(n))
        paths[-1].write_bytes(data)
    for (name, data), answer in zip(pictures, told(paths), strict=True):
        with Image.open(io.BytesIO(data)) as image:
            width, height, form, turned = *image.size, image.format.lower(), image.getexif().get(ORIENTATION, 1)
        assert not answer.startswith(("refused", "unread")), (name, width, height, answer)
        got = answer.split()
        assert (got[0], *map(int, got[1:4])) == (form, width, height, turned), (name, answer)
        assert len(data) - int(got[4]) <= (3 if form == "bmp" else form == "webp"), (name, answer, len(data))


def test_sizes_are_pillows(tmp_path):
    rng = random.Random(20)
    pictures = [(f"{name} {size}", data) for size in SIZES for name, data in kinds(rng, size)]
    assert len(pictures) >= 500 and {name.split()[0] for name, _ in pictures} == {"png", "jpeg", "webp", "gif", "bmp"}
    compare(tmp_path, pictures)


def test_orientations_are_pillows(tmp_path):
    rng = random.Random(21)
    compare(tmp_path, [(f"{form} {n}", saved(grain(rng, "RGB", (5, 4)), form, exif=exif(n)))
                       for form in ("PNG", "JPEG", "WEBP") for n in range(1, 9)])


def test_large_ones(tmp_path):
    """Long sides, and what stands before a JPEG's frame."""
    before = 20 if "san" in str(g.BUILD) else 200    # KB: each of its bytes is a copy of all before it
    rng = random.Random(22)
    shots = [(f"{form} {size}", saved(Image.new("L", size), form)) for form in ("PNG", "GIF") for size in ((32768, 200), (200, 32768))]
    compare(tmp_path, [*shots, ("jpeg", applied(saved(grain(rng, "RGB", (640, 480)), "JPEG", exif=exif(6)), before))])
