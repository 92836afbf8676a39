"""Health and metrics, over HTTP: for load balancers, supervisors and Prometheus. It shows counts, and no names."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lessor.node.service import Service

PATIENCE: Final = 5.0
LONGEST_HEAD: Final = 16 * 1024
"""Bytes of a request, up to the empty line."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Web:
    """Answers one request a connection."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request, and answer it."""
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    code, text = self._answer(head.split(b"\r\n", 1)[0])
                except asyncio.LimitOverrunError:
                    code, text = 431, f"the request is longer than {LONGEST_HEAD} bytes\n"
                body = text.encode()
                writer.write(
                    f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
                if code == 431:
                    writer.write_eof()
                    while await reader.read(LONGEST_HEAD):  # to close before that would take the answer back
                        pass
        writer.close()

    def _answer(self, request: bytes) -> tuple[int, str]:
        words = request.split()
        if len(words) != 3 or words[0] != b"GET":
            return 400, "only GET\n"
        if words[1] == b"/health":
            state = self._service.state
            return (200 if state == "serving" else 503), f"{state}\n"
        if words[1] == b"/metrics":
            return 200, self._metrics()
        return 404, "there are /health and /metrics\n"

    def _metrics(self) -> str:
        service = self._service
        status = service.status(0)
        gauges = {
            "serving": int(status.state == "serving"),
            "silence_left_seconds": status.silence_left_ns / 1e9,
            "live_leases": status.live,
            "waiters": status.waiting,
            "resources": len(service.acceptor.slots),
            "room_used_ratio": service.acceptor.used / service.acceptor.most,
            "connections": status.connections,
            "greeting": len(service.greeting),
            "clock_disagreement_ppm": status.clock_rate_ppm,
            "high_water_mark": status.high_water,
            "floor": status.floor,
        }
        lines = []
        for name, value in gauges.items():
            lines += [f"# TYPE lessor_node_{name} gauge", f"lessor_node_{name} {value}"]
        for name in ("requests", "items", "refusals", "pushes", "writes", "dropped listeners", "dropped for room"):
            full = f"lessor_node_{name.replace(' ', '_')}_total"
            lines += [f"# TYPE {full} counter", f"{full} {service.counts[name]}"]
        return "\n".join(lines) + "\n"
