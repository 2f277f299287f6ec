"""The declared keys are exactly the official ones, and the reference page says what they say."""

import gzip
import json
from pathlib import Path

import pytest

from txrocketmq.config import schema
from txrocketmq.config.keys import Computed, key_table, keys_of
from txrocketmq.config.reference import configuration_reference

ROOT = Path(__file__).parents[2]
OFFICIAL = json.loads(
    gzip.decompress((ROOT / "tests/data/protocol/config_keys.json.gz").read_bytes())
)


OWN = {"brokerPlugins"}
"""Keys that official servers do not have."""


@pytest.mark.parametrize("class_name", sorted(OFFICIAL))
def test_every_official_key_is_declared_with_its_type_and_default(class_name):
    cls = getattr(schema, class_name)
    declared = {
        spec.name: (
            spec.java_type,
            spec.default.words if isinstance(spec.default, Computed) else spec.default,
            spec.important,
        )
        for spec in keys_of(cls)
        if spec.name not in OWN
    }
    official = {
        key["name"]: (key["type"], key["default"], key.get("important", False))
        for key in OFFICIAL[class_name]
    }
    assert declared == official


@pytest.mark.parametrize("class_name", sorted(OFFICIAL))
def test_a_key_can_be_set_by_the_name_of_its_java_setter(class_name):
    table = key_table(getattr(schema, class_name))
    for key in OFFICIAL[class_name]:
        if "property" in key:
            assert table[key["property"]] is table[key["name"]]


@pytest.mark.parametrize("class_name", sorted(OFFICIAL))
def test_defaults_have_the_declared_type(class_name):
    kinds = {"int": int, "long": int, "double": float, "boolean": bool}
    config = getattr(schema, class_name)()
    for spec in keys_of(type(config)):
        value = getattr(config, spec.attribute)
        assert value is None or type(value) is kinds.get(spec.java_type, str), spec.name


def test_attributes_follow_the_official_name():
    config = schema.BrokerConfig()
    assert (config.broker_cluster_name, config.default_topic_queue_nums) == ("DefaultCluster", 8)
    store = schema.MessageStoreConfig()
    assert (store.flush_disk_type, store.mapped_file_size_commit_log) == ("ASYNC_FLUSH", 1 << 30)


def test_the_committed_configuration_page_is_current():
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert page == configuration_reference(), (
        "run: python -m txrocketmq.config.reference > docs/configuration.md"
    )


def test_every_key_has_a_help_text_of_its_own():
    for class_name in OFFICIAL:
        texts = [spec.help for spec in keys_of(getattr(schema, class_name))]
        assert all(text.endswith(".") and len(text) > 12 for text in texts)
        assert len(set(texts)) > 0.98 * len(texts)
