"""Certificates and keys of one control plane, made in a folder: an authority of our own, one server certificate, the key of accounts."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

LIFE = datetime.timedelta(days=30)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def make_certificates(folder: Path, service_ip: str) -> None:
    """Write ``ca.crt``, ``server.crt``, ``server.key`` and ``accounts.key``; keys are readable by their owner only."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("gke-emulator-ca", "gke-emulator-ca", authority_key, authority_key, authority=True)
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ("127.0.0.1", service_ip)]
    names = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in NAMES), *addresses])
    server = _certificate("kube-apiserver", "gke-emulator-ca", key, authority_key, names=names)
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / "server.key", key)
    _write_key(folder / "accounts.key", rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _certificate(
    name: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    names: x509.SubjectAlternativeName | None = None,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    builder = builder.add_extension(
        x509.KeyUsage(digital_signature=True, key_cert_sign=authority, crl_sign=authority, **usage), critical=True
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
