"""Leases on etcd: native leases, transactions and watches."""

from leasehold.stores.etcd.store import EtcdStore

__all__ = ["EtcdStore"]
