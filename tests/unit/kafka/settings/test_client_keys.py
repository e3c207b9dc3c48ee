from __future__ import annotations

import pytest

from connectx.errors.kafka import ClientSettingError
from connectx.kafka.settings.client_keys import Layer, to_librdkafka

JAAS = "org.apache.kafka.common.security"


def translated(*layers: dict[str, str | None]) -> dict[str, str]:
    return to_librdkafka([Layer("", layer) for layer in layers], pytest.fail)


def test_a_later_layer_replaces_an_earlier_one_also_under_another_name_of_the_same_setting() -> None:
    found = translated({"queue.buffering.max.ms": "1", "acks": "1"}, {"linger.ms": "7", "request.required.acks": "all"})
    assert found == {"linger.ms": "7", "acks": "all"}


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        ({"fetch.max.wait.ms": "10"}, {"fetch.wait.max.ms": "10"}),
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        ({"security.protocol": "sasl_ssl"}, {"security.protocol": "SASL_SSL"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"linger.ms": "99999999"}, {"linger.ms": "900000"}),
        (
            {
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, "
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "range,cooperative-sticky"},
        ),
        ({"key.serializer": "x", "metrics.num.samples": "2", "ssl.protocol": "TLSv1.3"}, {}),
        ({"acks": None}, {}),
    ],
)
def test_javas_words_become_librdkafkas(java: dict[str, str | None], librdkafka: dict[str, str]) -> None:
    assert translated(java) == librdkafka


def test_with_kip_848_brokers_decide_what_members_of_classic_groups_set_themselves() -> None:
    warned: list[str] = []
    own = {"partition.assignment.strategy": "range", "max.poll.interval.ms": "1"}
    worker = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}
    layers = [Layer("", own), Layer("consumer.", worker), Layer("consumer.override.", {"group.protocol": "CONSUMER"})]
    assert to_librdkafka(layers, warned.append) == {"max.poll.interval.ms": "1", "group.protocol": "consumer"}
    assert [warning.split()[0] for warning in warned] == [
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
    ]


def test_any_setting_that_librdkafka_has_passes_as_it_is() -> None:
    given = {
        "sasl.username": "alice",
        "enable.ssl.certificate.verification": "false",
        "ssl.crl.location": "/crl.pem",
        "sasl.oauthbearer.method": "oidc",
        "broker.address.family": "v4",
    }
    assert translated(dict(given)) == given


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.engine.factory.class": "Mine"},
        {"ssl.provider": "BCFIPS"},
        {"security.providers": "Fips"},
        {"ssl.unheard.of": "true"},
        {"enable.ssl.anything": "true"},
        {"ssl.enabled.protocols": "TLSv1.3"},
    ],
)
def test_a_setting_about_trust_is_never_left_out(given: dict[str, str | None]) -> None:
    with pytest.raises(ClientSettingError, match=next(iter(given))):
        translated(given)


def test_settings_of_servers_and_versions_that_are_all_taken_are_left_out() -> None:
    assert translated({"ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.1,TLSv1.2,TLSv1.3"}) == {}


def test_a_setting_without_a_counterpart_is_left_out_and_named_as_the_user_wrote_it() -> None:
    said: list[str] = []
    layer = Layer("producer.override.", {"max.block.ms": "1", "my.interceptor.setting": "2", "on_delivery": "3"})
    assert to_librdkafka([layer], said.append) == {}
    assert [sentence.split()[0] for sentence in said] == [
        "producer.override.max.block.ms",
        "producer.override.my.interceptor.setting",
        "producer.override.on_delivery",
    ]


def test_a_value_that_no_client_takes_is_an_error_that_names_the_key() -> None:
    layer = Layer("consumer.", {"isolation.level": "sometimes"})
    with pytest.raises(ClientSettingError, match=r"consumer\.isolation\.level"):
        to_librdkafka([layer], lambda sentence: None)


@pytest.mark.parametrize(
    ("jaas", "librdkafka"),
    [
        (
            f'{JAAS}.plain.PlainLoginModule required username="al" password="a\\"b;c=d";',
            {"sasl.username": "al", "sasl.password": 'a"b;c=d'},
        ),
        (
            f"{JAAS}.scram.ScramLoginModule required username=al password=secret;",
            {"sasl.username": "al", "sasl.password": "secret"},
        ),
        (
            f'{JAAS}.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="s" scope="kafka";',
            {
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
        (
            'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k.tab" principal="me@HERE";',
            {"sasl.kerberos.keytab": "/k.tab", "sasl.kerberos.principal": "me@HERE"},
        ),
    ],
)
def test_a_jaas_line_is_taken_apart(jaas: str, librdkafka: dict[str, str]) -> None:
    assert translated({"sasl.jaas.config": jaas}) == librdkafka


def test_a_jaas_line_of_a_connector_replaces_the_login_of_the_worker() -> None:
    jaas = f'{JAAS}.plain.PlainLoginModule required username="bob" password="b";'
    found = translated({"sasl.username": "al", "sasl.password": "a"}, {"sasl.jaas.config": jaas})
    assert found == {"sasl.username": "bob", "sasl.password": "b"}


def test_an_unknown_login_module_is_an_error_that_does_not_tell_the_password() -> None:
    layer = Layer("", {"sasl.jaas.config": 'com.example.Own required password="hush";'})
    with pytest.raises(ClientSettingError) as raised:
        to_librdkafka([layer], lambda sentence: None)
    assert "hush" not in str(raised.value)


def test_pem_stores_become_files() -> None:
    assert translated(
        {
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "k",
        }
    ) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "k",
    }
    inline: dict[str, str | None] = {"ssl.truststore.certificates": "CA", "ssl.keystore.key": "KEY"}
    assert translated(inline) == {"ssl.ca.pem": "CA", "ssl.key.pem": "KEY"}


@pytest.mark.parametrize("setting", ["ssl.truststore", "ssl.keystore"])
def test_a_store_that_cannot_be_read_is_an_error_with_the_way_out(setting: str) -> None:
    with pytest.raises(ClientSettingError) as raised:
        translated({f"{setting}.location": "/store.jks"})
    assert f"{setting}.type=PEM" in raised.value.next_step
