"""Everything that the OpenAPI document allows, and much that it forbids, asked by Schemathesis with every scope.

No answer may be a 500, and none may break its own description. Examples are few and always the same.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from equipoise_service.access.scopes import Scope
from equipoise_service.api import create_app
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from tests.integration.service.conftest import running_over
from tests.integration.service.fake import Call

EXAMPLES = 20
DOCUMENT = create_app(Settings(device="simulated")).openapi()
OPERATIONS = sorted((path, method) for path, operations in DOCUMENT["paths"].items() for method in operations)
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


class Target(NamedTuple):
    """A running service that asks for tokens, what shows one of each scope, and a comparison that has ended."""

    url: str
    headers: dict[str, dict[str, str]]
    comparison_id: str


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The service in a thread of its own: Schemathesis asks from a thread without an event loop."""
    folder = tmp_path_factory.mktemp("schemathesis")
    found: list[Target] = []
    ready, stop = threading.Event(), threading.Event()

    async def fail(call: Call) -> None:
        raise RuntimeError(f"{call.method} is not for this test")

    async def serve() -> None:
        here = Settings(
            data=folder / "data", cache=folder / "cache", device="simulated", require_tokens=True,
            requests_per_s=1_000_000.0,
        )  # fmt: skip
        store = Store.open(here.url_of_database)
        tokens = {scope.value: store.tokens.add(scope, scope)[1] for scope in Scope}
        store.database.close()
        headers = {name: {"Authorization": f"Bearer {text}"} for name, text in tokens.items()} | {"none": {}}
        async with running_over(here, fail) as running:
            running.client.headers.update(headers["admin"])
            comparison_id = await running.submit()
            await running.ended(comparison_id)
            found.append(Target(str(running.client.base_url), headers, comparison_id))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60)
    yield found[0]
    stop.set()
    thread.join()


@pytest.mark.parametrize("scope", ["none", *Scope])
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_api_keeps_its_own_description(target: Target, path: str, method: str, scope: str) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    statuses: set[int] = set()

    operation = schema[path][method.upper()]
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @given(case=cases, known=st.booleans())
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case: Case[Any], known: bool) -> None:
        if known and "comparison_id" in (case.path_parameters or {}):
            case.path_parameters["comparison_id"] = target.comparison_id
        response = case.call(base_url=target.url, headers=target.headers[scope], timeout=30)
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    ask()
    assert statuses
    if scope == "none" and path not in ("/livez", "/readyz"):
        assert statuses <= {401, 404, 405, 431}
