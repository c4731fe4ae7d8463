"""A model folder is untrusted: endless work of its template or tokenizer is an error that names the position, at the
start or for the request. The gateway continues."""
import json
import os
import re
import shutil
import subprocess

import pytest

import gateway as g

BYTES = g.MODELS / "chatml-bytes"
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SHARED = ("{% set n = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}"
          "{% set n.b = [n.b, n.b] %}{% endfor %}")
DOUBLE = {"type": "Replace", "pattern": {"String": "Q"}, "content": "QQ"}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    def make(template=CHATML, **tokenizer):
        folder = tmp_path / "model"
        shutil.copytree(BYTES, folder, dirs_exist_ok=True)
        for name, more in (("tokenizer_config.json", {"chat_template": template}), ("tokenizer.json", tokenizer)):
            (folder / name).write_text(json.dumps(dict(json.loads((folder / name).read_text()), **more)))
        return folder
    return make


def chat(gateway, sid, **body):
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "max_tokens": 4, **body}, timeout=100)


def refusal(folder):
    flags = {"model": folder, "engine": "builtin:echo", "listen": "127.0.0.1:0", "state-dir": folder.parent / "state"}
    done = subprocess.run([g.BINARY, "serve", *(f"--{k}={v}" for k, v in flags.items())], text=True, capture_output=True,
                          check=False, timeout=100)
    assert done.returncode not in (0, -6, -11), done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("operand", ["+a", ".a", "[0]", "|list", " and a"])
def test_a_high_expression_is_refused_at_the_start(folder, operand):
    assert "line 2: TemplateSyntaxError" in refusal(folder("\n{{ a" + operand * 17000 + " }}" + CHATML))


def test_a_template_that_never_ends_is_refused_at_the_start(folder):
    assert "line 2: BudgetError" in refusal(folder("\n" + SHARED + "{{ n.a == n.b }}" + CHATML))


def test_tokens_with_one_id_are_refused_at_the_start(folder):
    model = json.loads((BYTES / "tokenizer.json").read_text())["model"]
    first, second = list(model["vocab"])[:2]
    model["vocab"][second] = model["vocab"][first]
    told = refusal(folder(model=model))
    assert "tokenizer.json" in told and "the same id" in told


@pytest.mark.parametrize("what,kinds", [
    ("{{ n.a == n.b }}", "BudgetError"), ("{{ n.a|pprint }}", "BudgetError MemoryError"),
])
def test_a_request_that_never_ends_fails_and_the_next_one_does_not(start, folder, what, kinds):
    gateway = start(workers=1, engine="builtin:echo", model=folder("\n{% if endless %}" + SHARED + what + "{% endif %}" + CHATML))
    sid = gateway.post("/sessions").json()["session_id"]
    hi = [{"role": "user", "content": "hi"}]
    told = chat(gateway, sid, messages=hi, chat_template_kwargs={"endless": True})
    assert told.status == 400 and "line 2" in told.text and any(k in told.text for k in kinds.split()), told.text
    assert chat(gateway, sid, messages=hi).status == 200


def test_helpers_render_after_a_short_text_took_long(start, folder):
    """Else each such request would hold the loop for as long as a template may take."""
    much = "{% if messages|length > 30 %}{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}{% endif %}"
    gateway = start(workers=1, engine="builtin:echo", model=folder(much + CHATML))

    def jobs(n):
        before = gateway.metrics()["rollgate_helper_work_seconds_count"]
        sid = gateway.post("/sessions").json()["session_id"]
        assert chat(gateway, sid, messages=[{"role": "user", "content": "hi"}] * n).status == 200
        return gateway.metrics()["rollgate_helper_work_seconds_count"] - before
    assert [jobs(1), jobs(30), jobs(31), jobs(31), jobs(1)] == [0, 0, 0, 1, 1]


