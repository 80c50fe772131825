"""The form that submits a comparison, in a browser."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import Look, Site


def test_a_comparison_is_planned_then_submitted(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/new")
    expect(page.get_by_role("button", name="Submit")).to_have_count(0)
    page.get_by_label("Model").fill("formed")
    page.get_by_label("accuracy", exact=True).uncheck()
    page.get_by_label("Launch pairs at most").fill("3")
    page.get_by_label("Steps of a block").fill("16")
    page.get_by_role("button", name="Show plan and cost").click()
    expect(page.locator("main")).to_contain_text("by typical figures of this kind of device")
    expect(page.get_by_role("region", name="Set-up")).to_contain_text("at most 3, looks after 3")
    expect(page.get_by_label("Launch pairs at most")).to_have_value("3")
    look(page, "new")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("formed")
    expect(page.get_by_role("region", name="Verdict")).to_be_visible()
    page.goto(f"{site.url}/new")
    page.get_by_label("Model").fill("formed")
    page.get_by_label("accuracy", exact=True).uncheck()
    page.get_by_label("Launch pairs at most").fill("3")
    page.get_by_label("Steps of a block").fill("16")
    page.get_by_role("button", name="Show plan and cost").click()
    # Fake engines hold the device for a second a pair.
    expect(page.locator("main")).to_contain_text("0.05 device minutes if the first look ends it (after 3 launch pairs)")
    expect(page.locator("main")).to_contain_text("by the launch pairs of an earlier run of the same plan")


def test_what_is_wrong_with_a_form_is_said_beside_what_was_filled_in(page: Page, site: Site, look: Look) -> None:
    page.goto(f"{site.url}/new")
    page.get_by_label("Model").fill("kept")
    page.get_by_label("Batch size that decides").fill("7")
    page.get_by_role("button", name="Show plan and cost").click()
    expect(page.get_by_role("alert")).to_contain_text("primary_batch 7")
    expect(page.get_by_label("Model")).to_have_value("kept")
    look(page, "new-refused")
