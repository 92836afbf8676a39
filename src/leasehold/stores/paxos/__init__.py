"""Leases on leasehold nodes; see `store`."""

from leasehold.stores.paxos.store import PaxosStore

__all__ = ["PaxosStore"]
