"""Our clients and official servers that let nobody in who is not signed, or not encrypted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from child_consumer import OurConsumer
from child_producer import produce

from interop.harness import checks
from interop.harness.clients import Row
from interop.harness.cluster import Cluster, OfficialCluster, close_all
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots

pytestmark = pytest.mark.java

ACCESS, SECRET = "RocketMQ", "12345678"
COUNT, SIZE = 60, 200
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
SETTINGS = {
    "5.4.0": {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_PROVIDERS}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_PROVIDERS}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": ACCESS, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": ACCESS, "secretKey": SECRET}
        ),
    },
    "4.9.7": {"aclEnable": "true"},
}
#: The 4.9 line keeps its accounts in a file.
ACCOUNTS = {
    "plain_acl.yml": f"""\
globalWhiteRemoteAddresses: []
accounts:
- accessKey: {ACCESS}
  secretKey: '{SECRET}'
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
}
TLS = {"tls.server.mode": "enforcing", "tls.test.mode.enable": "true", "tls.enable": "true"}


@pytest.fixture(params=by_tier(["5.4.0-acl"], ["5.4.0-tls", "4.9.7-acl", "4.9.7-tls"]))
def guarded(
    request: pytest.FixtureRequest, clusters: dict[str, Cluster], jvm_slots: JvmSlots
) -> Iterator[tuple[Cluster, dict[str, Any], dict[str, Any]]]:
    """Official servers, what a client needs, and what one has that does not get in."""
    close_all(clusters)
    line, _, guard = request.param.partition("-")
    settings = SETTINGS[line] if guard == "acl" else {}
    cluster = OfficialCluster(jvm_slots, line, broker_settings=settings)
    if guard == "acl":
        if line == "4.9.7":
            cluster.use({}, ACCOUNTS)
        right, wrong = {"acl": [ACCESS, SECRET]}, {"acl": [ACCESS, "87654321"]}
    else:
        cluster.use(TLS, {})
        right, wrong = {"client": {"use_tls": True}}, {}
    with cluster:
        yield cluster, right, wrong


def test_who_has_the_right_credentials_gets_in_and_nobody_else(
    guarded: tuple[Cluster, dict[str, Any], dict[str, Any]],
) -> None:
    cluster, right, wrong = guarded
    topic, seed = "Guarded", "guarded-seed"
    with pytest.raises(AssertionError, match=r"NoRouteError|SendFailedError|BrokerError"):
        produce(cluster.namesrv, topic, seed, 1, "async", SIZE, more=wrong)
    told = produce(cluster.namesrv, topic, seed, COUNT, "async", SIZE, more=right)
    assert {place[1] for place in told["sent"]} == {"SEND_OK"}
    for kind in ("push", "lite", "orderly"):
        with OurConsumer(cluster.namesrv, f"guarded-{kind}", topic, kind, **right) as consumer:
            rows: list[Row] = consumer.wait(COUNT)
        checks.bodies_are_whole(rows, seed, SIZE)
        checks.nothing_is_lost(rows, range(COUNT))
