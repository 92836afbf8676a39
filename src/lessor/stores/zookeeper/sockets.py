"""Connects to a server, with TLS or without; what fails is closed."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Any

from lessor.stores.descriptors import keep_from_children
from lessor.stores.dialing import dial
from lessor.stores.hosts import no_handshake

if TYPE_CHECKING:
    from lessor.stores.limit import Limit


def connect(
    address: tuple[str, int],
    hostname: str,
    limit: Limit,
    *,
    use_ssl: bool = False,
    ca: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    keyfile_password: str | None = None,
    verify_certs: bool = True,
    check_hostname: bool = False,
    **_others: Any,
) -> socket.socket:
    """Connect, with the settings that kazoo has for it."""
    connection = dial(*address, limit)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(limit.left())
        if not use_ssl:
            return connection
        context = ssl.create_default_context(cafile=ca)
        context.check_hostname = check_hostname and verify_certs
        context.verify_mode = ssl.CERT_REQUIRED if verify_certs else ssl.CERT_NONE
        if certfile:
            context.load_cert_chain(certfile, keyfile, keyfile_password)
        try:
            wrapped = context.wrap_socket(connection, server_hostname=hostname)
        except ssl.SSLCertVerificationError:
            raise
        except OSError as error:
            raise ConnectionError(errno.EPROTO, f"it {no_handshake(error)}") from None
        else:
            keep_from_children(wrapped)
            return wrapped
    except BaseException:
        connection.close()
        raise
