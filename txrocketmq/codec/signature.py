"""How is a request signed? The HMAC that official access control wants, over the header's values and the body.

Stands for ``AclSigner`` and ``AclUtils.combineRequestContent``: the values of all header fields but the signature itself, in the order of
their names by UTF-16 code units, nothing between them, then the body; HMAC-SHA1 with the secret, in Base64.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


def signed_content(ext_fields: Mapping[str, str | None], body: bytes) -> bytes:
    """The bytes that are signed; a value that is None counts as ``null``, as in Java."""
    names = sorted(
        (name for name in ext_fields if name != SIGNATURE),
        key=lambda name: name.encode("utf-16-be", "surrogatepass"),
    )
    values = ("null" if ext_fields[name] is None else str(ext_fields[name]) for name in names)
    return "".join(values).encode("utf-8", "replace") + body


def calculate_signature(content: bytes, secret_key: str) -> str:
    """The signature of some bytes."""
    digest = hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1")
    return base64.b64encode(digest).decode()
