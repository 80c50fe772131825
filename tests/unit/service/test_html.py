"""Who gets a page and who a problem document. Expected answers: RFC 9110, section 12.5.1, and what clients send."""

import pytest

from equipoise_service.api.html import prefers_html


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),  # browsers
        ("text/html", True),
        ("TEXT/HTML;Q=0.9, application/json;q=0.5", True),
        ("text/*, */*;q=0.1", True),
        ("*/*", False),  # curl, httpx
        ("", False),
        ("application/json", False),
        ("application/problem+json, text/html;q=0.9", False),
        ("text/html, application/json", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=none", False),
        ("text/html;q=nan", False),
        ("text/event-stream", False),
        (";;,,=", False),
    ],
)
def test_only_who_ranks_html_higher_gets_a_page(accept: str, expected: bool) -> None:
    assert prefers_html(accept) is expected