def test_rules_that_double_the_text_fail_the_request(start, folder):
    gateway = start(workers=1, engine="builtin:echo",
                    model=folder(normalizer={"type": "Sequence", "normalizers": [DOUBLE] * 34}))
    sid = gateway.post("/sessions").json()["session_id"]
    told = chat(gateway, sid, messages=[{"role": "user", "content": "Q"}])
    assert told.status == 400 and "tokenizer.json, normalizer: step" in told.text, told.text
    assert chat(gateway, sid, messages=[{"role": "user", "content": "hi"}]).status == 200


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json", "chat_template.jinja",
                                  "chat_template.json", "preprocessor_config.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir], ids=["pipe", "device", "folder"])
def test_a_file_that_is_not_regular_is_refused_at_the_start(folder, name, make):
    """Reading a pipe that nobody writes, or a device, would never end."""
    path = folder()
    (path / name).unlink(missing_ok=True)
    make(path / name)
    assert f"{name} is not a regular file" in refusal(path)


@pytest.mark.parametrize("name,content,told", [
    ("chat_template.jinja", b"\xff\xfe{{ messages }}", "chat_template.jinja: invalid UTF-8 at byte 0"),
    ("generation_config.json", b"[257]", "generation_config.json: not an object"),
    ("generation_config.json", b'{"eos_token_id": "257"}', "generation_config.json: eos_token_id is neither"),
    ("generation_config.json", b'{"eos_token_id": [257, null]}', "generation_config.json: eos_token_id is neither"),
    ("config.json", json.dumps({"text_config": {"eos_token_id": [1] * 257}}).encode(), "config.json: text_config: eos_token_id: 257 ids; at most 256"),
    ("chat_template.json", b'{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": 7}]}',
     "chat_template.json: chat_template[1] has no texts"),
    ("chat_template.jinja", b"", "the chat template is empty"),
    ("config.json", b"\xef\xbb\xbf{}", "config.json: JSON: a byte order mark"),
    ("tokenizer.json", b"\xef\xbb\xbf{}", "tokenizer.json: JSON: a byte order mark"),
])
def test_a_value_of_another_kind_is_refused_at_the_start(folder, name, content, told):
    """It would be passed over for something else: other stops, the template for tools, or an error of every request."""
    path = folder()
    (path / name).write_bytes(content)
    assert told in refusal(path)


@pytest.mark.parametrize("ids,told", [([], "no file names a token that ends a turn"), ([999999], "eos_token_id: 999999 is ignored: no token has it"),
                                      ([257, -1], "eos_token_id: -1 is ignored")])
def test_stops_that_are_missing_are_mentioned(folder, ids, told):
    path = folder()
    (path / "config.json").unlink(missing_ok=True)
    (path / "special_tokens_map.json").unlink(missing_ok=True)
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "eos_token"}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    done = check(path)
    assert told in done.stdout, done.stdout + done.stderr


