"""A comparison while it runs, in a browser: progress, intervals so far, cost, cancel, and a connection that drops."""

import json
import urllib.request

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Look, Site

LATENCY = {"model": "live", "parts": ["latency"], "pairs_max": 4, "quads": 1, "steps_per_block": 16}


def submit(site: Site) -> str:
    body = json.dumps(LATENCY).encode()
    request = urllib.request.Request(  # noqa: S310 - our own service
        f"{site.url}/compare", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return str(json.load(answer)["id"])


def test_a_running_comparison_shows_what_is_known_and_ends_by_itself(page: Page, site: Site, look: Look) -> None:
    site.paused.set()
    comparison_id = submit(site)
    page.goto(f"{site.url}/comparisons/{comparison_id}/page")
    expect(page.locator("#progress")).to_contain_text("warm_up")
    # The first pair is done when the second is held up; its engines held the device for a second.
    expect(page.locator("#looks")).to_contain_text("1 of at most 4 launch pairs, 1 GPU-seconds spent; about 3")
    expect(page.locator("#looks")).to_contain_text("3 until the look after 3 pairs, 4 if all 4 are needed.")
    expect(page.locator("#looks svg")).to_have_count(1)
    look(page, "running")
    site.paused.clear()
    expect(page.get_by_role("region", name="Verdict")).to_be_visible()
    expect(page.locator(".chip")).to_have_text("inconclusive")


def test_cancel_on_the_page_cancels(page: Page, site: Site) -> None:
    site.paused.set()
    comparison_id = submit(site)
    page.goto(f"{site.url}/comparisons/{comparison_id}/page")
    expect(page.locator("#progress")).to_contain_text("warm_up")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".chip")).to_have_text("cancelled")
    site.paused.clear()


def test_a_dropped_connection_is_taken_up_again(page: Page, context: BrowserContext, site: Site) -> None:
    site.paused.set()
    comparison_id = submit(site)
    page.goto(f"{site.url}/comparisons/{comparison_id}/page")
    expect(page.locator("#looks svg")).to_have_count(1)
    context.set_offline(True)
    site.paused.clear()
    page.wait_for_timeout(300)
    context.set_offline(False)
    expect(page.get_by_role("region", name="Verdict")).to_be_visible()
