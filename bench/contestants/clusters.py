"""Three nodes of ours and three of etcd: the store that needs no database, and the one that people run instead.

etcd takes part with the fastest client that we know of, our own store for it, and with aetcd as people use it.
"""

from __future__ import annotations

from bench.contestants.aetcd import Aetcd
from bench.contestants.leasehold import AsyncLeasehold, Leasehold
from bench.places import ClusterPlace

WORKS = ("sequential", "callers*", "handover", "takeover", "holding*")


class OnCluster(Leasehold):
    name = "leasehold"
    store = "cluster"
    packages = ("leasehold", "msgspec", "uvloop")
    works = WORKS

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.ours(url), ttl)


class AsyncOnCluster(AsyncLeasehold):
    name = "leasehold async"
    store = "cluster"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.ours(url), ttl)


class OnEtcdCluster(Leasehold):
    name = "etcd, by leasehold"
    store = "cluster"
    kind = "peer"
    works = WORKS

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(ClusterPlace.etcd(url), ttl)


class AsyncOnEtcdCluster(AsyncLeasehold):
    name = "etcd, by leasehold async"
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