DECODER = {"257": {"content": "<|im_end|>", "special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}}


@pytest.mark.parametrize("config,files,told", [
    ({"bos_token": "<s>", "eos_token": {"content": "<|nope|>"}}, {"special_tokens_map.json": {"eos_token": "<|im_end|>"}}, [
        'tokenizer_config.json: bos_token: "<s>" is no token of tokenizer.json',
        'tokenizer_config.json: eos_token: "<|nope|>" is no token of tokenizer.json',
        'special_tokens_map.json: eos_token: "<|im_end|>" is ignored: tokenizer_config.json has "<|nope|>"']),
    ({"bos_token": "<|im_start|>", "added_tokens_decoder": dict(DECODER, **{"258": {"content": "<|other|>"}})},
     {"config.json": {"vocab_size": 200, "bos_token_id": 256},
      "generation_config.json": {"bos_token_id": 1, "eos_token_id": [257, 65, 999999]}}, [
         'generation_config.json: bos_token_id: 1 is ignored: bos_token is "<|im_start|>", which has the id 256',
         'added_tokens_decoder: "258": "<|other|>" is ignored: in tokenizer.json the id is "<|endoftext|>"',
         "config.json: vocab_size: 200 is less than the 259 ids of tokenizer.json",
         "generation_config.json: eos_token_id: 65 is no added token of tokenizer.json",
         "generation_config.json: eos_token_id: 999999 is ignored: no token has it"]),
    ({"added_tokens_decoder": {"257": dict(DECODER["257"], lstrip=True)}}, {"chat_template.jinja": "\ufeff" + CHATML, "config.json": {}}, [
        'added_tokens_decoder: "257": lstrip of "<|im_end|>" is not that of tokenizer.json',
        "the chat template begins with a byte order mark",
        "chat_template of tokenizer_config.json or chat_template.json is ignored: chat_template.jinja has another one"]),
])
def test_files_that_contradict_each_other_are_mentioned(folder, config, files, told):
    """Engines take ids and ends from other files than the tokenizer's."""
    path = folder("{{ 'other' }}" + CHATML)
    for name, more in (("tokenizer_config.json", config), *files.items()):
        known = json.loads((path / name).read_text()) if (path / name).exists() else {}
        (path / name).write_text(more if isinstance(more, str) else json.dumps(dict(known, **more)))
    done = check(path)
    assert [x for x in told if x not in done.stdout] == [], done.stdout + done.stderr


def test_a_folder_whose_files_agree_has_no_warning(folder):
    path = folder()
    config = dict(json.loads((path / "tokenizer_config.json").read_text()), added_tokens_decoder=DECODER, bos_token="<|endoftext|>")
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps({"vocab_size": 512, "bos_token_id": 7, "eos_token_id": 257}))
    (path / "generation_config.json").write_text(json.dumps({"bos_token_id": 258, "eos_token_id": [257]}))   # newer than config.json
    (path / "chat_template.jinja").write_text(CHATML + "\n")   # which an editor adds
    said = check(path).stdout
    assert ".json:" not in said and "ignored" not in said, said


@pytest.mark.parametrize("config,told", [
    ({"chat_template": {"default": CHATML}}, "tokenizer_config.json: chat_template is neither a text nor a list"),
    ({"eos_token": 257}, "tokenizer_config.json: eos_token is neither a text nor an object"),
    ({"split_special_tokens": True}, "tokenizer_config.json: split_special_tokens: true is not supported"),
    ({"extra_special_tokens": {"messages": "x"}}, "extra_special_tokens: the name messages is taken")])
def test_a_setting_of_the_tokenizer_that_cannot_be_honored_is_refused_at_the_start(folder, config, told):
    path = folder()
    known = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(dict(known, **config)))
    assert told in check(path).stderr


@pytest.mark.parametrize("name", ["chat_template.jinja", "generation_config.json", "tokenizer.json"])
def test_a_link_to_a_file_that_is_missing_is_refused_at_the_start(folder, name):
    """A downloaded folder without the folder of its contents: other stops and another template would be used."""
    path = folder()
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to("../../blobs/0123")
    (path / "vocab.json").write_text("{}")
    assert f"{name} is a link to a file that does not exist" in check(path).stderr


def test_a_folder_with_another_form_of_tokenizer_names_it(folder):
    path = folder()
    (path / "tokenizer.json").rename(path / "tokenizer.model")
    assert "has tokenizer.model but no tokenizer.json" in check(path).stderr


def test_templates_see_all_special_tokens_and_the_folder_of_more_templates_is_read(folder):
    path = folder("{{ additional_special_tokens[1] }}{{ image_token }}")
    known = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(dict(
        known, additional_special_tokens=["a", {"content": "b"}], extra_special_tokens={"image_token": "<i>", "video_token": "<v>"})))
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("{{ image_token }} with {{ tools|length }}")
    lines = "".join(json.dumps({"context": {"messages": [{"role": "user", "content": "x"}], "tools": t}}) + "\n" for t in (None, [1, 2]))
    done = subprocess.run([g.BINARY, "render", path, "--jsonl"], input=lines, text=True, capture_output=True, check=False, timeout=100)
    assert [json.loads(x)["text"] for x in done.stdout.splitlines()] == ["b<i>", "<i> with 2"], done.stderr


def check(folder):
    return subprocess.run([g.BINARY, "check", folder], text=True, capture_output=True, check=False, timeout=100)


def added(last):
    tokens = json.loads((BYTES / "tokenizer.json").read_text())["added_tokens"]
    return tokens[:-1] + [dict(tokens[-1], id=last)], len(tokens) - 1


