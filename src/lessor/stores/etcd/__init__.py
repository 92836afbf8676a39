"""Leases on etcd: native leases, transactions and watches."""

from lessor.stores.etcd.store import EtcdStore

__all__ = ["EtcdStore"]
