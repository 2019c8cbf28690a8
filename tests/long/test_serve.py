"""What the description of the server allows, tried at random: nothing makes it fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from unit.serve.served import Served, make_folders


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(make_folders(tmp_path_factory.mktemp("served")), tokens=32, seconds=20) as made:
        yield made


def test_no_request_that_is_described_fails(served: Served, tmp_path: Path) -> None:
    seen = 0
    with served.listen() as address:
        schema = schemathesis.openapi.from_url(f"{address}/seqloom/v1/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(
                max_examples=60,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
                database=None,
            )
            @given(case=operation.as_strategy())
            def ask(case: schemathesis.Case) -> None:
                nonlocal seen
                seen += 1
                answer = case.call()
                assert answer.status_code < 500, f"{case.method} {case.path} {case.body!r}: {answer.text}"

            ask()
    assert seen > 500
    assert '"event": "fault"' not in served.heard.getvalue()
    assert served.service.batcher.backlog == 0
