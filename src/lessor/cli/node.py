"""``lessor node``: one of the processes that keep the leases of a ``paxos://`` URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.timing import to_ns
from lessor.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    import ssl

    from lessor.node.settings import Settings


def node(args: argparse.Namespace) -> int:
    """Run a node, or prepare its data folder."""
    try:
        from lessor.node import process  # noqa: PLC0415 - needs msgspec
    except ModuleNotFoundError as error:
        raise ConfigError(f"a node needs {error.name}: pip install 'lessor[paxos]'") from error
    settings = _settings(args).check()
    if args.init:
        process.init(settings.data, settings.id)
        return 0
    return process.run(settings)


def _settings(args: argparse.Namespace) -> Settings:
    from lessor.node.settings import Settings, parse_peers  # noqa: PLC0415
    from lessor.stores.paxos.address import Place, read_secret  # noqa: PLC0415

    server, peer = _contexts(args)
    return Settings(
        id=args.id,
        listen=Place.parse(args.listen),
        peers=parse_peers(args.peers),
        data=args.data,
        http=Place.parse(args.http) if args.http else None,
        secret=read_secret(args.secret_file) if args.secret_file else b"",
        tls=server,
        peer_tls=peer,
        max_ttl_ns=to_ns(args.max_ttl, "the longest TTL"),
        max_leases=args.max_leases,
        json_log=args.log == "json",
    )


def _contexts(args: argparse.Namespace) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return how to be trusted by those who connect, and how to trust the other nodes."""
    if not args.tls_cert:
        if args.tls_key or args.tls_ca or args.tls_clients:
            raise ConfigError("TLS needs a certificate: --tls-cert")
        return None, None
    import ssl  # noqa: PLC0415

    from lessor.stores.hosts import tls_context  # noqa: PLC0415

    if args.tls_clients and not args.tls_ca:
        raise ConfigError("--tls-clients needs --tls-ca: whom do their certificates come from?")
    try:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=args.tls_ca)
        server.load_cert_chain(args.tls_cert, args.tls_key)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificates can't be used: {error}") from None
    if args.tls_clients:
        server.verify_mode = ssl.CERT_REQUIRED
    peer = {"cert": args.tls_cert, "key": args.tls_key or args.tls_cert}
    if args.tls_ca:
        peer["ca"] = args.tls_ca
    return server, tls_context(peer)
