"""Does the table of topics keep both directions alike, whatever comes and goes?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.model.topic import TopicShare
from txrocketmq.namesrv.topic_queues import TopicQueues

BROKERS = ("a", "b", "c")
TOPICS = ("T1", "T2", "T3", "T4")
some_topics = st.lists(st.sampled_from(TOPICS), unique=True)
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(BROKERS), some_topics),
    st.tuples(st.just("forget"), st.sampled_from(TOPICS), st.lists(st.sampled_from(BROKERS))),
    st.tuples(st.just("forget topic"), st.sampled_from(TOPICS), st.none()),
    st.tuples(st.just("forget broker"), st.sampled_from(BROKERS), st.none()),
)


@given(st.lists(steps, max_size=30))
def test_it_is_like_a_plain_table_of_pairs(
    history: list[tuple[str, str, list[str] | None]],
) -> None:
    table = TopicQueues()
    model: dict[tuple[str, str], int] = {}
    for number, (step, name, others) in enumerate(history):
        if step == "put":
            table.put_all(
                name, {topic: TopicShare(read_queue_nums=number) for topic in others or ()}
            )
            model.update({(topic, name): number for topic in others or ()})
        elif step == "forget":
            table.forget(name, others or ())
            model = {
                key: value
                for key, value in model.items()
                if key[0] != name or key[1] not in (others or ())
            }
        elif step == "forget topic":
            table.forget_topic(name)
            model = {key: value for key, value in model.items() if key[0] != name}
        else:
            table.forget_broker(name)
            model = {key: value for key, value in model.items() if key[1] != name}
        compare(table, model)


def compare(table: TopicQueues, model: dict[tuple[str, str], int]) -> None:
    assert sorted(table.topics()) == sorted({topic for topic, _ in model})
    for topic in TOPICS:
        expected = {broker: value for (name, broker), value in model.items() if name == topic}
        found = table.of_topic(topic)
        assert {broker: share.read_queue_nums for broker, share in found.items()} == expected
    for broker in BROKERS:
        topics = {topic for topic, name in model if name == broker}
        assert set(table.topics_of(broker)) == topics
        assert len(table.of_broker(broker)) == len(topics)
        assert set(table.missing(broker, dict.fromkeys(TOPICS, 0))) == set(TOPICS) - topics
    assert {topic for topic, _ in table.first_of_each()} == {topic for topic, _ in model}
