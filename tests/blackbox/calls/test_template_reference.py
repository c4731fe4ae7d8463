"""Compares the template interpreter with Python: escapes of literals, and random expressions, rendered by
python3-jinja2 with the setup of transformers."""
import copy
import json
import random
import re
import subprocess

import pytest

import gateway as g

SEED = 16
COUNT = 3000


def rendered(requests):
    """What `rollgate render` answers each request."""
    done = subprocess.run([g.BINARY, "render", "--jsonl"], input="".join(json.dumps(r) + "\n" for r in requests), text=True,
                          capture_output=True, check=False, timeout=600)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(requests), done.stderr
    return answers


def literal(text):
    """A literal's text as jinja2 decodes it; None: it refuses it."""
    try:
        return text.encode("ascii", "backslashreplace").decode("unicode-escape")
    except UnicodeDecodeError:
        return None


# --- literals ---

def test_escapes_of_a_literal():
    forms = ["\\N", "\\N{", "\\N{}", "\\NBULLET", "\\n{BULLET}", "\\\\N{BULLET}", "\\é", "\\\u4e00 x", "\\\U0001f600", "\\\\é",
             "a\\\n b", "\\7é", "\\x4é", "\\400"]
    for form, answer in zip(forms, rendered([{"template": "{{ '[" + form + "]' }}"} for form in forms])):
        want = literal(f"[{form}]")
        assert answer.get("text") == want, (form, want, answer)
        assert want is not None or answer["error"] == "TemplateSyntaxError"


# --- a final message that is gone on with ---

def test_the_final_message_that_is_continued():
    """It ends the prompt; a template that alters it is an error in the reference's words."""
    shown = "{%% for m in messages %%}[{{ m.role }}]{{ m.content%s }}[/]{%% endfor %%}"
    user, head = {"role": "user", "content": "hi"}, "[user]%s[/][assistant]"
    cases = [("", "Hello wor", "hi", "Hello wor"), ("|trim", " Hello ", "hi", "Hello"), ("", " Hello ", "hi", " Hello "),
             ("", "hi", "hi", "hi"), ("|upper", "Hello", "HI", None), ("|replace('o', '0')", "so", "hi", None)]
    answers = rendered([{"template": shown % form, "context": {"messages": [user, {"role": "assistant", "content": said}]},
                         "continue_final_message": True} for form, said, *_ in cases])
    for (_, said, asked, want), answer in zip(cases, answers):
        if want is None:
            assert answer["error"] == "ValueError" and "the final message does not appear in the chat" in answer["message"]
        else:
            assert answer["text"] == head % asked + want, (said, answer)


# --- expressions ---

