"""Leases on a ZooKeeper ensemble."""

from lessor.stores.zookeeper.store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
