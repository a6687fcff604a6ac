"""What the classes and codes of network clients mean. Keys of classes are ``package.Class``."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import (
    AuthDenied,
    ConfigInvalid,
    Failure,
    Gone,
    NetworkTimeout,
    RateLimited,
    RuleViolated,
    SchemaInvalid,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)

MODEL_SDKS = frozenset({"anthropic", "openai"})
# Packages whose errors have the HTTP status in status_code, status or code.
HTTP_CLIENTS = MODEL_SDKS | {
    "aiohttp",
    "google",
    "httpx",
    "httpx2",
    "mistralai",
    "requests",
    "urllib",
    "urllib3",
    "xmlrpc",
}


def _named(package: str, names: str) -> list[str]:
    return [f"{package}.{name}" for name in names.split()]


_HTTPX = "TimeoutException NetworkError RemoteProtocolError ProxyError"
_NETWORK = (
    *_named("aiohttp", "ClientConnectionError ClientPayloadError"),
    *_named("anthropic", "APIConnectionError"),
    *_named("asyncio", "IncompleteReadError"),
    *_named("botocore", "ConnectionError ConnectTimeoutError ConnectionClosedError"),
    *_named("botocore", "EndpointConnectionError HTTPClientError IncompleteReadError"),
    *_named("botocore", "ReadTimeoutError ResponseStreamingError SSLError"),
    *_named("google", "TransportError"),
    *_named("curl_cffi", "ConnectionError DNSError IncompleteRead ProxyError SSLError Timeout"),
    *_named("grpc", "FutureTimeoutError"),
    *_named("http", "BadStatusLine IncompleteRead"),
    *(name for package in ("httpcore", "httpcore2") for name in _named(package, _HTTPX)),
    *(name for package in ("httpx", "httpx2") for name in _named(package, _HTTPX)),
    *_named("mistralai", "NoResponseError"),
    *_named("openai", "APIConnectionError"),
    *_named("pymongo", "AutoReconnect ExecutionTimeout WaitQueueTimeoutError"),
    *_named("redis", "ConnectionError InvalidResponse TimeoutError"),
    *_named("requests", "ChunkedEncodingError ConnectionError Timeout"),
    *_named("smtplib", "SMTPConnectError SMTPServerDisconnected"),
    *_named("socket", "gaierror herror"),
    *_named("ssl", "SSLError"),
    *_named("urllib", "ContentTooShortError"),
    *_named("urllib3", "EmptyPoolError NewConnectionError ProtocolError ProxyError SSLError"),
    *_named("urllib3", "TimeoutError"),
    *_named("websockets", "ConnectionClosed"),
)

CLASSES: Mapping[str, type[Failure]] = {
    **dict.fromkeys(_NETWORK, NetworkTimeout),
    **dict.fromkeys(
        _named(
            "redis",
            "BusyLoadingError ClusterDownError MasterDownError OutOfMemoryError ReadOnlyError"
            " TryAgainError",
        ),
        UpstreamDown,
    ),
    # These are connection errors in the hierarchy of redis, and do not pass.
    **dict.fromkeys(
        _named("redis", "AuthenticationError AuthorizationError NoPermissionError"), AuthDenied
    ),
    # A body that AWS did not write: cut off, or from a proxy.
    "botocore.ResponseParserError": UpstreamError,
    "smtplib.SMTPNotSupportedError": ConfigInvalid,
}

BAD_CERTIFICATES = frozenset(
    {
        "aiohttp.ClientConnectorCertificateError",
        "aiohttp.ServerFingerprintMismatch",
        "curl_cffi.CertificateVerifyError",
        "ssl.SSLCertVerificationError",
    }
)

# Error codes that AWS documents as throttling or transient, whatever their HTTP status is.
AWS_CODES: Mapping[str, type[Failure]] = {
    **dict.fromkeys(
        (
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "LimitExceededException",
            "PriorRequestNotComplete",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
        ),
        RateLimited,
    ),
    **dict.fromkeys(("RequestTimeout", "RequestTimeoutException"), NetworkTimeout),
    **dict.fromkeys(
        ("TransactionConflictException", "TransactionInProgressException"), WriteConflict
    ),
    **dict.fromkeys(("InternalError", "InternalFailure", "InternalServerError"), UpstreamError),
    **dict.fromkeys(("ServiceUnavailable", "ServiceUnavailableException"), UpstreamDown),
    **dict.fromkeys(
        (
            "AccessDenied",
            "AccessDeniedException",
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
        ),
        AuthDenied,
    ),
}

# Error numbers of libcurl: no proxy, host or connection, HTTP/2 framing, a cut transfer, a timeout,
# the TLS handshake, an empty reply, failed sends and receives, stream errors.
CURL_NETWORK = frozenset({5, 6, 7, 16, 18, 28, 35, 52, 55, 56, 92, 95})
# The certificate was rejected, or the file with the authorities cannot be read.
CURL_CERTIFICATE = frozenset({60, 77, 83, 90, 91})

GRPC_CODES: Mapping[str, type[Failure]] = {
    **dict.fromkeys(("CANCELLED", "DEADLINE_EXCEEDED"), NetworkTimeout),
    "UNAVAILABLE": UpstreamDown,
    "RESOURCE_EXHAUSTED": RateLimited,
    "ABORTED": WriteConflict,
    **dict.fromkeys(("DATA_LOSS", "INTERNAL", "UNKNOWN"), UpstreamError),
    **dict.fromkeys(("PERMISSION_DENIED", "UNAUTHENTICATED"), AuthDenied),
    "NOT_FOUND": Gone,
    **dict.fromkeys(("ALREADY_EXISTS", "FAILED_PRECONDITION"), RuleViolated),
    **dict.fromkeys(("INVALID_ARGUMENT", "OUT_OF_RANGE", "UNIMPLEMENTED"), SchemaInvalid),
}

# Codes of model APIs whose HTTP status says less, or which arrive in a stream that began with 200.
MODEL_CODES: Mapping[str, type[Failure]] = {
    "insufficient_quota": ConfigInvalid,
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded"), RateLimited),
    "overloaded_error": UpstreamDown,
    "timeout_error": NetworkTimeout,
    **dict.fromkeys(("api_error", "internal_error", "server_error"), UpstreamError),
}
