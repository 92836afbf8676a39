"""Three nodes of ours and three of etcd: the store that needs no database, and the one that people run instead.

etcd takes part with the fastest client that we know of, our own store for it, and with aetcd as people use it.
"""

from __future__ import annotations

from bench.contestants.aetcd import Aetcd
from bench.contestants.lessor import AsyncLessor, Lessor
from bench.places import ClusterPlace

WORKS = ("sequential", "callers*", "handover", "takeover", "holding*")


class OnCluster(Lessor):
    name = "lessor"
    store = "cluster"
    packages = ("lessor", "msgspec", "uvloop")
    works = WORKS

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.ours(url), ttl)


class AsyncOnCluster(AsyncLessor):
    name = "lessor async"
    store = "cluster"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.ours(url), ttl)


class OnEtcdCluster(Lessor):
    name = "etcd, by lessor"
    store = "cluster"
    kind = "peer"
    works = WORKS

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.etcd(url), ttl)


class AsyncOnEtcdCluster(AsyncLessor):
    name = "etcd, by lessor async"
    store = "cluster"
    kind = "peer"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.etcd(url), ttl)


class AetcdOnCluster(Aetcd):
    """It knows one member."""

    name = "etcd, by aetcd Lock"
    store = "cluster"
    works = (*WORKS, "renewing")

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.etcd(url).partition(",")[0], ttl)
