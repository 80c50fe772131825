"""Pages in a browser: every verdict's word, hostile texts, reports from disk, light, dark, narrow and printed.

What is expected to be seen is what the prepared records say (``tests/support/worlds.py``).
"""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from equipoise_service.report import report_text
from tests.browser.conftest import HOSTILE, SHOTS, Look, Site

WORDS = ("ship", "neutral", "block", "inconclusive", "treatment_inactive", "invalid")


@pytest.mark.parametrize("word", WORDS)
def test_one_comparison(page: Page, site: Site, look: Look, word: str) -> None:
    page.goto(site.page_of(word))
    expect(page.locator(".chip")).to_have_text(word.replace("_", " "))
    card = page.get_by_role("region", name="Verdict")
    for said in ("How sure:", "What to do:"):
        expect(card).to_contain_text(said)
    # Two clocks and the blocks at two batch sizes; where there is something to judge, two forests and the pairs.
    expect(page.locator("svg.chart")).to_have_count(6 if word == "invalid" else 9)
    for chart in page.locator("svg.chart").all():
        assert chart.get_attribute("role") == "img"
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 300
    look(page, f"comparison-{word}")


def test_a_comparison_that_failed_says_where_and_shows_the_log(page: Page, site: Site, look: Look) -> None:
    page.goto(site.page_of("failed"))
    expect(page.get_by_role("region", name="Error")).to_contain_text(f"in stage start: the engine said {HOSTILE}")
    look(page, "comparison-failed")


def test_a_cancelled_comparison(page: Page, site: Site, look: Look) -> None:
    page.goto(site.page_of("cancelled"))
    expect(page.get_by_role("region", name="Error")).to_contain_text("cancelled on request")
    look(page, "comparison-cancelled")


def test_markup_of_models_and_answers_is_text(page: Page, site: Site, look: Look) -> None:
    page.goto(site.page_of("hostile"))
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_text("Question 3: other words").first.click()
    expect(page.locator("pre", has_text="<script>alert(2)</script>").first).to_be_visible()
    assert page.locator("img").count() == 0
    look(page, "comparison-hostile")
    page.goto(site.url)
    expect(page.locator(".list td", has_text=f"{HOSTILE}baseline")).to_be_visible()


def test_answers_stand_side_by_side_and_where_they_part_is_marked(page: Page, site: Site) -> None:
    page.goto(site.page_of("block"))
    page.get_by_text("Question 5 is right in one arm only").first.click()
    answers = page.locator("details[open] .answer")
    expect(answers).to_have_count(2)
    expect(answers.locator("mark")).to_have_text(["5", "1005"])
    first, second = (answer.bounding_box() for answer in answers.all())
    assert first is not None
    assert second is not None
    assert first["y"] == second["y"]
    assert first["x"] < second["x"]


@pytest.mark.parametrize("name", ["block", "hostile"])
def test_the_html_report_opens_from_disk_with_every_chart(
    page: Page, site: Site, look: Look, tmp_path: Path, name: str
) -> None:
    stored = site.store.comparisons.get(site.ids[name])
    assert stored is not None
    file = tmp_path / "report.html"
    file.write_text(report_text("html", stored, site.store.records), encoding="utf-8")
    page.goto(file.as_uri())
    expect(page.locator("svg.chart")).to_have_count(9)
    # Its own stylesheet is in force, or its policy has refused it.
    assert page.locator(".card").first.evaluate("card => getComputedStyle(card).borderTopStyle") == "solid"
    assert page.locator("script, img, link").count() == 0
    look(page, f"report-{name}")


def test_the_service_gives_the_same_file(page: Page, site: Site) -> None:
    stored = site.store.comparisons.get(site.ids["ship"])
    assert stored is not None
    page.goto(site.page_of("ship"))
    address = page.get_by_role("link", name="report (HTML").get_attribute("href")
    answer = page.goto(f"{site.url}{address}")
    assert answer is not None
    assert answer.text() == report_text("html", stored, site.store.records)
    assert page.locator(".card").first.evaluate("card => getComputedStyle(card).borderTopStyle") == "solid"


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_narrow_screen_in_both_themes(page: Page, site: Site, look: Look, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 360, "height": 740})
    for name, address in (("list", site.url), ("block", site.page_of("block"))):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        look(page, f"narrow-{scheme}-{name}")


def test_a_printed_page_shows_what_a_screen_folds_away(page: Page, site: Site) -> None:
    page.goto(site.page_of("block"))
    folded = page.get_by_role("region", name="Blocks of batch 16")
    expect(folded).to_be_hidden()
    page.emulate_media(media="print")
    expect(folded).to_be_visible()
    expect(page.locator("header")).to_be_hidden()
    page.pdf(path=SHOTS / "comparison-block.pdf")


def test_the_list(page: Page, site: Site, look: Look) -> None:
    page.goto(site.url)
    for word in WORDS:
        expect(page.locator(f".list .chip.{word}").first).to_be_visible()
    look(page, "list")
    page.goto(f"{site.url}/?verdict=neutral")
    expect(page.locator(".list tbody tr")).to_have_count(1)


def test_the_trend_marks_what_changed(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/trend?model=simulated")
    expect(page.locator("svg.chart")).to_have_count(2)
    told = page.get_by_role("region", name="Comparisons of this trend")
    expect(told).to_contain_text("sglang (baseline): 0.5.17, now 0.5.23")
    look(page, "trend")


def test_the_noise_of_a_machine(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/noise")
    expect(page.get_by_role("heading", name="NVIDIA H200")).to_be_visible()
    expect(page.locator("svg.chart")).to_have_count(1)
    look(page, "noise")


def test_two_comparisons_beside_each_other(page: Page, site: Site, look: Look) -> None:
    page.goto(site.page_of("ship"))
    page.get_by_role("link", name="difference to another comparison").click()
    page.get_by_label("Second").fill(site.ids["block"])
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("region", name="Words")).to_contain_text("shipblock")
    expect(page.get_by_role("region", name="Effects")).to_contain_text("busy")
    look(page, "diff")


def test_what_cannot_be_compared_says_why(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/diff?first={site.ids['ship']}&second={site.ids['invalid']}")
    expect(page.get_by_role("alert")).to_contain_text("the second cannot be judged (missing_answers)")
    look(page, "diff-refused")


def test_the_list_is_narrowed_sorted_and_paged_with_its_form(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/?limit=3")
    page.get_by_label("Verdict").select_option("ship")
    page.get_by_label("Order").select_option("fastest")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".list tbody tr")).to_have_count(2)
    expect(page.locator(".list tbody .chip")).to_have_text(["ship", "ship"])
    page.goto(f"{site.url}/?limit=3")
    first = page.locator(".list tbody time").all_text_contents()
    page.get_by_role("link", name="Next page").click()
    second = page.locator(".list tbody time").all_text_contents()
    assert len(first) == len(second) == 3
    assert min(first) >= max(second)


def test_everything_is_reached_by_keyboard(page: Page, site: Site) -> None:
    page.goto(site.page_of("block"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    summary = page.get_by_text("Effects of each launch pair").first
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Effects of each launch pair")).to_be_visible()


def test_a_problem_is_a_page_with_a_way_out(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/?verdict=magic")
    expect(page.get_by_role("heading", name="What to do")).to_be_visible()
    look(page, "problem")
