"""The JSON Schema of `matrix.yaml`, made from the models, for editors that check while one types."""

from __future__ import annotations

from typing import Any

from imagebuild.spec.models import Axes, Header, Row


def matrix_schema() -> dict[str, Any]:
    """The schema as JSON values (JSON Schema 2020-12)."""
    header = Header.model_json_schema(ref_template="#/$defs/{model}")
    row = Row.model_json_schema(ref_template="#/$defs/{model}")
    row["properties"].pop("name")
    row.pop("required", None)  # what a row leaves out may come from `defaults:`
    axes = Axes.model_json_schema(ref_template="#/$defs/{model}")
    definitions = {**header.pop("$defs", {}), **row.pop("$defs", {}), **axes.pop("$defs", {}), "row": row, "axes": axes}
    a_row = {"$ref": "#/$defs/row"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "buildkit matrix",
        **{key: value for key, value in header.items() if key not in ("title", "description")},
        "properties": {
            **header["properties"],
            "defaults": a_row,
            "rows": {"type": "object", "additionalProperties": {"anyOf": [a_row, {"type": "null"}]}},
            "axes": {"type": "array", "items": {"$ref": "#/$defs/axes"}},
        },
        "$defs": definitions,
    }