CONTEXT = {
    "s": "Hello, World", "e": "", "u": "Größe ſ ß İ 世界 \u200b", "w": "  a\tb\n c  ", "h": "<a href='x'>&\"",
    "n": 7, "z": 0, "m": -3, "big": 2 ** 70, "f": 2.5, "g": 1e16, "tiny": 1e-7, "t": True, "no": None, "l": [3, 1, 2],
    "ls": ["b", "a", "C", "a"], "le": [], "d": {"b": 1, "a": [2, "x"]},
    "ld": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 3}], "ll": [[1, 2], [3], []],
}
# What an expression may be: a kind, and a form of it. <kind> is an expression of that kind, <x> of any; [[a ; b]] one of these.
GRAMMAR = r"""
text [[s ; e ; u ; w ; h ; '' ; 'ab' ; 'a b  c' ; ', ' ; '%s|%d' ; '{}-{:>5}' ; 'é' ; '12' ; ' x ' ; 'A1']]
number [[n ; z ; m ; big ; f ; g ; tiny ; t ; 0 ; 1 ; 10 ; 3.0 ; 0.1 ; 1e16 ; 255 ; true]]
list [[l ; ls ; le ; ld ; ll ; [] ; [1, 2.0, '3'] ; ['a', none] ; (1, 'b')]]
any [[no ; d ; missing ; none ; {} ; {'k': 1} ; true]]
test [[t ; no ; missing ; n ; e]]
--
text (<text> ~ <x>)
text (<text> + <text>)
text (<text> * [[0 ; 2 ; -1 ; n]])
text <text>.[[upper ; lower ; strip ; title ; capitalize ; swapcase ; lstrip ; rstrip ; casefold]]()
text <text>.replace([["a", "b" ; "", "-" ; "l", "LL", 1 ; <text>, <text>]])
text <text>.[[partition ; rpartition]]([[" " ; "l" ; "" ; <text>]])[ [[0 ; 1 ; -1]] ]
text <text>.[[strip ; lstrip ; rstrip ; removeprefix ; removesuffix]]([[" " ; "He" ; "dl" ; none ; <text>]])
text <text>.[[center ; ljust ; rjust ; zfill]]([[5 ; 20 ; 0 ; n ; 9, "*"]])
text <text>[ [[0 ; -1 ; 1: ; :-2 ; ::2 ; ::-1 ; 5:2 ; :n ; 100 ; n]] ]
text (<text>)|[[upper ; trim ; title ; capitalize ; escape ; string ; striptags ; reverse ; forceescape ;\
   urlencode ; safe ; trim("H") ; lower]]
text (<x>)|[[string ; tojson ; tojson(indent=2) ; pprint ; center(20) ; indent ; indent(2, true) ;\
   wordwrap(6) ; default("-") ; default("-", true)]]
text (<x>)|[[truncate(9) ; truncate(5, true, "~", 0) ; replace("a", "b") ; filesizeformat ; format(1) ;\
   upper ; title ; trim ; urlencode ; e]]
text <text>.join(<list>)
text (<list>)|join([[; ", " ; "-", attribute="k" ; <text>]])
text '[[%s ; %d ; %5.2f ; %x ; %-6s| ; %05d ; %e ; %g ; %r ; %c ; %% ; %+d ; % d ; %#x ; %o ; %.3s ; %10.4g ;\
   %i ; %X ; %.0f]]' % (<x>,)
text '[[{} ; {0}{0} ; {:>8} ; {:^9} ; {:x} ; {:,} ; {:.2f} ; {!r:>6} ; {:08.3f} ; {:e} ; {:%} ; {:b} ; {:+d} ;\
   {:_} ; {:#x}]]'.format(<x>)
text '[[{:g} ; {:c} ; {:s} ; {:*<7} ; {:n} ; {:o} ; {0[0]} ; {:=+8d} ; {:X} ; {:.3} ; {:10} ; {:,.1f} ; {!s} ;\
   {{}} ; {:_x}]]'.format(<x>)
text (<test> and <text> or <x>)
any (<x> if <test> else <x>)
number (<number> [[+ ; - ; * ; / ; // ; %]] <number>)
number (<number> ** [[0 ; 1 ; 2 ; 0.5 ; -1]])
number (-<number>)
number (<number>)|round([[-1 ; -2 ; -16 ; -17 ; -21 ; -30 ; 3 ; 1]])
number (<x>)|[[length ; int ; float ; abs ; round ; round(2) ; round(0, "floor") ; round(-1) ;\
   round(1, "ceil") ; int(5) ; int(0, 16) ; float(1.5)]]
number (<text>)|[[length ; int ; float ; wordcount ; count ; int(0, 16) ; int(base=2)]]
number (<list>)|[[sum ; min ; max ; first ; last ; length ; sum(attribute="v") ; sum(start=1.5) ;\
   min(attribute="v") ; max(case_sensitive=true)]]
number <text>.[[find ; index ; count ; rfind]]([["l" ; "" ; "zz" ; "o", 5 ; "a", -3, 100 ; <text>]])
number (<list>).[[index ; count]]([[1 ; "a" ; 3]])
list [<x>]
list [<x>, <x>, <x>]
list (<list> + <list>)
list (<list> * [[0 ; 2]])
list (<list>)[ [[1: ; ::-1 ; :2 ; 0 ; -1 ; :0]] ]
list <text>.[[split ; rsplit]]([[; none, 1 ; " " ; " ", 1 ; "a" ; "" ; "l", -1 ; ", ", maxsplit=1 ; none, 0 ;\
   sep="b" ; none, 2]])
list <text>.splitlines([[; true]])
list (<list>)|[[list ; sort ; sort(reverse=true) ; unique ; reverse ; sort(attribute="v") ;\
   sort(attribute="k,v") ; sort(case_sensitive=true)]]|list
list (<list>)|[[batch(2) ; batch(2, 0) ; slice(2) ; slice(2, 0)]]|list
list (<x>)|[[map ; select ; reject]]([[; "string" ; "upper" ; "odd" ; "length" ; "nofilter" ; "defined" ;\
   "gt", 1 ; "in", [1, "a"] ; "default", "d"]])|list
list (<list>)|map([["nofilter" ; "upper" ; "int" ; attribute="k" ; attribute="zz", default=0 ; "tojson" ;\
   "round" ; "first"]])|list
list (<list>)|[[selectattr ; rejectattr]]([["k" ; "v", "gt", 1 ; "k", "equalto", "x" ; "zz", "defined" ;\
   "k", "nosuch"]])|list
list (<list>)|groupby("k")|list
list range([[3 ; 1, 7, 2 ; n ; 5, 0, -2 ; 0]])|list
list (d.[[items ; keys ; values]]())|list
list (d|[[dictsort ; items ; dictsort(true) ; dictsort(by="key", reverse=true) ; list]])|list
list (<text>)|list
any d[ [["a" ; "b" ; "q" ; 0 ; <text>]] ]
any d.[[a ; b ; q ; get("a") ; get("q", 3) ; a.0 ; a.1.x]]
any (<list>)[ [[0 ; 1 ; -1 ; 9]] ]
any {<text>: <x>, 'q': <x>}
any dict(a=<x>, b=<x>)
any namespace(x=<x>).x
any (<x>, <x>)
any (<list>)|[[first ; last]]
test (<x> [[== ; != ; < ; > ; <= ; >=]] <x>)
test (<x> [[in ; not in]] [[<text> ; <list> ; d]])
test (not <x>)
test (<x> [[and ; or]] <x>)
test (<x> is [[; not ]][[defined ; none ; string ; number ; mapping ; sequence ; iterable ; true ; false ;\
   boolean ; integer ; float ; undefined]])
test (<x> is [[odd ; even ; divisibleby 3 ; lower ; upper ; callable ; eq 1 ; in [1, 2] ; sameas none ;\
   filter ; escaped ; gt 2 ; test]])
test <text>.is[[digit ; alpha ; upper ; lower ; space ; alnum ; numeric ; title ; identifier ; ascii ;\
   decimal ; printable]]()
test <text>.[[startswith ; endswith]]([["H" ; "" ; ("a", "H") ; "l", 2 ; <text>]])
test (<number> < <number> <= <number>)
"""
LEAVES, FORMS = ([line.split(" ", 1) for line in part.strip().split("\n")] for part in GRAMMAR.replace("\\\n", "").split("--\n"))
KINDS = sorted({kind for kind, _ in LEAVES})
HOLE = re.compile(r"<(text|number|list|any|test|x)>")
CHOICE = re.compile(r"\[\[(.*?)\]\](?!\])")


