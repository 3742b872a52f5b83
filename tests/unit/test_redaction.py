"""One answer for the whole package to what a secret is."""

from __future__ import annotations

from honcho_fallback.redaction import call_metadata, is_secret_name, label, redact

SECRETS = (
    "api_key", "apikey", "X-API-Key", "key", "Ocp-Apim-Subscription-Key", "authorization",
    "cookie", "Set-Cookie", "bearer", "token", "sessionToken", "client_secret", "password",
    "db_pass", "sig", "X-Amz-Signature", "X-Amz-Credential", "jwt", "auth",
)  # fmt: skip
PUBLIC = ("monkey", "keyboard", "token_count", "author", "compass", "region", "model", "workspace")


def test_a_name_is_a_secrets_or_it_is_none() -> None:
    """A header, a parameter of an address and a name in metadata are judged alike."""
    assert [name for name in SECRETS if not is_secret_name(name)] == []
    assert [name for name in PUBLIC if is_secret_name(name)] == []
    for name in SECRETS:
        assert label(f"https://host/v1?{name}=hunter2") == f"https://host/v1?{name}=[redacted]"
        assert "hunter2" not in redact(f"refused https://host/v1?{name}=hunter2")
        assert call_metadata({name: "hunter2", "run": "r-17"}) == {"run": "r-17"}
    for name in PUBLIC:
        address = f"https://host/v1?{name}=eu"
        assert label(address) == redact(address) == address
        assert call_metadata({name: "eu"}) == {name: "eu"}


def test_an_address_has_one_form_without_its_login() -> None:
    """Who reads a log beside a trace finds the same text in both."""
    address = "https://me:hunter2@host/v1?max_tokens=5&sig=abc"
    shown = "https://[redacted]@host/v1?max_tokens=5&sig=[redacted]"
    assert label(address) == redact(address) == shown
    assert call_metadata({"base_url": address}) == {"base_url": shown}
