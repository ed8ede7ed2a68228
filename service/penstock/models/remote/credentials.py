"""Credentials of object stores: Triton's variables and file, and what the clouds' own tools read.

What `obstore` reads by itself from the environment (web identities, roles of containers and of
machines) is left to it.
"""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.models.remote.address import BucketAddress

VARIABLE = "TRITON_CLOUD_CREDENTIAL_PATH"
"""Names the file of credentials by prefixes of addresses (R-32)."""

Options = dict[str, Any]
"""Arguments of a store of `obstore`."""

_GOOGLE = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY")
_GOOGLE_MACHINE = Path("/sys/class/dmi/id/product_name")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The options with which a store opens a bucket; read anew each time they are asked for.

    `home` has `.aws` and `.config/gcloud`.
    """

    environment: Mapping[str, str]
    home: Path

    def options(self, address: BucketAddress) -> Options:
        """The options for an address; raises `InvalidRequestError` for a file that is none."""
        given = self._in_file(address)
        find = {"s3": self._amazon, "gs": self._google, "as": self._azure}[address.scheme]
        return find(address, given)

    @property
    def anonymous(self) -> bool:
        """Whether requests to S3 are not signed, which `obstore` reads by itself."""
        return self.environment.get("AWS_SKIP_SIGNATURE", "").lower() in ("true", "1", "yes", "on")

    def _in_file(self, address: BucketAddress) -> Any:
        """What the file says for the longest prefix of the address; `None` without any."""
        path = self.environment.get(VARIABLE)
        if not path:
            return None
        try:
            stores = json.loads(Path(path).read_bytes())
            prefixes = dict(stores.get(address.scheme, {}))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InvalidRequestError(
                f"{VARIABLE}: '{path}' cannot be read as a JSON object of s3, gs and as: {error}"
            ) from error
        fitting = [prefix for prefix in prefixes if address.text.startswith(prefix)]
        return prefixes[max(fitting, key=len)] if fitting else None

    # -- S3 -----------------------------------------------------------------------------------

    def _amazon(self, address: BucketAddress, given: Any) -> Options:
        variables, options = self.environment, Options()
        fields = dict(given or {})
        profile = fields.get("profile") or (None if given else variables.get("AWS_PROFILE"))
        if fields.get("key_id"):
            options |= _keys(fields.get("key_id"), fields.get("secret_key"))
            options["session_token"] = fields.get("session_token")
        elif _any(variables, "AWS_ACCESS_KEY_ID") and not profile:
            options |= _keys(variables["AWS_ACCESS_KEY_ID"], variables.get("AWS_SECRET_ACCESS_KEY"))
            options["session_token"] = variables.get("AWS_SESSION_TOKEN")
        elif profile or not _any(variables, "AWS_WEB_IDENTITY_TOKEN_FILE"):
            options |= self._profile(profile)
        region = variables.get("AWS_DEFAULT_REGION") or variables.get("AWS_REGION")
        options["region"] = fields.get("region") or region or options.get("region")
        endpoint = address.endpoint or variables.get("AWS_ENDPOINT_URL_S3")
        options["endpoint"] = endpoint or options.get("endpoint")
        style = options.pop("addressing_style", None)
        style = fields.get("addressing_style") or style
        if style in ("path", "virtual"):
            options["virtual_hosted_style_request"] = style == "virtual"
        return _present(options)

    def _profile(self, name: str | None) -> Options:
        """What `~/.aws` says of a profile; of the default one it need not say anything."""
        found = self._profile_lines(name or "default")
        if not found and name:
            raise InvalidRequestError(f"there is no profile '{name}' in ~/.aws")
        if not found.get("aws_access_key_id") and _any(
            found, "role_arn", "sso_session", "sso_start_url", "credential_process"
        ):
            return self._by_boto3(name)
        styles = configparser.ConfigParser(interpolation=None)
        styles.read_string(f"[s3]\n{found.get('s3', '')}".replace("\n ", "\n"))
        return {
            **_keys(found.get("aws_access_key_id"), found.get("aws_secret_access_key")),
            "session_token": found.get("aws_session_token"),
            "region": found.get("region"),
            "endpoint": found.get("endpoint_url"),
            "addressing_style": styles["s3"].get("addressing_style"),
        }

    def _profile_lines(self, name: str) -> dict[str, str]:
        lines: dict[str, str] = {}
        for variable, file, section in (
            ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
        ):
            path = Path(self.environment.get(variable) or self.home / ".aws" / file)
            parser = configparser.ConfigParser(interpolation=None)
            try:
                parser.read(path)
            except configparser.Error as error:
                text = str(error).splitlines()[0]
                raise InvalidRequestError(f"'{path}' cannot be read: {text}") from error
            if parser.has_section(section):
                lines |= dict(parser[section])
        return lines

    def _by_boto3(self, name: str | None) -> Options:
        """Roles, single sign-on and programs, which Amazon's own library knows."""
        try:
            import boto3  # type: ignore[import-not-found]
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ImportError as error:
            raise InvalidRequestError(
                f"the profile '{name or 'default'}' takes its keys from a role, single sign-on or"
                " a program, which needs boto3: pip install boto3"
            ) from error
        session = boto3.Session(profile_name=name)
        return {
            "credential_provider": Boto3CredentialProvider(session),
            "region": session.region_name,
        }

    # -- Google -------------------------------------------------------------------------------

    def _google(self, address: BucketAddress, given: Any) -> Options:
        if emulator := self.environment.get("STORAGE_EMULATOR_HOST"):
            url = emulator if "://" in emulator else f"http://{emulator}"
            return {"base_url": url.rstrip("/"), "skip_signature": True}
        if given:
            return {"application_credentials": str(given)}
        user = self.home / ".config/gcloud/application_default_credentials.json"
        if _any(self.environment, *_GOOGLE) or user.exists() or self._is_google_machine():
            return {}
        return {"skip_signature": True}  # anonymous

    def _is_google_machine(self) -> bool:
        """Whether a service account may be attached to this machine."""
        if _any(self.environment, "GCE_METADATA_HOST", "GCE_METADATA_IP", "METADATA_HOST"):
            return True
        try:
            return "Google" in _GOOGLE_MACHINE.read_text()
        except OSError:
            return False

    # -- Azure --------------------------------------------------------------------------------

    def _azure(self, address: BucketAddress, given: Any) -> Options:
        variables, fields = self.environment, dict(given or {})
        connection = _connection(variables.get("AZURE_STORAGE_CONNECTION_STRING", ""))
        account = fields.get("account_str") or address.account
        own = account in (variables.get("AZURE_STORAGE_ACCOUNT"), connection.get("AccountName"))
        key = fields.get("account_key")
        if not given and (own or "AZURE_STORAGE_ACCOUNT" not in variables):
            key = variables.get("AZURE_STORAGE_KEY") or connection.get("AccountKey")
        kind = fields.get("auth_type") or variables.get("AZURE_STORAGE_AUTH_TYPE") or "key"
        client = fields.get("client_id") or variables.get("AZURE_STORAGE_CLIENT_ID")
        endpoint = address.endpoint or (connection.get("BlobEndpoint") if own else None)
        endpoint = endpoint or variables.get("AZURE_STORAGE_ENDPOINT")
        return _present(
            {
                "account_name": account,
                "account_key": key if kind == "key" else None,
                "client_id": client if kind != "key" else None,
                "endpoint": endpoint,
            }
        )


def _connection(text: str) -> dict[str, str]:
    """The fields of a connection string of Azure."""
    pairs = (part.partition("=") for part in text.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def _keys(identity: str | None, secret: str | None) -> Options:
    return {"access_key_id": identity, "secret_access_key": secret}


def _present(options: Options) -> Options:
    return {name: value for name, value in options.items() if value not in (None, "")}


def _any(values: Mapping[str, str], *names: str) -> bool:
    return any(values.get(name) for name in names)
