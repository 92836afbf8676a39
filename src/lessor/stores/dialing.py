"""Opens TCP connections, within one limit for all addresses that a name has."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from lessor.stores.descriptors import keep_from_children

if TYPE_CHECKING:
    from lessor.stores.limit import Limit


def dial(host: str, port: int, limit: Limit) -> socket.socket:
    """Connect to the first address that answers. Raises `OSError`; one that is silent leaves time for the others.

    The look-up of the name can't be interrupted: it counts, but may take longer.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for addresses_left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(limit.share(addresses_left).seconds)
            connection.connect(address)
        except OSError:
            connection.close()
            if addresses_left == 1:
                raise
        except BaseException:
            connection.close()
            raise
        else:
            keep_from_children(connection)
            return connection
    raise OSError(f"{host} has no address")
