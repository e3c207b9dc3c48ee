"""Key and trust stores as the tools of others make them: OpenSSL, and Java's keytool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import trustme

from connectx.jvm.java import find_java


def pkcs12_key_store(path: Path, certificate: trustme.LeafCert, password: str) -> str:
    """A key and its certificates, by OpenSSL; returns the path."""
    pem = path.with_suffix(".pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(pem)
    export = ["openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(path), "-passout", f"pass:{password}"]
    subprocess.run(export, check=True, capture_output=True)
    pem.unlink()
    return str(path)


def java_trust_store(path: Path, authority: trustme.CA, password: str, kind: str = "PKCS12") -> str:
    """A store that trusts an authority, by keytool; returns the path."""
    pem = path.with_suffix(".pem")
    authority.cert_pem.write_to_path(pem)
    keytool = [str(find_java({}).java), "-m", "java.base/sun.security.tools.keytool.Main"]
    options = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(pem), "-keystore", str(path)]
    subprocess.run([*keytool, *options, "-storetype", kind, "-storepass", password], check=True, capture_output=True)
    pem.unlink()
    return str(path)
