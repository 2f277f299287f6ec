"""TLS between our client and a server, over real sockets."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet import reactor, ssl

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.tls import tls_endpoint
from txrocketmq.errors import MQClientError, RemotingError
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher, Lane, Operation, Reply
from txrocketmq.remoting.protocol import RemotingServerFactory

HOST = "localhost"


def write_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{host}.pem", folder / f"{host}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


class Echo:
    """Answers with the body."""

    def echo(self, request: Any) -> Reply:
        return Reply(body=request.body)


class Scene:
    """A TLS server, and what was started for it."""

    def __init__(self, folder: Path, host: str) -> None:
        self.certificate, key = write_certificate(folder, host)
        pem = self.certificate.read_bytes() + key.read_bytes()
        options = ssl.PrivateCertificate.loadPEM(pem).options()
        operation = Operation(10, None, None, "echo.echo", Lane.SEND)
        self.factory = RemotingServerFactory(
            Dispatcher((operation,), {"echo": Echo()}, reactor),  # type: ignore[arg-type]
            reactor,  # type: ignore[arg-type]
        )
        self.port = reactor.listenSSL(0, self.factory, options, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.key = key

    async def ask(self, config: ClientConfig, body: bytes) -> bytes:
        client = RemotingClient(reactor, endpoint=tls_endpoint(config))
        try:
            address = f"{HOST}:{self.port.getHost().port}"
            return (await client.request(address, 10, None, body, 5000)).body
        finally:
            await client.stop()

    async def stop(self) -> None:
        await self.port.stopListening()
        await self.factory.close_all()


def config(**settings: Any) -> ClientConfig:
    return ClientConfig(namesrv_addr="192.0.2.1:9876", use_tls=True, **settings)


@pytest_twisted.ensureDeferred
async def test_requests_and_large_bodies_pass(tmp_path: Path) -> None:
    scene = Scene(tmp_path, HOST)
    body = bytes(range(256)) * 16_000
    assert await scene.ask(config(), body) == body
    own = {
        "tls_client_cert_path": str(scene.certificate),
        "tls_client_key_path": str(scene.key),
    }
    assert await scene.ask(config(**own), b"x") == b"x"
    await scene.stop()


@pytest_twisted.ensureDeferred
async def test_a_certificate_is_looked_at_on_demand(tmp_path: Path) -> None:
    scene, other = Scene(tmp_path, HOST), Scene(tmp_path, "other.test")

    def strict(path: Path) -> ClientConfig:
        return config(tls_client_auth_server=True, tls_client_trust_cert_path=str(path))

    assert await scene.ask(strict(scene.certificate), b"x") == b"x"
    for asked, trusted in ((scene, other), (other, other)):
        with pytest.raises(RemotingError):
            await asked.ask(strict(trusted.certificate), b"x")
    await scene.stop()
    await other.stop()


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for settings in (
        {"tls_client_trust_cert_path": str(tmp_path / "absent.pem")},
        {"tls_client_trust_cert_path": str(junk)},
        {"tls_client_cert_path": str(junk)},
    ):
        with pytest.raises(MQClientError, match="TLS: "):
            tls_endpoint(config(**settings))
