from __future__ import annotations

from reference_broker.jms import BytesMessage, MapMessage, StreamMessage, TextMessage


def test_a_copy_is_independent_and_nobodys_delivery() -> None:
    calls: list[int] = []
    message = MapMessage()
    message.set("a", 1)
    message.set_property("p", 1)
    message.delivered_by(lambda: calls.append(1))
    copied = message.copy()
    copied.acknowledge()
    message.clear_body()
    message.clear_properties()
    assert not calls
    assert copied.get("a") == 1
    assert copied.get_property("p") == 1


def test_copies_of_all_kinds_of_body() -> None:
    text = TextMessage("a")
    copied = text.copy()
    text.text = "b"
    assert copied.text == "a"
    data = BytesMessage()
    data.write(b"a")
    more = data.copy()
    data.write(b"b")
    assert more.data == b"a"
    stream = StreamMessage()
    stream.write(1)
    other = stream.copy()
    stream.write(2)
    assert len(list(other.items())) == 1
