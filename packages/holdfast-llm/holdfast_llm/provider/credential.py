"""The credential of a provider's account."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.outbound.credential import Credential, read_secret
from holdfast_llm.settings import CommonProviderSettings


def read_credential(
    name: str, provider: CommonProviderSettings, env: Mapping[str, str]
) -> Credential | None:
    """Read the credential of the provider *name* from its file or variable; None if it has none.

    Raises ConfigError, which names the source and never the value.
    """
    return read_secret(
        f"provider {name}",
        f"providers.{name}.credential",
        variable=provider.credential_env,
        file=provider.credential_file,
        env=env,
    )
