"""The site of docs/, as scripts/docs builds it, has no dead link and loads nothing from the network."""
import importlib.util
import sys

import pytest

import gateway as g

sys.path.insert(0, str(g.ROOT / "scripts"))
import build_site  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not importlib.util.find_spec("mkdocs"):
        pytest.skip("mkdocs is not installed")
    folder = tmp_path_factory.mktemp("docs") / "site"
    assert build_site.build(folder) == []
    return folder


def test_the_site_has_every_page(site):
    for page in build_site.pages().values():
        built = site / (page[:-3] + ".html" if page.endswith(".md") else page)
        assert built.exists(), page
    index = (site / "index.html").read_text()
    assert all(f'href="{page[:-3]}.html"' in index for page in build_site.pages().values() if page.endswith(".md") and page != "index.md")
    assert (site / "search/search_index.json").stat().st_size > 100_000


def test_faults_of_a_site_are_found(site, tmp_path):
    for text, said in (('<a href="nowhere.html">', "leads nowhere"), ('<a href="index.html#nothing">', "no such heading"),
                       ("<p>```sh run</p>", "was not read"), ('<script src="https://cdn.example/x.js">', "loads https://")):
        (tmp_path / "index.html").write_text("<h1 id=x></h1>" + text)
        found = build_site.faults(tmp_path)
        assert len(found) == 1 and said in found[0], found


def test_setup_for_building_has_no_package_of_the_site():
    text = (g.ROOT / "scripts/setup").read_text()
    assert "mkdocs" not in text.split('build="')[1].split('"')[0]
