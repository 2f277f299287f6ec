"""How does a client speak TLS to its servers? Endpoints that wrap the usual ones.

Stands for ``TlsHelper.buildSslContext(true)`` and the ``tls.client.*`` properties. As with the official client the server's certificate is
not looked at unless ``tls_client_auth_server`` is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from OpenSSL import SSL, crypto
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IStreamClientEndpoint
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    KeyPair,
    PrivateCertificate,
    optionsForClientTLS,
    platformTrust,
)
from zope.interface import implementer

from txrocketmq.client.config import ClientConfig
from txrocketmq.errors import MQClientError
from txrocketmq.remoting.client import EndpointMaker
from txrocketmq.remoting.transport import client_endpoint


@implementer(IOpenSSLClientConnectionCreator)
class _AnyServer:
    """Encrypts, but believes every certificate."""

    def __init__(self, certificate: PrivateCertificate | None) -> None:
        options: Any = CertificateOptions if certificate is None else certificate.options
        self._context = options().getContext()

    def clientConnectionForTLS(self, tlsProtocol: object) -> SSL.Connection:
        """One connection."""
        return SSL.Connection(self._context, None)


def tls_endpoint(config: ClientConfig, plain: EndpointMaker = client_endpoint) -> EndpointMaker:
    """Makes endpoints that speak TLS.

    :raises MQClientError: a certificate or key cannot be read; names its path.
    """
    certificate = _own_certificate(config)
    trust: Any = platformTrust()  # type: ignore[no-untyped-call]
    if config.tls_client_trust_cert_path:
        trust = _read(config.tls_client_trust_cert_path, Certificate.loadPEM)
    any_server = None if config.tls_client_auth_server else _AnyServer(certificate)

    def make(reactor: Any, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        creator: Any = any_server or optionsForClientTLS(host, trust, certificate)
        wrapped: IStreamClientEndpoint = wrapClientTLS(
            creator, plain(reactor, host, port, timeout_s)
        )
        return wrapped

    return make


def _own_certificate(config: ClientConfig) -> PrivateCertificate | None:
    if not config.tls_client_cert_path:
        return None
    certificate = _read(config.tls_client_cert_path, Certificate.loadPEM)
    key = _read(config.tls_client_key_path, lambda data: KeyPair.load(data, crypto.FILETYPE_PEM))
    made: PrivateCertificate = PrivateCertificate.fromCertificateAndKeyPair(certificate, key)  # type: ignore[no-untyped-call]
    return made


def _read(path: str, load: Any) -> Any:
    try:
        return load(Path(path).read_bytes())
    except (OSError, ValueError, crypto.Error) as error:
        raise MQClientError(f"TLS: {path or 'tls_client_key_path'}: {error}") from None
