"""Unigram tokenizers (T5, XLM-R and the like) and SentencePiece's compiled normalization rules, compared with a
simple implementation of the definition in Python and with cases computed by hand."""
import base64
import itertools
import json
import random
import struct
import subprocess

import pytest

import gateway as g

SPACE = "\u2581"
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
T5 = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
DOCUMENTED = [["<unk>", 0.0], ["a", 0.0], ["b", 0.0], ["c", 0.0], ["d", 0.0], ["cd", 1.0], ["ab", 2.0], ["abc", 5.0],
              ["abcd", 10.0]]


def tokenizer(vocab, unk=0, byte_fallback=False, **parts):
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": None, "model": {"type": "Unigram", "unk_id": unk, "vocab": vocab, "byte_fallback": byte_fallback}, **parts}


def run(tmp_path, value, texts, command="tokenize", key="text"):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(value))
    lines = "".join(json.dumps({key: t}) + "\n" for t in texts)
    done = subprocess.run([g.BINARY, command, "--tokenizer", path, "--jsonl"], input=lines, text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(tmp_path, value):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(value))
    done = subprocess.run([g.BINARY, "tokenize", "--tokenizer", path], input="a", text=True, capture_output=True, check=False)
    assert done.returncode == 1
    return done.stderr


# --- the definition ---

class Plain:
    """Every end asks all starts; the earliest start that is not beaten stays."""

    def __init__(self, vocab, unk, byte_fallback):
        self.ids = {piece: i for i, (piece, _) in enumerate(vocab)}
        self.scores = dict(map(tuple, vocab))
        self.unk, self.byte_fallback = unk, byte_fallback
        self.unknown = min(s for _, s in vocab) - 10.0

    def cut(self, word):
        best = [(0.0, None)] + [None] * len(word)
        for end in range(1, len(word) + 1):
            for start in range(end):
                piece, score = word[start:end], None
                if piece in self.scores:
                    score = self.scores[piece]
                elif end - start == 1:
                    score = self.unknown
                if score is not None and (best[end] is None or score + best[start][0] > best[end][0]):
                    best[end] = (score + best[start][0], start)
        out, end = [], len(word)
        while end:
            out.append(word[best[end][1]:end])
            end = best[end][1]
        return out[::-1]

    def encode(self, word):
        ids = []
        for known, group in itertools.groupby(self.cut(word), lambda p: self.ids.get(p, self.unk) != self.unk):
            if known:
                ids += [self.ids[p] for p in group]
                continue
            text = "".join(group)
            spelt = [self.ids.get(f"<0x{b:02X}>") for b in text.encode()]
            if text in self.ids:
                ids.append(self.ids[text])
            elif self.byte_fallback and None not in spelt:
                ids += spelt
            else:
                ids.append(self.unk)
        return ids


def random_vocab(rng, letters, byte_fallback):
    pieces = {"".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(rng.randint(3, 60))}
    scores = [0.0, -1.0, -1.5, -2.25, -3.0, -7.125] if rng.random() < 0.5 else [rng.uniform(-12, 0) for _ in range(9)]
    vocab = [["<unk>", 0.0]] + [[p, rng.choice(scores)] for p in sorted(pieces)]
    if byte_fallback:
        vocab += [[f"<0x{b:02X}>", -15.0] for b in range(256 if rng.random() < 0.7 else 0x80)]
    rng.shuffle(vocab)
    return vocab, [p for p, _ in vocab].index("<unk>")


def test_the_documented_case(tmp_path):
    assert run(tmp_path, tokenizer(DOCUMENTED), ["abcdacdxx", "", "xyz", "<unk>", "x<unk>y"]) == [
        {"ids": ids} for ids in ([8, 1, 5, 0], [], [0], [0], [0])]


@pytest.mark.parametrize("seed", range(12))
def test_the_best_way_through_a_word(tmp_path, seed):
    rng = random.Random(seed)
    byte_fallback = seed % 3 == 2
    vocab, unk = random_vocab(rng, "abc\u00e9\u4e2d" + SPACE, byte_fallback)
    texts = ["".join(rng.choices("abc\u00e9\u4e2d" + SPACE + "x\U0001f642", k=rng.randint(0, 40))) for _ in range(200)]
    plain = Plain(vocab, unk, byte_fallback)
    got = run(tmp_path, tokenizer(vocab, unk, byte_fallback), texts)
    for text, line in zip(texts, got, strict=True):
        assert line == {"ids": plain.encode(text)}, text


def test_words_of_a_t5_pipeline(tmp_path):
    rng = random.Random(77)
    vocab, unk = random_vocab(rng, "abc" + SPACE, False)
    vocab.append(["</s>", 0.0])
    end = len(vocab) - 1
    post = {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [end], "tokens": ["</s>"]}}}
    texts = [" ".join("".join(rng.choices("abcx", k=rng.randint(1, 6))) for _ in range(8)) for _ in range(60)] + ["  a \n b", ""]
    value = tokenizer(vocab, unk, pre_tokenizer=T5, decoder=METASPACE, post_processor=post)
    plain = Plain(vocab, unk, False)
    got = run(tmp_path, value, texts)
    for text, line in zip(texts, got, strict=True):
        assert line["ids"] == [i for w in text.split() for i in plain.encode(SPACE + w)], text
    back = run(tmp_path, value, [line["ids"] for line in got], "detokenize", "ids")
    known = [k for k, line in enumerate(got) if unk not in line["ids"]]
    for k in known:
        assert back[k]["text"] == " ".join(texts[k].split())


