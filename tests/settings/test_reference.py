"""The generated documents are in step with the typed settings."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from bflp.settings.reference import reference, schema

ROOT = Path(__file__).resolve().parents[2]


def test_settings_page_is_in_step() -> None:
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == reference()


def test_schema_is_in_step() -> None:
    assert (ROOT / "docs/config.schema.json").read_text(encoding="utf-8") == schema()


def as_json(file: Path) -> dict:
    """A YAML file as an editor sees it: JSON has text keys only."""
    return json.loads(json.dumps(yaml.safe_load(file.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "file", [ROOT / "config.yaml", *sorted((ROOT / "examples").glob("*.yaml"))], ids=lambda f: f.name
)
def test_schema_takes_every_config_that_comes_with_the_project(file: Path) -> None:
    content = as_json(file)
    # An overlay holds only a part.
    rules = json.loads(schema())
    for part in (rules, rules["$defs"]["Grid"], rules["$defs"]["Setup"]):
        part.pop("required", None)
    jsonschema.validate(content, rules)


def test_schema_refuses_a_misspelt_key() -> None:
    content = {**as_json(ROOT / "config.yaml"), "trainning": {}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json.loads(schema()))
