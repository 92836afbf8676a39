"""Leases on lessor nodes; see `store`."""

from lessor.stores.paxos.store import PaxosStore

__all__ = ["PaxosStore"]
