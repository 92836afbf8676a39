"""The nodes of a namespace, as somebody with zkCli sees them."""

from __future__ import annotations

import json
from typing import Any

from kazoo.exceptions import NoNodeError

LASTING = {"", "/leases", "/ids", "/queue", "/sessions", "/clients", "/children", "/watchers", "/events"}
"""What stays when nobody holds anything."""


class Tree:
    def __init__(self, client: Any, root: str) -> None:
        self._client = client
        self._root = root

    def paths(self, under: str = "") -> set[str]:
        """All nodes, below the namespace's own."""
        found = {under}
        for name in self._client.get_children(self._root + under):
            try:
                found |= self.paths(f"{under}/{name}")
            except NoNodeError:
                continue
        return found

    def left(self) -> set[str]:
        """What is there beyond what always is, and what clients have that are open."""
        return {path for path in self.paths() - LASTING if not path.startswith(("/sessions/", "/clients/"))}

    def get(self, path: str) -> tuple[Any, Any]:
        """A node's data, as JSON, and its stat."""
        data, stat = self._client.get(self._root + path)
        return json.loads(data or b"null"), stat

    def everything(self) -> str:
        """All names and all data."""
        text = []
        for path in self.paths():
            text += [path, self._client.get(self._root + path)[0].decode()]
        return "\n".join(text)

    def delete(self, path: str = "") -> None:
        """Delete a node and all below it; or everything."""
        self._client.delete(self._root + path, recursive=True)

    def protect(self, path: str, permitted: Any) -> None:
        """Permit that, and nothing else."""
        self._client.set_acls(self._root + path, [permitted])
