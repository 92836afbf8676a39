"""Leases on a ZooKeeper ensemble."""

from leasehold.stores.zookeeper.store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