@pytest.mark.parametrize("number", [-1, "258", 258.5, None])
def test_an_id_of_an_added_token_that_is_none_is_refused_at_the_start(folder, number):
    tokens, last = added(number)
    assert f"added_tokens[{last}]: id: not an integer from 0" in refusal(folder(added_tokens=tokens))


def test_an_id_of_an_added_token_that_the_library_ignores_is_mentioned(folder):
    tokens, last = added(300)
    assert f"added_tokens[{last}]: id: 300 is ignored" in check(folder(added_tokens=tokens)).stdout


def test_an_added_token_that_is_there_twice_with_other_flags_is_mentioned(folder):
    tokens, last = added(258)
    again = dict(tokens[0], rstrip=True)
    assert "added_tokens[0]: \"<|im_start|>\" is there again with other flags" in check(folder(added_tokens=tokens + [again])).stdout
    assert "again with" not in check(folder(added_tokens=tokens + [tokens[0]])).stdout


def test_a_template_that_refuses_every_chat_is_not_usable_and_the_start_warns(start, folder):
    path = folder("{{ raise_exception('never') }}")
    done = check(path)
    assert done.returncode == 1 and re.search("^result +NOT usable as it is: .*: TemplateError: never$", done.stdout, re.M), done.stdout
    gateway = start(workers=1, engine="builtin:echo", model=path)
    assert "does not render a user's message: chat template, line 1: TemplateError: never" in gateway.log()


def test_variables_that_a_template_cannot_do_without_are_named(folder):
    done = check(folder("{% if mode is not defined %}{{ raise_exception('set mode') }}{% endif %}" + CHATML))
    assert done.returncode == 1 and "NOT usable as it is: " in done.stdout, done.stdout
    assert re.search(r'^  better with +chat_template_kwargs {"mode": true}', done.stdout, re.M), done.stdout


def test_a_template_for_tools_that_serves_all_chats_is_mentioned(start, folder):
    path = folder([{"name": "tool_use", "template": CHATML}, {"name": "rag", "template": CHATML}])
    done = check(path)
    assert done.returncode == 0 and "only chat template is tool_use" in done.stdout, done.stdout
    assert "only chat template is tool_use" in start(workers=1, engine="builtin:echo", model=path).log()


@pytest.mark.parametrize("number,told", [({"patch_size": 0}, "patch_size is no integer from 1 to 1024"), ({"merge_size": 2.5}, "merge_size is no"),
                                         ({"min_pixels": 9, "max_pixels": 8}, "min_pixels is no integer from 1 to 8"),
                                         ({"size": {"longest_edge": -1}}, "longest_edge is no")])
def test_a_wrong_number_of_pictures_is_not_replaced_by_a_default(folder, number, told):
    """Pictures would count as other numbers of tokens than the engine makes of them."""
    path = folder()
    (path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "Qwen2VLImageProcessor", **number}))
    done = check(path)
    assert f"images are not supported: preprocessor_config.json: {told}" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("expression", [
    "(' ' * 1000000)|trim", "('x' * 1000000).strip('x')", "('\u00df' * 300000)|lower", "('\u00df' * 300000)|upper", "('\u00e9' * 300000)|title",
    "('\u00e9' * 300000)|urlencode", "('<' * 1000000)|e", "('\u00e9' * 300000)[::-1]", "('\u00e9' * 300000)[299999]",
    "('\u00e9' * 300000).isalpha()", "('\u00e9 ' * 300000).split()", "('x' * 1000000).find('x' * 500000 ~ 'y')",
    "('ab' * 500000).count('ab')", "('9' * 4000)|int", "('9' * 300000)|float"])
def test_work_for_each_character_is_counted(folder, expression):
    """A loop over it ends by the budget of steps within seconds: a step stands for the same work everywhere."""
    template = folder().parent / "endless.jinja"
    template.write_text("\n{% for i in range(100000) %}{% set x = " + expression + " %}{% endfor %}")
    done = subprocess.run([g.BINARY, "render", "--template", template], input='{"messages": []}', text=True, capture_output=True, check=False,
                          timeout=25 * g.PATIENCE)
    assert done.returncode == 1 and re.search("line 2: (BudgetError|MemoryError)", done.stderr), done.stderr
