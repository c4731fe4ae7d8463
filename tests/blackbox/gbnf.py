"""Reads grammars in llama.cpp's notation (GBNF) and says whether they accept a text: written for
tests, from the notation's description, independent of what writes such grammars.

    Grammar(text).accepts("...")

All parses are followed at once: an expression maps a position to the set of positions where it may
end, remembered per rule and position."""
import re
import sys

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}


class Grammar:
    def __init__(self, text):
        self.text, self.at, self.rules = text, 0, {}
        self.blanks(True)
        while self.at < len(text):
            name = self.name()
            self.blanks(False)
            self.need("::=")
            assert name not in self.rules, f"rule {name} is defined twice"
            self.rules[name] = self.choice(0)
            self.blanks(True)
        assert "root" in self.rules, "no root"
        used = {n for rule in self.rules.values() for n in self.names_in(rule)}
        assert not used - set(self.rules), f"undefined: {used - set(self.rules)}"
        self.refuse_left_recursion()

    # --- reading ---

    def blanks(self, lines):
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif c in " \t" or (lines and c in "\r\n"):
                self.at += 1
            else:
                return

    def need(self, what):
        assert self.text.startswith(what, self.at), f"{what!r} expected at {self.text[self.at:self.at + 40]!r}"
        self.at += len(what)

    def peek(self, what):
        if self.text.startswith(what, self.at):
            self.at += len(what)
            return True
        return False

    def name(self):
        m = NAME.match(self.text, self.at)
        assert m, f"a name expected at {self.text[self.at:self.at + 40]!r}"
        self.at = m.end()
        return m.group()

    def char(self):
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return c
        kind = self.text[self.at]
        self.at += 1
        digits = {"x": 2, "u": 4, "U": 8}.get(kind)
        if digits:
            code = self.text[self.at:self.at + digits]
            assert re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code), code
            self.at += digits
            return chr(int(code, 16))
        return ESCAPES[kind]

    def choice(self, depth):
        options = [self.sequence(depth)]
        while self.peek("|"):
            self.blanks(depth > 0)
            options.append(self.sequence(depth))
        return ("choice", options)

    def sequence(self, depth):
        parts = []
        self.blanks(depth > 0)
        while self.at < len(self.text) and self.text[self.at] not in "|)\n":
            item = self.item(depth)
            parts.append(self.times(item))
            self.blanks(depth > 0)
        return ("sequence", parts)

    def item(self, depth):
        if self.peek('"'):
            out = ""
            while not self.peek('"'):
                assert self.text[self.at] != "\n", "a literal runs over its line"
                out += self.char()
            return ("literal", out)
        if self.peek("["):
            negated, ranges = self.peek("^"), []
            while not self.peek("]"):
                low = high = self.char()
                if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                    self.at += 1
                    high = self.char()
                assert low <= high
                ranges.append((low, high))
            assert ranges, "an empty class"
            return ("class", negated, ranges)
        if self.peek("("):
            inner = self.choice(depth + 1)
            self.blanks(True)
            self.need(")")
            return inner
        return ("rule", self.name())

    def times(self, item):
        if self.peek("*"):
            return ("times", item, 0, None)
        if self.peek("+"):
            return ("times", item, 1, None)
        if self.peek("?"):
            return ("times", item, 0, 1)
        m = re.compile(r"\{(\d+)(,(\d*))?\}").match(self.text, self.at)
        if not m:
            return item
        self.at = m.end()
        low = int(m[1])
        return ("times", item, low, low if not m[2] else int(m[3]) if m[3] else None)

    # --- checks ---

    def names_in(self, node):
        if node[0] == "rule":
            yield node[1]
        for part in node[1] if node[0] in ("choice", "sequence") else [node[1]] if node[0] == "times" else []:
            yield from self.names_in(part)

    def refuse_left_recursion(self):
        """Refuses rules that may begin with themselves, on which engines loop."""
        empty = set()

        def nullable(node):
            kind = node[0]
            if kind == "literal":
                return node[1] == ""
            if kind == "rule":
                return node[1] in empty
            if kind == "times":
                return node[2] == 0 or nullable(node[1])
            return kind != "class" and (any if kind == "choice" else all)(map(nullable, node[1]))
        while True:
            more = {n for n, r in self.rules.items() if nullable(r)} - empty
            if not more:
                break
            empty |= more

        def firsts(node):
            if node[0] == "rule":
                yield node[1]
            elif node[0] == "times":
                yield from firsts(node[1])
            elif node[0] == "choice":
                for part in node[1]:
                    yield from firsts(part)
            elif node[0] == "sequence":
                for part in node[1]:
                    yield from firsts(part)
                    if not nullable(part):
                        break
        begins = {n: set(firsts(r)) for n, r in self.rules.items()}
        for name in self.rules:
            seen, todo = set(), list(begins[name])
            while todo:
                n = todo.pop()
                assert n != name, f"{name} may begin with itself"
                if n not in seen:
                    seen.add(n)
                    todo.extend(begins[n])

    # --- following ---

    def accepts(self, text):
        sys.setrecursionlimit(100000)
        memo = {}

        def ends(node, at):
            kind = node[0]
            if kind == "literal":
                return {at + len(node[1])} if text.startswith(node[1], at) else set()
            if kind == "class":
                if at >= len(text):
                    return set()
                inside = any(low <= text[at] <= high for low, high in node[2])
                return {at + 1} if inside != node[1] else set()
            if kind == "rule":
                key = (node[1], at)
                if key not in memo:
                    memo[key] = ends(self.rules[node[1]], at)
                return memo[key]
            if kind == "choice":
                return set().union(*(ends(n, at) for n in node[1]))
            if kind == "sequence":
                now = {at}
                for part in node[1]:
                    now = set().union(*(ends(part, p) for p in now)) if now else now
                return now
            _, item, low, high = node
            out, now, n = ({at} if low == 0 else set()), {at}, 0
            seen = {at}
            while now and (high is None or n < high):
                n += 1
                now = set().union(*(ends(item, p) for p in now)) - (seen if n > low else set())
                if n >= low:
                    out |= now
                    seen |= now
            return out
        return len(text) in ends(("rule", "root"), 0)
