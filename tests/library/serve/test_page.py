"""The page in a real browser: requests, results, copying, keyboard, small screens and dark mode."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from citerec.library.ask.recommender import Recommender
from citerec.recommend import run
from citerec.tests.library.conftest import RecommenderSpy, serving
from citerec.tests.library.evidence.made import paper_made, write_papers

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
WAIT = 120_000
expect.set_options(timeout=WAIT)
TEXT = "We train with Adam [CITE], an optimiser that adapts to gradients and to moments of any order."


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)  # no sandbox, for root
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, url: str) -> Iterator[Any]:
    """Opens the page with browser settings; afterwards fails on errors and on requests to other sites."""
    wrong: list[str] = []
    contexts = []

    def opened(**settings: Any) -> Any:
        context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"], **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on(
            "request", lambda sent: wrong.extend([] if sent.url.startswith((url, "data:")) else [sent.url])
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [one for one in wrong if "status of 422" not in one] == []


def wait_for_answer(page: Any) -> None:
    """Wait for the reranked papers."""
    expect(page.locator("#status")).to_have_text(re.compile("reranked$"))


def asked(open_page: Any, text: str = TEXT, **settings: Any) -> Any:
    """The page with the papers for a passage."""
    page = open_page(**settings)
    page.fill("#text", text)
    wait_for_answer(page)
    return page


def record_questions(page: Any) -> list[dict[str, Any]]:
    """Record the questions that the page sends from now on."""
    questions: list[dict[str, Any]] = []
    page.on("request", lambda sent: questions.extend([sent.post_data_json] * (sent.method == "POST")))
    return questions


def copied(page: Any, what: str = "") -> str:
    expect(page.locator("#status")).to_have_text(re.compile(f"^Copied {re.escape(what)}"))
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_papers_appear_at_a_pause_and_are_reranked(open_page: Any, recommender: RecommenderSpy) -> None:
    page = open_page()
    questions = record_questions(page)
    expect(page.locator("#about")).to_have_text("4 papers in papers")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.locator("#text").press_sequentially(TEXT)
    assert questions == [], "it sends at pauses, not at every key"
    page.clock.resume()
    wait_for_answer(page)
    assert page.locator("#papers h2").first.inner_text() != "Adam: A Method for Stochastic Optimization"
    assert [(one["text"], one["rerank"]) for one in questions] == [(TEXT, False), (TEXT, True)]
    assert questions[-1]["details"] is True


def test_the_caret_is_the_default_mark(open_page: Any) -> None:
    page = open_page()
    questions = record_questions(page)
    page.fill("#text", "Adam is an optimiser.")
    wait_for_answer(page)
    assert questions[-1]["text"] == "Adam is an optimiser. [CITE] "
    page.press("#text", "Home")
    for _ in range(4):
        page.press("#text", "ArrowRight")
    with page.expect_request(lambda sent: sent.method == "POST" and "Adam [CITE]  is" in sent.post_data):
        pass


def test_markup_is_shown_as_text_and_evidence_is_marked(open_page: Any) -> None:
    page = asked(open_page, "Adam and bold titles [CITE] of markup")
    titles = page.locator("#papers h2").all_inner_texts()
    assert any(title.startswith("<img src=x onerror=") for title in titles)
    assert page.locator("#papers img, #papers b, #papers script, #papers u, #papers i").count() == 0
    assert page.title() == "Recommend a citation"
    assert "Adam" in page.locator("#papers mark").all_inner_texts()
    links = page.locator("#papers a").evaluate_all("all => all.map(link => link.href)")
    assert links and all(link.startswith("https://") for link in links)  # none with javascript:


def test_what_the_draft_cites_is_marked(open_page: Any) -> None:
    page = open_page()
    page.locator("#paper").evaluate("details => { details.open = true; }")
    page.locator("#known").fill("@kingma2015adam, unknown")
    page.locator("#text").fill(TEXT)
    wait_for_answer(page)
    marked = page.locator("li", has_text="already cited in this draft")
    assert marked.count() == 1 and "kingma2015adam" in marked.inner_text()


def test_keyboard_only(open_page: Any) -> None:
    page = open_page()
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.insert_text(TEXT)
    wait_for_answer(page)
    focused = "document.activeElement.querySelector('h2')?.textContent ?? document.activeElement.id"
    titles = page.locator("#papers h2").all_inner_texts()
    page.keyboard.press("Control+ArrowDown")
    assert page.evaluate(focused) == titles[0]
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == titles[1]
    key = page.locator("#papers li").nth(1).locator(".key").inner_text()
    for press in ("Enter", "c"):
        page.keyboard.press(press)
        assert copied(page, key) == key
        page.keyboard.press("b")
        assert re.match(rf"@\w+{{{re.escape(key)},", copied(page, "BibTeX"))
    page.keyboard.press("r")
    assert f"\nID  - {key}\n" in copied(page, "RIS")
    page.keyboard.press("j")
    assert json.loads(copied(page, "CSL"))[0]["id"] == key
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == "text"
    page.keyboard.press("Control+ArrowDown")
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "text"


def test_a_paper_is_found_while_typing(open_page: Any) -> None:
    page = asked(open_page)
    recommended = page.locator("#papers h2").all_inner_texts()
    page.keyboard.press("Control+ArrowDown")
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("vasw")
    expect(page.locator("#papers h2")).to_have_text(["Attention Is All You Need"])
    expect(page.locator("#status")).to_have_text("1 paper with these words")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert copied(page) == "vaswani2017attention"
    page.keyboard.press("a")
    assert copied(page, "(") == "(Vaswani et al., 2017)"
    page.keyboard.press("Escape")
    page.keyboard.type(" xyz 1800")
    expect(page.locator("#status")).to_have_text(re.compile("with these words"))
    page.keyboard.press("Escape")
    expect(page.locator("#text")).to_be_focused()
    wait_for_answer(page)
    assert page.locator("#papers h2").all_inner_texts() == recommended
    page.fill("#query", "kingma")
    expect(page.locator("#papers h2")).to_have_text(["Adam: A Method for Stochastic Optimization"])
    page.fill("#text", "attention [CITE]")  # a changed passage asks again
    wait_for_answer(page)
    assert page.input_value("#query") == ""


def test_filters_exclude_papers(open_page: Any) -> None:
    page = asked(open_page, "attention, optimisers and titles of Adam [CITE]")
    page.click("summary:text('Filters')")
    page.fill("#collection", "networks")
    expect(page.locator("#papers h2")).to_have_text(["Attention Is All You Need"])
    page.fill("#collection", "")
    page.fill("#from", "2020")
    expect(page.locator("#papers .by")).to_have_text([re.compile("2020$")])
    page.fill("#to", "1999")
    expect(page.locator("#status.error")).to_have_text(re.compile("the first year comes after the last"))
    expect(page.locator(".waiting #papers")).to_have_css("opacity", "0.55")  # they are of the former question
    page.fill("#to", "19xx")
    expect(page.locator("#status.error")).to_have_text(re.compile("^years: must look like 2015-2020, "))
    page.fill("#to", "2025")
    expect(page.locator("#found:not(.waiting) #papers .by")).to_have_text([re.compile("2020$")])
    page.fill("#text", "")
    expect(page.locator("#papers li")).to_have_count(0)


def test_a_phone_in_dark_mode(open_page: Any) -> None:
    screen = {"width": 360, "height": 640}
    page = asked(open_page, viewport=screen, color_scheme="dark", has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    colours = "(name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number)"
    ground, ink = (sum(page.evaluate(colours, name)[:3]) for name in ("backgroundColor", "color"))
    assert ground < 120 and ink > 600
    page.locator("#papers .key").first.tap()
    assert copied(page) == page.locator("#papers .key").first.inner_text()


def test_controls_have_names_and_changes_are_announced(open_page: Any) -> None:
    page = asked(open_page)
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, textarea, button, a, li')].filter(one =>"
        " !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map(one => one.outerHTML)"
    )
    assert unnamed == []
    assert page.get_attribute("#status", "aria-live") == "polite"
    page.keyboard.press("Control+ArrowDown")
    focus = page.locator("#papers li:focus")
    expect(focus).to_have_css("outline-style", "solid")  # high contrast shows it
    assert page.get_by_label("Passage").first.is_visible()


def test_a_stopped_server_is_reported(chromium: Any, recommender: RecommenderSpy) -> None:
    with serving(recommender) as url:
        page = chromium.new_page()
        page.goto(url)
    page.fill("#text", TEXT)
    expect(page.locator("#status.error")).to_have_text("The server does not respond.")
    page.close()


def test_the_error_of_a_proxy_is_reported(chromium: Any, url: str) -> None:
    page = chromium.new_page()
    page.goto(url)
    page.route("**/recommend", lambda route: route.fulfill(status=502, body="<html>Bad gateway</html>"))
    page.fill("#text", TEXT)
    expect(page.locator("#status.error")).to_have_text("The server does not respond.")
    page.close()


def test_a_sentence_of_a_full_text_links_to_its_page_and_a_retraction_is_told(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = write_papers(tmp_path / "pdfs", range(2))[1]
    entry = (
        f"@article{{{made.key}, title={{RETRACTED: {made.title}}}, year={{2020}}, file={{:pdfs/1.pdf:PDF}}}}"
    )
    Path("papers.bib").write_text(entry, encoding="utf-8")
    run(["build", "library=mine", "source=papers.bib", "fulltext=true"])
    sentence = paper_made(1).sections[2][1][0].split(". ")[1]
    with serving(Recommender.open("mine")) as url:
        page = chromium.new_page()
        page.goto(url)
        page.locator("#text").fill(f"{sentence} [CITE]")
        expect(page.locator("#papers .retracted")).to_have_text("Retracted (its title)")
        link = page.locator("#papers .why a")
        expect(link).to_have_text(re.compile(r"^p\. \d$"))
        assert re.fullmatch(r"pdf\?id=[\w%.:-]+#page=\d", link.get_attribute("href"))
        page.close()
