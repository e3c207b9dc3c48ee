"""Translates settings of Kafka clients from Java's spelling to librdkafka's.

Decides what a key means for librdkafka, and reports keys that have no meaning there. It never decides which settings a
client gets (`connectx.kafka.settings.clients`), and of files it reads only PKCS#12 stores. Java's keys are those of
Kafka's ProducerConfig, ConsumerConfig, AdminClientConfig, SslConfigs and SaslConfigs; whether librdkafka knows a key is
asked of the installed librdkafka itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException, Producer

from connectx.errors.kafka import ClientSettingError
from connectx.key_stores import KeyStore, read_pkcs12
from connectx.values import Value

SECURITY_PREFIXES: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.ca.")
"""What keys that have to do with encryption and login begin with, in both spellings."""

# One name for what librdkafka has two names for, so that a higher layer replaces a lower one.
_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "delivery.timeout.ms": "message.timeout.ms",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    # Java's name for the same thing
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
# Java plugs in classes here, or the setting is about the JVM or a server, not about who is trusted: not reported.
_JAVA_ONLY: Final = re.compile(
    r"(key|value)\.(de)?serializer|metric\.reporters|metrics\..*|auto\.include\.jmx\.reporter"
    r"|ssl\.(protocol|keymanager\.algorithm|trustmanager\.algorithm|secure\.random\.implementation"
    r"|client\.auth|principal\.mapping\.rules|allow\.(dn|san)\.changes)"
)
_TRUST: Final = ("ssl.", "enable.ssl.", "https.ca.", "security.providers")
_NEWEST_TLS: Final = {"TLSV1.3"}
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_GROUPS_OF_BROKERS: Final = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)
"""What only members of classic groups have: with KIP-848 brokers decide it."""
_UNKNOWN: Final = "No such configuration property"
_OUTSIDE: Final = re.compile(r"value \S+ is outside allowed range (-?\d+)\.\.(-?\d+)")
_WANTS_OBJECT: Final = "requires a callable"  # a name that means an object to confluent-kafka, and no setting
_NEVER_A_KEY: Final = "connectx.never.a.key"
_JAAS: Final = re.compile(r"\s*([\w.$]+)\s+\w+\s*(.*?);?\s*", re.DOTALL)
_JAAS_OPTION: Final = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


class Layer(Value):
    """Settings of one origin: `prefix` is what their keys have in front where the user wrote them."""

    prefix: str
    settings: Mapping[str, str | None]


def to_librdkafka(
    layers: Sequence[Layer], warn: Callable[[str], None], own_keys: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Merge layers, later over earlier, and translate.

    `own_keys` are those that connectx's own clients read besides librdkafka's; their values are not checked here.
    Keys that librdkafka does not have are left out after a `warn`; numbers outside its limits become the limit.

    Raises:
        ClientSettingError: a value is not allowed, a key store cannot be read, or a key about trust has no meaning.
    """
    merged: dict[str, str] = {}
    given: dict[str, str] = {}
    for layer in layers:
        for key, value in _expand_jaas(layer).items():
            if value is not None:
                name = _ALIASES.get(key, key)
                merged[name], given[name] = value, layer.prefix + key
    _translate_stores(merged)
    _leave_to_brokers(merged, given, warn)
    _check_versions(merged.pop("ssl.enabled.protocols", ""), given)
    result: dict[str, str] = {}
    for key, value in merged.items():
        if _JAVA_ONLY.fullmatch(key):
            continue
        if key in own_keys:
            result[key] = value.strip()
            continue
        name, translated = _translate(key, value.strip())
        problem = _ask_librdkafka(name, translated)
        shown = given.get(key, key)
        if outside := _OUTSIDE.search(problem):
            low, high = int(outside[1]), int(outside[2])
            result[name] = str(low if int(translated) < low else high)
        elif _UNKNOWN in problem and name.startswith(_TRUST):
            raise ClientSettingError(
                f"{shown} is about trust, and librdkafka, which connectx's clients are made of, has no such setting.",
                next_step="Remove it if the clients need not keep to it.",
            )
        elif _UNKNOWN in problem:
            warn(f"{shown} has no effect: librdkafka, which connectx's clients are made of, has no such setting.")
        elif problem:
            raise ClientSettingError(
                f"The value of {shown} is not allowed: {problem.strip()}.", next_step="Correct it or leave it out."
            )
        else:
            result[name] = translated
    return result


