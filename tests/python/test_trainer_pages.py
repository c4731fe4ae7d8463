"""One page for each adapter: what it configures is there, and parses."""
import ast
import inspect
import re
import tomllib

import pytest
import yaml

import gateway as g
from rollgate import hooks

DOCS, PACKAGE = g.ROOT / "docs", g.ROOT / "python/rollgate"
PAGES = sorted(DOCS.glob("trainers/*.md"))
# modules that import a trainer, and the page of each
ADAPTERS = {"agent_lightning": "agent-lightning", "areal": "areal", "miles": "miles", "nemo_gym": "nemo-gym", "openrlhf": "openrlhf", "prime_rl": "prime-rl",
            "rllm": "rllm", "skyrl": "skyrl", "slime": "slime", "tinker": "tinker", "tinker_cookbook": "tinker", "trl": "trl", "uni_agent": "uni-agent", "verl": "verl", "verl_manager": "verl"}


def blocks(page):
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)


def members(module):
    return {n.name: n for n in ast.parse((PACKAGE / f"{module}.py").read_text()).body if hasattr(n, "name")}


def test_every_adapter_has_its_page_and_the_index_names_it():
    adapters = {p.stem for p in PACKAGE.glob("*.py") if re.search(r"^\"\"\"[\w-]+[^\n]*:", p.read_text()) and "Contract:" in p.read_text()}
    assert adapters == set(ADAPTERS)
    assert {p.stem for p in PAGES} == set(ADAPTERS.values())
    index = (DOCS / "trainers.md").read_text()
    assert all(f"(trainers/{p.name})" in index for p in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_is_complete(page):
    text = page.read_text()
    modules = [m for m, name in ADAPTERS.items() if name == page.stem]
    assert text.startswith("# ") and "For users of" in text and "## What arrives" in text and "Not supported" in text
    for commit in set(re.findall(r"commit ([0-9a-f]{7})", text)):
        assert any(commit in (PACKAGE / f"{m}.py").read_text() for m in [*modules, "samples"]), f"the module read another commit than {commit}"
    assert re.search(r"commit [0-9a-f]{7}", text) and len(text.split()) <= 500


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_configures_exists(page):
    named = set(re.findall(r"rollgate\.(\w+)\.(\w+)", page.read_text())) | {
        (m, n.strip()) for m, names in re.findall(r"from rollgate\.(\w+) import (.+)", page.read_text()) for n in names.split(",")}
    assert named or page.stem in ("prime-rl", "agent-lightning")
    for module, name in named:
        assert name in members(module), f"rollgate.{module} has no {name}"
    for kind, text in blocks(page):
        if kind == "yaml":
            check_settings(page, yaml.safe_load(text))
        elif kind == "toml":
            assert set(tomllib.loads(text)["train"]["source"][0]["env"]) - {"id", "taskset"} <= set(fields_of("prime_rl", "RollgateEnvConfig"))
        elif kind == "sh":
            check_command(text)
        elif kind == "python":
            check_calls(ast.parse(text))
        own = [line for line in text.splitlines() if line.strip() and not line.startswith(("import", "from"))]
        assert len(own) <= 10, "at most ten lines of the user's own"


def fields_of(module, name):
    return [n.target.id for n in members(module)[name].body if isinstance(n, ast.AnnAssign)]


def arguments_of(module, name):
    node = members(module)[name]
    init = next((n for n in node.body if getattr(n, "name", "") == "__init__"), node)
    if not hasattr(init, "args"):
        return set(fields_of(module, name))     # a dataclass
    return {a.arg for a in [*init.args.args, *init.args.kwonlyargs]} - {"self"}


def check_settings(page, given):
    text = str(given)
    if isinstance(given, list):     # verl's agent loops
        for loop in given:
            assert set(loop) - {"name", "_target_"} <= arguments_of("verl", "RollgateAgentLoop")
    elif "custom" in given and "rollgate" in given["custom"]:
        settings = next(n for n in ast.parse((PACKAGE / "verl_manager.py").read_text()).body if getattr(getattr(n, "targets", [0])[0], "id", "") == "SETTINGS")
        assert set(given["custom"]["rollgate"]) <= set(ast.literal_eval(settings.value))
    elif "rollgate_agent" in given:
        agent = given["rollgate_agent"]["responses_api_agents"]["rollgate_agent"]
        assert set(agent) - {"entrypoint"} <= set(fields_of("nemo_gym", "RollgateAgentConfig"))
    elif "custom" in given:
        assert set(given["custom"]["agent_framework"]["rollgate"]) <= {"url", "key", "session", "export"}
    else:
        assert set(given) <= {f"rollgate_{n}" for n in ("runner", "url", "key", "group", "session", "export")}, text


def check_command(text):
    """Options of the module that it runs are in the module's own parser."""
    module = re.search(r"-m rollgate\.(\w+) \w", text)[1]
    source = (PACKAGE / f"{module}.py").read_text()
    for option in re.findall(r"--([a-z]+)", text):
        assert f'"--{option}"' in source or f'"{option}"' in source, option


def check_calls(tree):
    """Keywords of calls of our classes and functions are theirs."""
    ours = {"RollgateWorkflow": "areal", "RollgateGenerator": "skyrl", "RollgateRollouts": "trl", "RollgateExecutor": "openrlhf", "install": "rllm",
            "RollgateStrategy": "tinker_cookbook", "RollgateTasks": "tinker_cookbook"}
    for node in ast.walk(tree):
        name = getattr(getattr(node, "func", None), "id", None) or getattr(getattr(node, "func", None), "attr", None)
        name = "RollgateExecutor" if name == "__init__" else name
        if isinstance(node, ast.Call) and name in ours:
            assert {k.arg for k in node.keywords} <= arguments_of(ours[name], name), ast.unparse(node)


def test_examples_are_the_pages_configurations():
    shown = {(page.name, text) for page in PAGES for _, text in blocks(page)}
    files = sorted((g.ROOT / "examples/trainers").iterdir())
    for path in files:
        head, _, text = path.read_text().partition("\n")
        page = re.fullmatch(r"# docs/trainers/(.+) explains it\.", head)[1]
        assert (page, text) in shown and path.name.startswith(page.removesuffix(".md").replace("-", "_")), path.name
    assert len(files) == len(shown), "each block is a file"


def test_the_common_options_are_the_hooks():
    index = (DOCS / "trainers.md").read_text()
    taken = set(inspect.signature(hooks.Hook).parameters)
    assert {"runner", "url", "key", "group", "session", "export"} <= taken
    assert all(f"`{name}`" in index for name in taken - {"one_row"})