def expression(rng, depth, kind="x"):
    kind = rng.choice(KINDS) if kind == "x" else kind
    form = rng.choice([form for k, form in (FORMS if depth > 0 and rng.random() < 0.85 else LEAVES) if k == kind])
    form = CHOICE.sub(lambda found: rng.choice(found[1].split(";")).strip(), form)
    return HOLE.sub(lambda found: expression(rng, depth - 1, found[1]), form)


def jinja_environment(**more):
    sandbox = pytest.importorskip("jinja2.sandbox")
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                        extensions=["jinja2.ext.loopcontrols"], **more)
    environment.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return environment


def reference(environment, template):
    """Its text, or the name of the error."""
    try:
        return environment.from_string(template).render(**copy.deepcopy(CONTEXT)), None    # `indent` adds to lists in place
    except Exception as e:     # whatever it is: the interpreter has to refuse it as well  pylint: disable=broad-except
        return None, type(e).__name__


def is_left_out(text):
    return len(text) > 20000 or re.search(r" object at 0x|<built-in|<bound method|<generator", text)


def test_random_expressions():
    environment, plain, rng = jinja_environment(), jinja_environment(optimized=False), random.Random(SEED)
    templates, wanted = [], []
    while len(templates) < COUNT:
        template = "{{ " + expression(rng, rng.randrange(1, 4)) + " }}"
        text, error = reference(environment, template)
        if text is not None and is_left_out(text):
            continue
        templates.append(template)
        wanted.append((text, error))
    wrong = []
    answers = rendered([{"template": t, "context": CONTEXT} for t in templates])
    for template, (text, error), answer in zip(templates, wanted, answers):
        if answer.get("message") == "complex numbers are not supported":
            continue
        # What only its optimizer makes of constants (it slices numbers, forgets unknown filters) counts for nothing.
        if answer.get("text") != text and answer.get("text") != reference(plain, template)[0]:
            wrong.append(f"{template}\n  jinja2: {text!r} {error}\n  here:   {answer}")
    assert not wrong, f"{len(wrong)} of {COUNT} differ:\n" + "\n".join(wrong[:30])