def _leave_to_brokers(merged: dict[str, str], given: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """Leave out, in place, what members of KIP-848 groups may not set; a warning unless it is our own default."""
    if merged.get("group.protocol", "").strip().lower() != "consumer":
        return
    merged["group.protocol"] = "consumer"
    for key in _GROUPS_OF_BROKERS:
        if merged.pop(key, None) is not None and given[key] != key:
            warn(f"{given[key]} has no effect: with group.protocol=consumer brokers decide it.")


def _check_versions(listed: str, given: Mapping[str, str]) -> None:
    """librdkafka takes TLS 1.2 and later, and cannot be kept from either."""
    if {one.strip().upper() for one in listed.split(",")} == _NEWEST_TLS:
        raise ClientSettingError(
            f"{given['ssl.enabled.protocols']}={listed.strip()} cannot be kept: clients also take TLS 1.2.",
            next_step="Allow TLSv1.2, too, or refuse it on the brokers.",
        )


def _translate(key: str, value: str) -> tuple[str, str]:
    match key:
        case "buffer.memory":
            return "queue.buffering.max.kbytes", str(max(1, int(value) // 1024))
        case "security.protocol":
            return key, value.upper()
        case "ssl.endpoint.identification.algorithm":
            return key, value.lower() or "none"
        case "connections.max.idle.ms" | "socket.receive.buffer.bytes" | "socket.send.buffer.bytes" if value == "-1":
            return key, "0"
        case "auto.offset.reset" if value.lower() == "none":
            return key, "error"
        case "partition.assignment.strategy":
            names = [_ASSIGNORS.get(name.strip(), name.strip()) for name in value.split(",")]
            return key, ",".join(names)
        case _:
            return key, value


def _ask_librdkafka(key: str, value: str) -> str:
    """librdkafka's objection to this setting, or nothing. A second, unknown key keeps the client from starting."""
    try:
        Producer({key: value, _NEVER_A_KEY: ""})
    except KafkaException as error:
        text = str(error.args[0].str())
        if _WANTS_OBJECT in text:
            return _UNKNOWN
        return "" if _NEVER_A_KEY in text else text
    except (AttributeError, TypeError, ValueError):  # likewise
        return _UNKNOWN
    return ""


def _expand_jaas(layer: Layer) -> Mapping[str, str | None]:
    """The layer with `sasl.jaas.config` replaced by librdkafka's settings."""
    jaas = layer.settings.get("sasl.jaas.config")
    if jaas is None:
        return layer.settings
    parsed = _JAAS.fullmatch(jaas)
    quoted_options = _JAAS_OPTION.findall(parsed[2]) if parsed else []
    options = {name: _unescape(quoted) or bare for name, quoted, bare in quoted_options}
    module = parsed[1].rpartition(".")[2] if parsed else ""
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            found = {"sasl.username": options.get("username"), "sasl.password": options.get("password")}
        case "OAuthBearerLoginModule":
            names = {"client.id": "clientId", "client.secret": "clientSecret", "scope": "scope"}
            found = {f"sasl.oauthbearer.{name}": options.get(option) for name, option in names.items()}
            found["sasl.oauthbearer.method"] = "oidc"
        case "Krb5LoginModule":
            found = {"sasl.kerberos.keytab": options.get("keyTab"), "sasl.kerberos.principal": options.get("principal")}
        case _:
            raise ClientSettingError(
                f"{layer.prefix}sasl.jaas.config names no login module that connectx knows.",
                next_step="Use PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or Krb5LoginModule.",
            )
    rest = {key: value for key, value in layer.settings.items() if key != "sasl.jaas.config"}
    return {**found, **rest}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _translate_stores(settings: dict[str, str]) -> None:
    """Java's trust and key stores, in place: librdkafka's file settings for PEM files, PEM texts for PKCS#12."""
    trust_type, trust_password = (settings.pop(f"ssl.truststore.{name}", "") for name in ("type", "password"))
    if trust := settings.pop("ssl.truststore.location", ""):
        if _is_pem(trust, trust_type):
            settings.setdefault("ssl.ca.location", trust)
        else:
            settings.setdefault("ssl.ca.pem", _read("ssl.truststore", trust, trust_password).certificates)
    key_type, key_password = (settings.pop(f"ssl.keystore.{name}", "") for name in ("type", "password"))
    if own := settings.pop("ssl.keystore.location", ""):
        if _is_pem(own, key_type):
            settings.setdefault("ssl.certificate.location", own)
            settings.setdefault("ssl.key.location", own)
        else:
            store = _read("ssl.keystore", own, key_password)
            settings |= {"ssl.certificate.pem": store.certificates, "ssl.key.pem": store.key}
            if key_password:
                settings["ssl.key.password"] = key_password


def _is_pem(path: str, stated: str) -> bool:
    """By the stated type, else by the file's ending."""
    return stated.upper() == "PEM" or (not stated and path.rpartition(".")[2].lower() in ("pem", "crt", "cer"))


def _read(setting: str, path: str, password: str) -> KeyStore:
    try:
        return read_pkcs12(path, password)
    except ValueError as error:
        raise ClientSettingError(
            f"{setting}.location={path} cannot be used: {error}.",
            next_step=f"Check the file and {setting}.password; for a PEM file set {setting}.type=PEM.",
        ) from None
