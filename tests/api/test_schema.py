"""The OpenAPI document: generated requests cause no server error and no undocumented answer.

``make schemathesis`` runs ten thousand examples; the suite runs a few of each operation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from holdfast import FakeClock
from tests.api.world import World, make_world

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "0"))
CHECKS: Any = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("schema")
    made = make_world(f"sqlite:///{folder}/work.db", FakeClock(), folder)
    yield made
    made.hf.close()


def test_the_document_is_openapi_3_1_with_stable_operation_ids(world: World) -> None:
    document = world.client().get("/openapi.json").json()
    operations = [
        operation for methods in document["paths"].values() for operation in methods.values()
    ]
    names = [operation["operationId"] for operation in operations]

    assert document["openapi"].startswith("3.1")
    assert len(names) == len(set(names)) > 50
    assert all("_v1_" not in name for name in names)
    assert all("401" in operation["responses"] for operation in operations)


@pytest.mark.timeout(3_600 if EXAMPLES else 120)
def test_generated_requests_meet_no_failure_and_no_undocumented_answer(world: World) -> None:
    keys = [world.key("admin", None).secret, world.key("operator").secret]
    schema = schemathesis.openapi.from_asgi("/openapi.json", world.app)
    operations = [found.ok() for found in schema.get_all_operations()]
    each = max(1, EXAMPLES // len(operations))
    wrong: list[str] = []
    count = 0

    for operation in operations:
        cases = st.one_of(operation.as_strategy(mode) for mode in GenerationMode)

        @settings(
            max_examples=each, deadline=None, derandomize=not EXAMPLES, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=cases, key=st.sampled_from(keys))
        def call(case: Any, key: str) -> None:
            nonlocal count
            count += 1
            # A generated request may carry headers of its own, such as another key.
            headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "10.0.0.1"}
            # A stream never ends; the tool reads it for ten seconds unless there is a limit.
            limit = {"timeout": 1.0} if case.operation.path.endswith("/events") else {}
            case.call_and_validate(checks=CHECKS, headers=headers, **limit)

        try:
            call()
        except Exception as exc:
            wrong.append(f"{operation.label}: {exc}")

    assert wrong == [], "\n\n".join(wrong)
    assert count >= EXAMPLES * 0.9
