"""Certificates for TLS tests, made by the `openssl` command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """A CA, a server certificate for localhost and 127.0.0.1 that it signed, and a CA that signed nothing."""

    ca: Path
    cert: Path
    key: Path
    wrong_ca: Path

    @staticmethod
    def available() -> bool:
        """Tell whether the `openssl` command, which makes the certificates, is on PATH."""
        return shutil.which("openssl") is not None

    @classmethod
    def create(cls, folder: Path) -> Certificates:
        """Make a fresh set in `folder`; takes about 0.2 s."""
        certificates = cls(folder / "ca.crt", folder / "server.crt", folder / "server.key", folder / "wrong-ca.crt")
        _self_signed_ca(folder / "ca.key", certificates.ca, "right")
        _self_signed_ca(folder / "wrong-ca.key", certificates.wrong_ca, "wrong")
        request, extensions = folder / "server.csr", folder / "server.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        _openssl("req", "-new", *_NEW_KEY, "-keyout", certificates.key, "-out", request, "-subj", "/CN=localhost")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", certificates.ca, "-CAkey", folder / "ca.key"),
            *("-CAcreateserial", "-days", "30", "-extfile", extensions, "-out", certificates.cert),
        )
        return certificates

    def server_context(self) -> ssl.SSLContext:
        """Give what a Python server needs to answer with the server certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _self_signed_ca(key: Path, cert: Path, name: str) -> None:
    _openssl(
        *("req", "-x509", *_NEW_KEY, "-keyout", key, "-out", cert, "-days", "30", "-subj", f"/CN=tenure {name} CA"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )


def _openssl(*args: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise RuntimeError(f"openssl {args[0]} failed: {done.stderr.strip()}")
