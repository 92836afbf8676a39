"""A real S3 server: SeaweedFS, master, volume server, filer and S3 gateway in one process."""

from __future__ import annotations

import contextlib
import http
import shutil
import subprocess
import sysconfig
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import S3Store

from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "bucket"


class S3Server:
    """One server with one bucket, which everybody may use."""

    def __init__(self, folder: str) -> None:
        program = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
        if program is None:
            not_here("weed (SeaweedFS) is not installed")
        self.port = free_port()
        ports = [
            f"-{part}.port{kind}={free_port()}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")
        ]
        command = [
            program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *ports, "-volume.max=4",
            "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-filer", f"-filer.localSocket={folder}/filer.sock",
            "-s3", f"-s3.port={self.port}", f"-s3.port.grpc={free_port()}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-s3.iam=false", f"-s3.localSocket={folder}/s3.sock",
        ]  # fmt: skip
        self._log = Path(folder, "weed.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        until(self._has_bucket, "the server's start", 90)
        until(self._takes_objects, "the first object", 90)

    def _has_bucket(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        request = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as error:
            with error:
                return error.code == http.HTTPStatus.CONFLICT  # an earlier attempt has made it
        except OSError:
            return False
        return True

    def _takes_objects(self) -> bool:
        with contextlib.suppress(BaseError):
            self.store().put("ready", b"yes")
            return True
        return False

    def store(self) -> S3Store:
        return store(self.url)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def store(url: str) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=url,
        region="us-east-1",
        access_key_id="anybody",
        secret_access_key="anything",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(prefix="lessor-s3-", ignore_cleanup_errors=True) as folder:
        server = S3Server(folder)
        try:
            server.wait()
            yield server
        finally:
            server.end()