def test_a_long_word_costs_its_length(tmp_path):
    text = "abcd" * 100_000
    assert run(tmp_path, tokenizer(DOCUMENTED), [text]) == [{"ids": [8] * 100_000}]


def test_what_cannot_be_exact_is_refused(tmp_path):
    assert "stands in vocab twice" in refused(tmp_path, tokenizer(DOCUMENTED + [["a", -1.0]]))
    assert "unk_id" in refused(tmp_path, tokenizer(DOCUMENTED, unk=9))
    assert "item 1 of vocab" in refused(tmp_path, tokenizer([["<unk>", 0.0], ["a", "0"]]))
    assert "no unk_id" in refused(tmp_path, tokenizer(DOCUMENTED[2:], unk=None))
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                 "vocab": {"[UNK]": 0}}
    assert "WordPiece is not supported" in refused(tmp_path, {**tokenizer(DOCUMENTED), "model": wordpiece})


# --- compiled normalization rules ---

def charsmap(rules):
    """The bytes that SentencePiece would compile: a double-array trie of the keys, and the texts."""
    texts, units, tree = b"", {0: 0}, {}
    for key, new in rules.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += new.encode() + b"\0"
    taken, bases = {0}, set()

    def place(node, at, label):
        labels = [0 if c is None else c for c in node]
        base = next(b for b in itertools.count(1) if b not in bases and all(b ^ c not in taken for c in labels))
        bases.add(base)
        taken.update(base ^ c for c in labels)
        units[at] = (at ^ base) << 10 | (None in node) << 8 | label
        for c, child in node.items():
            if c is None:
                units[base] = child | 1 << 31
            else:
                place(child, base ^ c, c)

    place(tree, 0, 0)
    array = [units.get(i, 0) for i in range(max(units) + 256)]
    blob = struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + texts
    return base64.b64encode(blob).decode()


def rule_for(rules, text):
    """The shortest key that text begins with (as bytes)."""
    keys = [k for k in rules if text.encode().startswith(k.encode())]
    return rules[min(keys, key=lambda k: len(k.encode()))] if keys else None


def normalized(rules, clusters):
    out = ""
    for cluster in clusters:
        new = rule_for(rules, cluster) if len(cluster.encode()) < 6 else None
        if new is None:
            for c in cluster:
                new = rule_for(rules, c)
                out += c if new is None else new
        else:
            out += new
    return out


RULES = {"\u00a0": " ", "\u2122": "TM", "\u200b": "", "e\u0301": "\u00e9", "\ufb01": "fi", "\r\n": "\n", "\u3000": " ", "A": "a",
         "\u0041\u030a": "\u00e5", "\u1100": "g", "\u00bd": "1\u20442", "\u0300": "", "\U0001f600": ":)", "\u0e33": "am"}
# each is one cluster wherever it stands, but that a lone mark would join what is before it
CLUSTERS = ["a", "e\u0301", "e", "\u2122", "\u00a0", "\u200b", "\r\n", "\n", "A\u030a", "A", "B\u0300", "x\u0300\u0301", "\u4e2d",
            "\u1100\u1161\u11a8", "\uac00\u11a8", "\U0001f1e9\U0001f1ea", "\U0001f600",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u00bd",
            "\ufb01", "\u3000", "\u0e19\u0e33", "\u0915\u094d\u0937", "\u0601x", "\u4e2d\u0301", "\u00e9\u0300"]


@pytest.mark.parametrize("seed", range(6))
def test_rules_are_applied_to_clusters(tmp_path, seed):
    """The text is told by a vocabulary of single characters."""
    rng = random.Random(seed)
    rules = dict(rng.sample(sorted(RULES.items()), rng.randint(3, len(RULES))))
    talks = [rng.choices(CLUSTERS, k=rng.randint(0, 30)) for _ in range(200)]
    wants = [normalized(rules, t) for t in talks]
    letters = sorted(set("".join(wants)))
    vocab = [["<unk>", 0.0]] + [[c, -1.0] for c in letters]
    value = tokenizer(vocab, normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap(rules)})
    got = run(tmp_path, value, ["".join(t) for t in talks])
    for talk, want, line in zip(talks, wants, got, strict=True):
        assert "".join(letters[i - 1] for i in line["ids"]) == want, talk


def test_a_charsmap_that_is_none_is_refused(tmp_path):
    def with_map(text):
        return refused(tmp_path, tokenizer(DOCUMENTED, normalizer={"type": "Precompiled", "precompiled_charsmap": text}))

    assert "not Base64" in with_map("no!")
    assert "cut short" in with_map("")
    assert "cut short" in with_map(base64.b64encode(struct.pack("<II", 8, 1)).decode())
    assert "not UTF-8" in with_map(base64.b64encode(struct.pack("<II", 4, 0) + b"\xff\0").decode())
