"""Certificates to test with, made on the spot by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates; everything it makes lies in its folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        self._request(self._key, self.certificate, name, "-x509", "-days", "2")

    def issue(self, name: str, days: int = 2) -> dict[str, str]:
        """The variables that give a rank its certificate. days: until it expires."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        self._request(key, request, name)
        signing = ["-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", str(days)]
        _openssl("x509", "-req", "-in", str(request), "-out", str(certificate), *signing)
        return {
            "FAIRRING_TLS": "on",
            "FAIRRING_TLS_CERTIFICATE": str(certificate),
            "FAIRRING_TLS_KEY": str(key),
            "FAIRRING_TLS_CA": str(self.certificate),
        }

    def _request(self, key: Path, out: Path, name: str, *more: str) -> None:
        # A curve that every version of OpenSSL has; keys of RSA take longer to make.
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        _openssl("req", *kind, "-keyout", str(key), "-out", str(out), "-subj", f"/CN={name}", *more)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"openssl {' '.join(arguments)}: {done.stderr}"
