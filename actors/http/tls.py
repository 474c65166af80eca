"""TLS towards providers: one context for each set of certificates, made once and only for https.

A context costs 22 ms and half a megabyte, and can be shared by any number of connections. `TlsSettings` names what it
is made of, so equal settings find the same one.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec

from ...protocol.errors import ConnectionSettingRefused
from ...protocol.settings import ProviderSettings

ALPN: Final = ["http/1.1"]


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whom we trust and who we are, as paths of PEM files; None is the usual authorities, and no certificate."""

    ca_bundle: str | None = None
    ca_folder: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    owner: str = ""
    """Where the settings stand, for errors: `providers.NAME.`."""
    is_from_environment: bool = False
    """Whether `ca_bundle` and `ca_folder` are SSL_CERT_FILE and SSL_CERT_DIR."""


def tls_of(provider: ProviderSettings, environment: Mapping[str, str]) -> TlsSettings:
    """The provider's settings; where it has no authorities of its own, those of the environment."""
    has_own = provider.ca_bundle is not None
    return TlsSettings(
        ca_bundle=provider.ca_bundle if has_own else environment.get("SSL_CERT_FILE") or None,
        ca_folder=None if has_own else environment.get("SSL_CERT_DIR") or None,
        client_cert=provider.client_cert,
        client_key=provider.client_key,
        owner=f"providers.{provider.name}." if has_own or provider.client_cert else "",
        is_from_environment=not has_own,
    )


@cache
def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """The context for these settings, the same one for equal ones.

    Raises `ConnectionSettingRefused`, which names the setting and the file, where a file cannot be used.
    """
    context = _trusting(tls)
    context.set_alpn_protocols(ALPN)
    if tls.client_cert is not None:
        try:
            context.load_cert_chain(tls.client_cert, tls.client_key)
        except OSError as error:
            key, path = _culprit(tls, tls.client_cert)
            raise ConnectionSettingRefused(tls.owner + key, path, _words(error)) from error
    return context


def _trusting(tls: TlsSettings) -> ssl.SSLContext:
    key = "SSL_CERT_FILE" if tls.is_from_environment else f"{tls.owner}ca_bundle"
    if tls.ca_bundle is None and tls.ca_folder is None:
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    try:
        # OpenSSL takes a folder that does not exist for an empty one, and every certificate then for a bad one.
        return ssl.create_default_context(cafile=tls.ca_bundle, capath=tls.ca_folder)
    except OSError as error:  # ssl.SSLError is one
        raise ConnectionSettingRefused(key, tls.ca_bundle or tls.ca_folder or "", _words(error)) from error


def _culprit(tls: TlsSettings, client_cert: str) -> tuple[str, str]:
    """Which of the two files it was: OpenSSL does not say."""
    try:
        with open(client_cert, "rb"):
            pass
    except OSError:
        return "client_cert", client_cert
    return ("client_key", tls.client_key) if tls.client_key is not None else ("client_cert", client_cert)


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not a usable PEM file ({error.reason or error})"
    return error.strerror or str(error)
