"""The client inside an asyncio web application: python web_application.py 127.0.0.1:9876 [PORT]

A POST sends the body to the topic Guestbook, a GET gives the messages that came so far; the path does not matter. The
asyncio reactor is installed, so that Twisted and the web server share one loop; the client's Deferreds are awaited as futures.
"""

import asyncio
import json
import sys

from twisted.internet import asyncioreactor
from twisted.internet.defer import Deferred

from txrocketmq.client import (
    BrokerError,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MQClientError,
    NoRouteError,
    Producer,
    PushConfig,
    PushConsumer,
    RemotingError,
    as_future,
)


class Application:
    """Answers requests; any asyncio web framework's handlers would do the same in its place."""

    def __init__(self, reactor, namesrv_addr, topic):
        self.came = []
        self.topic = topic
        self.producer = Producer(reactor, "web", namesrv_addr=namesrv_addr)
        self.consumer = PushConsumer(
            reactor,
            "web-readers",
            topic,
            self.handle,
            settings=PushConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
            namesrv_addr=namesrv_addr,
        )

    async def start(self):
        await as_future(self.producer.start())
        await as_future(self.producer.send(Message(topic=self.topic, body=b"first")))
        await as_future(self.consumer.start())

    async def stop(self):
        await as_future(self.consumer.stop())
        await as_future(self.producer.stop())

    def handle(self, messages, context):
        self.came.extend(message.body.decode() for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def answer(self, method, body):
        if method == "GET":
            return 200, self.came
        try:
            sent = await as_future(self.producer.send(Message(topic=self.topic, body=body)))
        except (BrokerError, NoRouteError, RemotingError) as error:
            return 503, str(error)
        except MQClientError as error:
            return 400, str(error)
        return 200, {"id": sent.msg_id, "queue": sent.queue.queue_id, "offset": sent.queue_offset}

    async def connected(self, reader, writer):
        """One HTTP request, as short as it can be written."""
        method = (await reader.readline()).split()[0].decode()
        length = 0
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        status, found = await self.answer(method, await reader.readexactly(length))
        body = json.dumps(found).encode()
        head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


async def serve(reactor, namesrv_addr, port):
    application = Application(reactor, namesrv_addr, "Guestbook")
    await application.start()
    server = await asyncio.start_server(application.connected, "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    try:
        await server.serve_forever()
    finally:
        await application.stop()


def main(namesrv_addr="127.0.0.1:9876", port="0"):
    loop = asyncio.new_event_loop()
    asyncioreactor.install(loop)
    from twisted.internet import reactor

    task = loop.create_task(serve(reactor, namesrv_addr, int(port)))
    task.add_done_callback(lambda _: task.cancelled() or reactor.stop())
    # A signal ends the service first, and the reactor once it is done.
    reactor.addSystemEventTrigger("before", "shutdown", lambda: ended(task))
    reactor.run()
    # It ended by itself: no name server, a port that is taken. Nobody else would say why.
    if not task.cancelled():
        sys.exit(str(task.exception()))


def ended(task):
    done = Deferred()
    task.cancel()
    task.add_done_callback(lambda _: done.callback(None))
    return done


if __name__ == "__main__":
    main(*sys.argv[1:])
