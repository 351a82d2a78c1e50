"""FastAPI's refusals in our words."""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError

from app.native.validation_errors import MAX_ERRORS, problem_of_validation


def test_every_fault_has_its_place() -> None:
    problem = problem_of_validation(
        RequestValidationError(
            [
                {"loc": ("body", "partitions", 3, "a/b"), "msg": "Input should be less", "type": "x"},
                {"loc": ("query", "page_size"), "msg": "too small", "type": "x"},
                {"loc": ("body", "configs", "a", "nullable[int]"), "msg": "wrong.", "type": "x"},
                {"loc": ("body",), "msg": "Field required", "type": "missing"},
            ]
        )
    )
    assert problem.status == 422
    assert problem.detail == "partitions[3].a/b: Input should be less."
    assert problem.errors == [
        {"detail": "Input should be less.", "pointer": "#/partitions/3/a~1b", "field": "partitions[3].a/b"},
        {"detail": "Too small.", "parameter": "page_size"},
        {"detail": "Wrong.", "pointer": "#/configs/a", "field": "configs.a"},
        {"detail": "Field required.", "pointer": "#"},
    ]


def test_a_body_that_is_no_json_is_400() -> None:
    fault = {"loc": ("body", 3), "msg": "JSON decode error", "type": "json_invalid"}
    assert problem_of_validation(RequestValidationError([fault])).status == 400


def test_a_thousand_faults_are_cut_short() -> None:
    faults = [{"loc": ("body", i), "msg": "no", "type": "x"} for i in range(1000)]
    assert len(problem_of_validation(RequestValidationError(faults)).errors) == MAX_ERRORS
